"""What `attnperf profile --json` prints: the records field by field, under a version of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_attnperf.reports.text.figures import printable_json

PROFILE_FORMAT = 1
"""Version of the JSON; a field that is renamed or changes its meaning raises it."""


def profile_json(content: Mapping[str, object]) -> str:
    """Indented JSON with keys in the order of the records. A gain without limit is the string "Infinity"."""
    values = _finite({"format": PROFILE_FORMAT, **msgspec.to_builtins(dict(content))})
    return printable_json(msgspec.json.format(msgspec.json.encode(values), indent=2).decode()) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
