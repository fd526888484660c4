"""What `attnperf judge` prints: as JSON that is read back, and as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import ErrorFigures, Verdict
from pytest_attnperf.tools.judging.confinement import LimitState
from pytest_attnperf.tools.judging.judgement import (
    ALONE,
    JudgedErrors,
    JudgedFile,
    JudgedProblem,
    JudgedTimes,
    Judgement,
    decode_judgement,
    encode_judgement,
    render_judgement,
)

RIGHT = Judgement(
    Verdict.RIGHT,
    "",
    JudgedFile("k.py", ("kernel",), "0" * 64),
    JudgedFile("ref.py", ("reference", "make_inputs"), "1" * 64),
    errors=(JudgedErrors(ALONE, ErrorFigures("timed inputs", "out", 1.0, 2.0, 0.1, 0.4)),),
    times=JudgedTimes(100.0, 250.0, 2.5, 400.0, "event"),
    limits=(LimitState("time", True), LimitState("files", False, "no Landlock")),
    seed=7,
)
HOSTILE = "<script>alert(1)</script>\x1b[31m\ud800\u202e"


def test_it_is_read_back() -> None:
    """Field by field, `schema` first."""
    text = encode_judgement(RIGHT)
    assert text.startswith('{\n "schema": "attnperf.judgement/1",')
    assert decode_judgement(text) == RIGHT


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "attnperf.judgement/1"}', "[" * 100_000, "\x00"])
def test_anything_else_is_refused(text: str) -> None:
    """As an error of the user's."""
    with pytest.raises(UsageError, match="not what attnperf judge --json prints"):
        decode_judgement(text)


def test_another_format_is_refused() -> None:
    """By its name."""
    with pytest.raises(UsageError, match=r"has the format 'attnperf\.judgement/2'; this version reads"):
        decode_judgement(encode_judgement(replace(RIGHT, schema="attnperf.judgement/2")))


def test_a_right_kernel_in_words() -> None:
    """How near to its budget, how fast, and which limits were missing."""
    assert render_judgement(RIGHT, 200).splitlines() == [
        "RIGHT: k.py",
        "errors: at most 50% of the budget, in 1 checked outputs",
        "100.0 us per call, the reference 250.0 us: 2.50x as fast",
        "limits enforced: time",
        "limit NOT enforced: files: no Landlock",
        "the same inputs again: --seed 7",
    ]


@pytest.mark.parametrize("verdict", [Verdict.INCORRECT, Verdict.SUSPICIOUS, Verdict.ERROR])
def test_what_is_not_right_has_no_times(verdict: Verdict) -> None:
    """Whatever the record holds."""
    assert "per call" not in render_judgement(replace(RIGHT, verdict=verdict), 200)


def test_hostile_text_stays_text() -> None:
    """No control character of a kernel's reaches a terminal, and JSON can be printed."""
    hostile = replace(
        RIGHT, verdict=Verdict.ERROR, summary=HOSTILE, problems=(JudgedProblem(ALONE, HOSTILE),), traceback=HOSTILE,
        log=f"{HOSTILE}\n" * 10_000, kernel=JudgedFile(HOSTILE, ("kernel",), ""), notes=(HOSTILE,),
    )  # fmt: skip
    text = render_judgement(hostile, 80)
    assert "\x1b" not in text
    assert "\ud800" not in text
    assert len(text) < 20_000
    encode_judgement(hostile).encode()
