"""JSON as other programs read it: without NaN and Infinity, and without letters on which a terminal acts."""

from __future__ import annotations

import json
from typing import Any

from pytest_attnperf.reports.text.figures import printable_json


def to_json(value: Any) -> str:
    """Returns a value as indented JSON and a line break. Raises ValueError for NaN and Infinity."""
    return f"{printable_json(json.dumps(value, indent=1, allow_nan=False))}\n"
