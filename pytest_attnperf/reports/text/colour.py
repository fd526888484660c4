"""Colours of a terminal. They are used only on request, and never carry a meaning alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from pytest_attnperf.records import Verdict

RED, GREEN, YELLOW, BOLD, DIM = "1;31", "32", "33", "1", "2"
"""Parameters of SGR sequences. Every terminal has the 8 basic colours, bold and dim."""

STYLES = {
    Verdict.INCORRECT: RED,
    Verdict.ERROR: RED,
    Verdict.SUSPICIOUS: RED,
    Verdict.WORSE: RED,
    Verdict.SLOWER: RED,
    Verdict.GREW: RED,
    Verdict.UNDECIDED: YELLOW,
    Verdict.ENVIRONMENT: YELLOW,
    Verdict.INCOMPARABLE: YELLOW,
    Verdict.STALE: YELLOW,
    Verdict.DRIFT: YELLOW,
    Verdict.MOVED: YELLOW,
    Verdict.NO_BASELINE: YELLOW,
    Verdict.UNSUPPORTED: DIM,
    Verdict.FASTER: GREEN,
}
"""Style of each verdict. SAME and recorded verdicts have none, because a page of green would show nothing."""

CHOICES = ("auto", "always", "never")


@dataclass(frozen=True)
class Ink:
    """Adds escape sequences to text, or leaves it unchanged."""

    on: bool = False

    @classmethod
    def plain(cls) -> Ink:
        """Returns an Ink that adds no colours."""
        return cls(on=False)

    @classmethod
    def ansi(cls) -> Ink:
        """Returns an Ink that adds colours by ANSI escape sequences (SGR)."""
        return cls(on=True)

    def paint_verdict(self, text: str, verdict: Verdict | None) -> str:
        """Returns `text` in the colour of a verdict; unchanged for None. The text also says the verdict in words."""
        return self._paint(text, STYLES.get(verdict, "") if verdict else "")

    def bold(self, text: str) -> str:
        """Returns `text` in bold, unchanged without colours."""
        return self._paint(text, BOLD)

    def dim(self, text: str) -> str:
        """Returns `text` dimmed, unchanged without colours."""
        return self._paint(text, DIM)

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.on and style and text else text


PLAIN = Ink.plain()


def wants_colour(stream: TextIO, environ: Mapping[str, str], choice: str = "auto") -> bool:
    """Returns whether text written to `stream` should have colours.

    choice   'always', 'never' or 'auto': no if NO_COLOR is set, else yes if FORCE_COLOR is set, else yes on a terminal
             that is not dumb

    Raises ValueError for another choice.
    """
    if choice not in CHOICES:
        raise ValueError(f"colour {choice!r} is not known; known: {', '.join(CHOICES)}")
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return environ.get("TERM") != "dumb" and _is_terminal(stream)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # no such method, or closed
        return False
