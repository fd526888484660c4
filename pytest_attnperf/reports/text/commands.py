"""Commands of a results file in a form that is safe to show: a user may paste them, and anybody may write the file."""

from __future__ import annotations

import re
import shlex

from pytest_attnperf.reports.text.figures import one_line

LIMIT, CHARACTERS_MOST = 2000, 10_000
"""Characters of a command that are shown, and of one that is split into words: shlex takes a time that grows with their
square, half a minute for 75,000."""
_ACTIVE = re.compile(r"[`$\\!;|&<>\n\r]")
"""Characters that a shell acts on, some of them inside double quotes too."""

_OURS = ("--attnperf", "--update-baselines")
_RUNS = ("--attnperf-build", "--attnperf-worker-args")
"""Options whose value is a command or becomes part of one."""

_SIDES = ("--attnperf-against", "--attnperf-candidate")
_NAME = re.compile(r"[\w.@^~/{}:+-]+")
"""A revision, a folder or an interpreter: one word. Anything else is a command."""

_WRITES = ("--attnperf-results", "--attnperf-report", "--attnperf-history")
_INSIDE = re.compile(r"(?!.*\.\.)[\w][\w./-]*")
"""A path below the current folder: a results file must not choose which file is overwritten elsewhere."""

_OFTEN = re.compile(
    r"-[kmn].*|-[qvsxl]+|-r\w+|--(?:tb|dist|durations|maxfail|color|deselect|ignore|numprocesses|strict-markers|verbose|"
    r"quiet|exitfirst|lf|ff|last-failed|failed-first)(?:=.*)?",
    re.DOTALL,
)
"""Options of pytest and pytest-xdist whose values neither import, start, write nor delete anything."""


def format_typed_command(text: str) -> str:
    """Returns the command of this process's own run, as one line. No option is removed, because its user typed it."""
    return one_line(text, LIMIT)


def format_repeat_command(text: str, nodeid: str = "") -> str:
    """Returns the command that repeats a case, safe to paste: pytest, options of this plugin, and tests.

    Options that run something else, or write elsewhere, are left out. If the text is not such a command, a new one is
    made from `nodeid`; '' without one.
    """
    words = split_command(one_line(text, LIMIT))
    kept = [word for word in words[1:] if _is_harmless(word)]
    if words[:1] != ["pytest"]:
        return f"pytest --attnperf {shlex.quote(one_line(nodeid, LIMIT))}" if nodeid and words else ""
    whole = len(kept) == len(words) - 1
    return one_line(text, LIMIT) if whole and not _ACTIVE.search(text) else shlex.join(["pytest", *kept])


def can_be_offered(text: str) -> bool:
    """Returns whether a command may be copied unchanged: only pytest, and nothing that a shell or option runs."""
    words = split_command(text)
    inert = all(_is_harmless(word) or _OFTEN.fullmatch(word) for word in words[1:])
    return words[:1] == ["pytest"] and inert and not _ACTIVE.search(text)


def split_command(text: str) -> list[str]:
    """Returns the words of a command; ["?"] for a text that is none, or too long, and [] for an empty one."""
    try:
        if len(text) <= CHARACTERS_MOST:
            return shlex.split(text)
    except ValueError:
        pass
    return ["?"] if text.strip() else []


def _is_harmless(word: str) -> bool:
    name, _, value = word.partition("=")
    if not name.startswith(("-", "@")):
        return True
    if name in _SIDES:
        return _NAME.fullmatch(value) is not None  # a value in a separate word is left out, too
    if name in _WRITES:
        return _INSIDE.fullmatch(value) is not None
    return name.startswith(_OURS) and not name.startswith(_RUNS)
