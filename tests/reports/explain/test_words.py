"""Every verdict, and every cause of one that the judge's own tests do not make, in plain words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, CheckReport, ErrorFigures, Launch, Verdict
from pytest_attnperf.reports.explain.facts import Facts, Told
from pytest_attnperf.reports.explain.words import BY_VERDICT, words_of
from pytest_attnperf.results import CaseResult
from tests import recorded_cases as recorded

BASE = CaseResult(CaseKey("prefill", "triton.flash", "w"), "suites/test_p.py::test[a b]", Verdict.SAME, "as it was")
WRONG = ErrorFigures(
    "replay", "out", 0.5, 0.01, 0.1, 0.001, (0, 1, 2, 3), 7.25, 0.4, elements=64, beyond_count=3,
    beyond_first=(0, 1, 0, 0), beyond_last=(0, 1, 3, 7),
)  # fmt: skip
NOT_TIMED = CheckReport((WRONG,), ("off",))


def said(verdict: Verdict, facts: Facts | None = None, **fields: Any) -> str:
    """All sentences and commands of a case."""
    case = replace(BASE, verdict=verdict, **fields)
    words = words_of(Told(case, recorded.run_of(case), facts or Facts(share=0.0001)))
    return " ".join([*words.sentences, *(f"{step.why} {step.command}" for step in words.steps)])


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_words_even_of_an_empty_case(verdict: Verdict) -> None:
    """Three sentences at least and a command, whatever the file lacks."""
    case = replace(BASE, verdict=verdict)
    words = words_of(Told(case, recorded.run_of(case), Facts()))
    assert set(BY_VERDICT) == set(Verdict)
    assert 3 <= len(words.sentences) <= 8
    assert any(step.command for step in words.steps)
    assert "None" not in " ".join(words.sentences)


def test_slower_names_its_figures_and_its_commands() -> None:
    """Both times, the interval, the limit, the chance, and what to type, with the commits of file and baseline."""
    case = recorded.slower()
    facts = Facts(source="r.json", share=0.01 / 120, tolerated=1.02)
    words = words_of(Told(case, recorded.run_of(case), facts))
    text, commands = " ".join(words.sentences), [step.command for step in words.steps]
    for figure in ("5.3 % longer", "20.02 us now, 19.02 us then", "+3.4 % and +7.1 %", "+4.4 %", "0.0083 %"):
        assert figure in text, text
    node = "'suites/test_prefill.py::test_prefill[triton.flash-prefill-b4-s1024-h8-d64-f16-causal]'"
    assert commands[0] == f"pytest --attnperf --attnperf-against=4f2c1ab90d11 {node}"
    assert commands[1] == f"attnperf bisect 4f2c1ab90d11 8f7e9d6a1b2c {node}"
    assert f'attnperf accept {case.key} --from r.json --reason "..."' in commands
    assert f"pytest --attnperf --attnperf-second-look=7 {node}" in commands


def test_slower_by_enough_pairs_is_accepted_as_it_is() -> None:
    """Eight pairs are enough: no further look is asked for, nor pairs, which there are."""
    case = recorded.slower_by_pairs()
    words = words_of(Told(case, recorded.run_of(case), Facts()))
    commands = [step.command for step in words.steps]
    assert "in 8 pairs" in " ".join(words.sentences)
    assert not any("second-look" in command or "--attnperf-against" in command for command in commands)
    assert any(command.startswith("attnperf accept ") for command in commands)


def test_incorrect_says_which_output_by_how_much_and_where() -> None:
    """Output, check, error over budget, the worst element, the box, and what planted keys mean."""
    text = said(Verdict.INCORRECT, checks=(NOT_TIMED,), reproduce="pytest --attnperf-seed=41 x")
    for part in (
        "Output 'out' of the check 'replay' is off by 0.5 where 0.01 is allowed, 50 times its budget",
        "(100 times)",
        "The worst element is [0, 1, 2, 3]: got 7.25, expected 0.4.",
        "3 of 64 elements are beyond, all in [0, 1, 0:4, 0:8]",
        "planted keys",
        "pytest --attnperf-seed=41 x",
    ):
        assert part in text, text


@pytest.mark.parametrize(
    ("verdict", "fields", "part"),
    [
        (Verdict.SLOWER, {"notes": ("unchanged: the same machine code",)}, "not what changed"),
        (Verdict.SLOWER, {"notes": ("what ran has changed since the baseline: x",)}, "the first place to look"),
        (Verdict.SLOWER, {"launches": (Launch("k"),)}, "the kernels of a library do not tell"),
        (Verdict.SLOWER, {"reasons": ("another path ran: path: ck here",)}, "took another path: path: ck here"),
        (Verdict.UNDECIDED, {"summary": "the budget of 10m ended before it was measured"}, "Nothing is proven"),
        (Verdict.UNDECIDED, {"ratio": 1.1}, "before the noise is known"),
        (Verdict.RIGHT, {"unchanged": True}, "the very machine code"),
        (Verdict.RECORDED, {"ratio": 1.05}, "+5.0 % against what was stored before"),
        (Verdict.UNSUPPORTED, {"reasons": ("no fp8 here",)}, "no fp8 here"),
        (Verdict.UNSUPPORTED, {"fails": True}, "must not disappear"),
        (Verdict.SUSPICIOUS, {"summary": "faster than this device can be: 1 us"}, "less time than the device needs"),
        (Verdict.SUSPICIOUS, {"summary": "k: its code holds no store of any kind"}, "leaves anything behind"),
        (Verdict.SUSPICIOUS, {"summary": "the backend promises matrix instructions, and"}, "a fallback was compiled"),
        (Verdict.ERROR, {"summary": "worker 0 did not answer 'open' within 300 s"}, "attnperf warm"),
        (Verdict.ERROR, {"summary": "out of memory: x"}, "ran out of memory"),
        (Verdict.ERROR, {"summary": "figures contradict each other: x"}, "contradicts itself"),
        (Verdict.NO_BASELINE, {"median_us": 12.5}, "12.50 us"),
        (Verdict.NO_BASELINE, {"new": True, "against": "main"}, "main does not have the case"),
        (Verdict.UNSUPPORTED, {"skipped": "no fp8"}, "skips it: no fp8"),
        (Verdict.UNSUPPORTED, {"skipped": "no fp8", "fails": True}, "no way to pass"),
    ],
)
def test_causes_are_told_apart(verdict: Verdict, fields: dict[str, Any], part: str) -> None:
    """By notes, reasons and summary, as gate and session write them."""
    assert part in said(verdict, **fields)


def test_a_quarantine_is_said_first() -> None:
    """Until when it does not fail; and, where it is over, that it fails by its date."""
    link = "https://example.invalid/7 until 2026-12-31"
    assert said(Verdict.SLOWER, quarantined=link).startswith(f"The case is quarantined ({link})")
    over = said(Verdict.SAME, summary="quarantine expired on 2026-01-01: #7; mend it", fails=True)
    assert over.startswith("The test fails because its quarantine expired on 2026-01-01")


def test_a_file_that_contradicts_itself_is_said_to_before_anything() -> None:
    """Its words are still there, and nobody is told to believe them."""
    text = said(Verdict.SAME, Facts(contradicted=("its change is said to be 0 %",)))
    assert text.startswith("This file contradicts itself, so believe none of it: its change is said to be 0 %.")


def test_names_from_a_file_are_quoted_for_a_shell() -> None:
    """A node id with a quote, a space and an escape sequence is one word without the escape."""
    hostile = "t.py::t['$(rm x)' \x1b[2J]"
    text = said(Verdict.SLOWER, nodeid=hostile, stored_commit="--upload-pack=x", against="$(boom) side")
    assert "\x1b" not in text
    assert "--attnperf-against=origin/main" in text
    assert "GOOD" in text
    assert """'t.py::t['"'"'$(rm x)'"'"'  [2J]'""" in text
