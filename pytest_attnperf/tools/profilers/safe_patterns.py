"""Which regular expressions may take for ever on a name that they do not match.

A name is searched up to a limited length, so the time of a pattern is bounded where its unbounded repeats stand one
after the other: by a power of that length. Where one stands within another, or repeats alternatives, it may be
exponential, and no limit of length helps. Such patterns are refused, harmless ones of this form included.
"""

from __future__ import annotations

import re

MAX_PATTERN = 500
"""Characters of a pattern."""

MAX_REPEATS = 3
"""Unbounded repeats in one pattern: `*`, `+`, `{2,}`."""

_TOKEN = re.compile(
    r"\\."
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|(?P<open>\((?:\?(?:[a-zA-Z-]*:|P<\w+>|P=|<?[=!]|\(\w+\)))?)"
    r"|(?P<close>\))"
    r"|(?P<many>(?:[*+]|\{\d*,\})[?+]?)"
    r"|(?P<counted>\{\d+(?:,\d+)?\})"
    r"|(?P<either>\|)"
    r"|.",
    re.DOTALL,
)
"""Pieces of a pattern; a class in brackets and an escaped character are one piece each and count for nothing."""


def pattern_risk(pattern: str) -> str:
    """Why a pattern that compiles may take too long, '' where it may not."""
    repeats = 0
    risky = [False]  # of each open group: whether it holds an unbounded repeat or alternatives
    closed = False  # the same of the group that has just ended
    for token in _TOKEN.finditer(pattern):
        repeated = token["many"] or token["counted"]
        if repeated and closed:
            return f"{repeated!r} repeats a group that itself repeats or has alternatives; write it without that group"
        repeats += bool(token["many"])
        risky[-1] |= bool(token["many"] or token["either"])
        closed = False
        if token["open"]:
            risky.append(False)
        elif token["close"]:
            closed = risky.pop()
            risky[-1] |= closed
    if repeats > MAX_REPEATS:
        return f"{repeats} unbounded repeats, at most {MAX_REPEATS}"
    return ""
