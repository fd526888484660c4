"""Checks the table of timers before it is used: an error names the class, its file and line, and what it lacks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure.timers.timer import TimerKind
from pytest_attnperf.records.listing import find_class_place

LISTED_IN = "pytest_attnperf/measure/timers/__init__.py"
"""The table's file, for messages."""

_METHODS = ("prepare", "measure", "run_once", "close")

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def check_table(kinds: Sequence[object], taken: str) -> None:
    """Raises UsageError for the first entry of TIMERS that is no whole timer class, or whose name is `taken` or that of
    an earlier timer."""
    owners = {taken: "of the rule"}
    for kind in kinds:
        if not isinstance(kind, type):
            raise UsageError(f"TIMERS of {LISTED_IN} has a {type(kind).__name__}, {kind!r:.80}; list the timer's class")
        if problem := _find_problem(kind, owners):
            raise UsageError(f"{find_class_place(kind)}: timer {kind.__name__} {problem}")
        owners[kind.name] = f"of {kind.__name__}"  # type: ignore[attr-defined]


def _find_problem(kind: type, owners: dict[str, str]) -> str:
    """Returns what is wrong with a class of the table, worded to follow its name; '' if it is right."""
    if not issubclass(kind, TimerKind):
        return "needs the base class TimerKind (pytest_attnperf/measure/timers/timer.py), or one derived from it"
    missing = [name for name in ("name", "note") if not hasattr(kind, name)]
    missing += [f"{name}()" for name in _METHODS if not callable(getattr(kind, name, None))]
    if missing:
        return f"lacks {', '.join(missing)}, which Timer in pytest_attnperf/measure/timers/timer.py describes"
    if not isinstance(kind.name, str) or not _NAME.fullmatch(kind.name):
        return f"has the name {kind.name!r}; use lower-case letters, digits and _, e.g. 'host_cold'"
    if kind.name in owners:
        return f"has the name {kind.name!r} {owners[kind.name]}; give the class a `name` of its own"
    return ""
