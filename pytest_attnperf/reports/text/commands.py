"""Commands of a results file as they may be shown: somebody pastes them, and the file may be anybody's."""

from __future__ import annotations

import re
import shlex

from pytest_attnperf.reports.text.figures import one_line

LIMIT = 2000
_ACTIVE = re.compile(r"[`$\\!;|&<>\n\r]")
"""What a shell acts on, some of it inside of double quotes, too."""

_OURS = ("--attnperf", "--update-baselines")
_RUNS = ("--attnperf-build", "--attnperf-worker-args")
"""Options whose value is, or becomes part of, a command."""

_SIDES = ("--attnperf-against", "--attnperf-candidate")
_NAME = re.compile(r"[\w.@^~/{}:+-]+")
"""A revision, a folder or an interpreter: one word. Anything else is a command."""

_WRITES = ("--attnperf-results", "--attnperf-report", "--attnperf-history")
_INSIDE = re.compile(r"(?!.*\.\.)[\w][\w./-]*")
"""A path below the current folder: a file must not choose what is overwritten elsewhere."""

_OFTEN = re.compile(
    r"-[kmn].*|-[qvsxl]+|-r\w+|--(?:tb|dist|durations|maxfail|color|deselect|ignore|numprocesses|strict-markers|verbose|"
    r"quiet|exitfirst|lf|ff|last-failed|failed-first)(?:=.*)?",
    re.DOTALL,
)
"""Options of pytest and pytest-xdist that neither import, start, write nor delete anything by their value."""


def format_typed_command(text: str) -> str:
    """The command of a run in this process: its user typed it, and gets all of it back, in one line."""
    return one_line(text, LIMIT)


def format_repeat_command(text: str, nodeid: str = "") -> str:
    """The command that repeats a case, inert when it is pasted: pytest, options of this plugin, and tests.

    Options that run something else, or write elsewhere, are left out. What is no such command is made anew from
    `nodeid`; '' without one.
    """
    words = _split_words(one_line(text, LIMIT))
    kept = [word for word in words[1:] if _is_harmless(word)]
    if words[:1] != ["pytest"]:
        return f"pytest --attnperf {shlex.quote(one_line(nodeid, LIMIT))}" if nodeid and words else ""
    whole = len(kept) == len(words) - 1
    return one_line(text, LIMIT) if whole and not _ACTIVE.search(text) else shlex.join(["pytest", *kept])


def can_be_offered(text: str) -> bool:
    """Whether a command may be offered for copying as it stands: pytest, nothing that a shell acts on or that runs."""
    words = _split_words(text)
    inert = all(_is_harmless(word) or _OFTEN.fullmatch(word) for word in words[1:])
    return words[:1] == ["pytest"] and inert and not _ACTIVE.search(text)


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()[:1] and ["?"]


def _is_harmless(word: str) -> bool:
    name, _, value = word.partition("=")
    if not name.startswith(("-", "@")):
        return True
    if name in _SIDES:
        return _NAME.fullmatch(value) is not None  # one in a word of its own, behind a blank, is left out, too
    if name in _WRITES:
        return _INSIDE.fullmatch(value) is not None
    return name.startswith(_OURS) and not name.startswith(_RUNS)
