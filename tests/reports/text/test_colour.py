from __future__ import annotations

import io
import re
from typing import Any

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.text.colour import Ink, wants_colour

XTERM = {"TERM": "xterm-256color"}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It does."""
        return True


class Unknowing:
    """A stream without `isatty`."""


@pytest.mark.parametrize(
    ("stream", "environ", "choice", "expected"),
    [
        (Terminal(), XTERM, "auto", True),
        (Terminal(), {}, "auto", True),
        (Terminal(), {"TERM": "dumb"}, "auto", False),
        (Terminal(), {**XTERM, "NO_COLOR": "0"}, "auto", False),
        (Terminal(), {**XTERM, "NO_COLOR": ""}, "auto", True),
        (Terminal(), {**XTERM, "NO_COLOR": "1", "FORCE_COLOR": "1"}, "auto", False),
        (Terminal(), {**XTERM, "NO_COLOR": "1"}, "always", True),
        (Terminal(), XTERM, "never", False),
        (io.StringIO(), XTERM, "auto", False),
        (io.StringIO(), {**XTERM, "FORCE_COLOR": "1"}, "auto", True),
        (io.StringIO(), {"TERM": "dumb", "FORCE_COLOR": "1"}, "auto", True),
        (io.StringIO(), {}, "always", True),
        (Unknowing(), XTERM, "auto", False),
    ],
)
def test_when_colours_are_wanted(stream: Any, environ: dict[str, str], choice: str, expected: bool) -> None:
    """The choice comes first, then NO_COLOR, FORCE_COLOR, and what the terminal is."""
    assert wants_colour(stream, environ, choice) is expected


def test_a_closed_stream_gets_none() -> None:
    """Asking a closed stream is no error."""
    stream = io.StringIO()
    stream.close()
    assert not wants_colour(stream, XTERM)


def test_an_unknown_choice() -> None:
    """It is named with what there is."""
    with pytest.raises(ValueError, match="colour 'sometimes' is not known; known: auto, always, never"):
        wants_colour(io.StringIO(), {}, "sometimes")


def test_verdicts_have_their_colours() -> None:
    """Failing ones are red, unresolved ones yellow, FASTER green; SAME and what passes by itself have none."""
    ink = Ink.ansi()
    painted = {verdict: ink.paint_verdict("word", verdict).partition("word")[0] for verdict in Verdict}
    assert {verdict for verdict in Verdict if painted[verdict] == "\x1b[1;31m"} == {
        Verdict.INCORRECT, Verdict.ERROR, Verdict.SUSPICIOUS, Verdict.WORSE, Verdict.SLOWER, Verdict.GREW,
    }  # fmt: skip
    assert {verdict for verdict in Verdict if painted[verdict] == "\x1b[33m"} == {
        Verdict.UNDECIDED, Verdict.ENVIRONMENT, Verdict.INCOMPARABLE, Verdict.NO_BASELINE,
        Verdict.MOVED, Verdict.DRIFT, Verdict.STALE,
    }  # fmt: skip
    assert painted[Verdict.FASTER] == "\x1b[32m"
    assert painted[Verdict.UNSUPPORTED] == "\x1b[2m"
    assert {verdict for verdict in Verdict if not painted[verdict]} == {Verdict.SAME, Verdict.RECORDED, Verdict.RIGHT}


def test_only_basic_sequences() -> None:
    """Bold, dim and the 8 basic colours, each ended; nothing around no text."""
    ink = Ink.ansi()
    texts = [ink.bold("x"), ink.dim("x"), *(ink.paint_verdict("x", verdict) for verdict in Verdict)]
    assert all(re.fullmatch(r"\x1b\[(1|2|(1;)?3[0-7])mx\x1b\[0m|x", text) for text in texts)
    assert ink.bold("") == ink.paint_verdict("", Verdict.ERROR) == ""
    assert ink.paint_verdict("x", None) == "x"


def test_plain_ink_leaves_text_alone() -> None:
    """Without colours the text is the text."""
    ink = Ink.plain()
    assert {ink.bold("x"), ink.dim("x"), *(ink.paint_verdict("x", verdict) for verdict in Verdict)} == {"x"}
