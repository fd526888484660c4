"""A record of what somebody accepted of a baseline entry, why, and what it was before; stored in the entry.

Reasons and names are data of one line each, so that a diff, a table and a terminal show them unchanged.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pytest_attnperf.errors import UsageError

REASON_MAX = 300
"""Most characters of a reason: longer text belongs into the commit message."""

AUTHOR_MAX = 100
HOW_MAX = 100
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Acceptance:
    """One acceptance of an entry. Times are centres over processes, in microseconds per call.

    reason         why the change is wanted, by `author`, on `date` (YYYY-MM-DD)
    how            its evidence: '7 processes', '8 pairs, stored processes scaled by 1.053', 'time kept',
                   'identity only', 'policy only'
    commit         the revision whose result was accepted; `old_commit` and `old_recorded` are those of what it replaced
    before_us      the time stored before, None where there was none; `after_us` the one stored since
    changes        what else is accepted, as text: launches, configuration, settings
    """

    reason: str
    author: str
    date: str
    how: str
    after_us: float
    before_us: float | None = None
    commit: str = ""
    changes: tuple[str, ...] = ()
    old_commit: str = ""
    old_recorded: str = ""


def require_text(what: str, text: str, most: int) -> str:
    """Returns `text` stripped of blanks. Raises UsageError naming `what` if it is empty, too long or not one line."""
    plain = text.strip()
    problem = _find_text_problem(plain, most)
    if problem:
        raise UsageError(f"{what} {plain[:80]!r} {problem}")
    return plain


def find_problem(acceptance: Acceptance) -> str:
    """Returns what is wrong with the values of a stored acceptance, starting with the field; '' where nothing is."""
    for name, most in (("reason", REASON_MAX), ("author", AUTHOR_MAX), ("how", HOW_MAX)):
        problem = _find_text_problem(getattr(acceptance, name), most)
        if problem:
            return f"`{name}` {problem}"
    if not DAY.fullmatch(acceptance.date):
        return f"`date` is {acceptance.date[:20]!r}, expected YYYY-MM-DD"
    for name in ("before_us", "after_us"):
        value = getattr(acceptance, name)
        if value is not None and not 0 < value < math.inf:
            return f"`{name}` is {value}, expected a time in microseconds"
    return ""


def _find_text_problem(text: str, most: int) -> str:
    if not text:
        return "is empty"
    if len(text) > most:
        return f"has {len(text)} characters; at most {most} are stored: put the rest into the commit message"
    return "" if text.isprintable() else "is not one line of printable characters"
