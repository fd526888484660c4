"""Colours of a terminal: only where they are wanted, and never the only carrier of a meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from pytest_attnperf.records import Verdict

RED, GREEN, YELLOW, BOLD, DIM = "1;31", "32", "33", "1", "2"
"""Parameters of SGR sequences: the 8 basic colours, bold and dim are what every terminal has."""

STYLES = {
    Verdict.INCORRECT: RED,
    Verdict.ERROR: RED,
    Verdict.SUSPICIOUS: RED,
    Verdict.WORSE: RED,
    Verdict.SLOWER: RED,
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
"""SAME and what is only recorded have none: a page of green says nothing."""

CHOICES = ("auto", "always", "never")


@dataclass(frozen=True)
class Ink:
    """Puts escape sequences around text, or leaves it as it is."""

    on: bool = False

    @classmethod
    def plain(cls) -> Ink:
        """Leaves text as it is."""
        return cls(on=False)

    @classmethod
    def ansi(cls) -> Ink:
        """For a terminal that knows SGR sequences."""
        return cls(on=True)

    def paint_verdict(self, text: str, verdict: Verdict | None) -> str:
        """Text in the colour of a verdict, which the text also says in words."""
        return self._paint(text, STYLES.get(verdict, "") if verdict else "")

    def bold(self, text: str) -> str:
        """A heading."""
        return self._paint(text, BOLD)

    def dim(self, text: str) -> str:
        """What is there for the eye alone."""
        return self._paint(text, DIM)

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.on and style and text else text


PLAIN = Ink.plain()


def wants_colour(stream: TextIO, environ: Mapping[str, str], choice: str = "auto") -> bool:
    """Whether colours go to a stream.

    choice   'always' or 'never', or 'auto': not where NO_COLOR is set to anything, else where FORCE_COLOR is, else on
             a terminal that is not dumb

    Raises ValueError for another choice.
    """
    if choice not in CHOICES:
        raise ValueError(f"colour {choice!r} is not known; there are: {', '.join(CHOICES)}")
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
