"""How `attnperf profile` prints: tables for a terminal, Markdown, JSON, and rooflines as files.

What `attnperf profile --json` prints: the records field by field, under a version of their own.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_attnperf.cli.output import columns_shown
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.notes import Note
from pytest_attnperf.reports.text.figures import printable_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_attnperf.records.rooflines import BoundVerdict
    from pytest_attnperf.reports.text.wide_tables import Table

WIDTH = 120
"""Columns where output goes into a file or a pipe."""

SHOWN = 15
"""Kernels in a table, unless --all asks for every one."""

PROFILE_FORMAT = 1
"""Version of the JSON; a field that is renamed or changes its meaning raises it."""


def write(options: argparse.Namespace, above: Sequence[str], tables: Sequence[Table], below: Sequence[str]) -> None:
    """Lines, tables and lines, as the options ask."""
    from pytest_attnperf.reports.text.wide_tables import markdown, terminal

    if options.markdown:
        said = "\n\n".join(filter(None, (markdown(above, tables), markdown(below, ()))))
    else:
        width = columns_shown(WIDTH)
        said = "\n\n".join(filter(None, (terminal(above, tables, width), terminal(below, (), width))))
    sys.stdout.write(f"{said}\n")


def write_json(content: dict[str, object]) -> None:
    """Records field by field."""

    sys.stdout.write(profile_json(content))


def write_roofline(path: Path, named: Sequence[tuple[str, BoundVerdict | None]], title: str) -> None:
    """A roofline with a point for each of them. Raises UsageError where none has a point."""
    from pytest_attnperf.tools.profilers.roofline_plot import write_plot

    points = [
        (name, found.point, found.bound) for name, found in named if found is not None and found.point is not None
    ]
    if not points:
        raise UsageError("--plot: nothing has both a time and known work, so there is no point to draw")
    write_plot(path, points, title)
    sys.stderr.write(f"wrote {path}\n")


def profile_json(content: Mapping[str, object]) -> str:
    """Indented JSON with keys in the order of the records. A gain without limit is the string "Infinity"."""
    values = _finite({"format": PROFILE_FORMAT, **msgspec.to_builtins(dict(content), enc_hook=_text)})
    return printable_json(msgspec.json.format(msgspec.json.encode(values), indent=2).decode()) + "\n"


def _text(value: object) -> str:
    """Give the text of a note: this form has no kinds."""
    if not isinstance(value, Note):
        raise NotImplementedError(f"no JSON is known of {type(value)}")
    return value.text


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
