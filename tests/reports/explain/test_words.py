"""Every verdict, and every cause of one that the judge's own tests do not make, in plain words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, CheckReport, ErrorFigures, Launch, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.reports.explain.facts import Facts, Told
from pytest_attnperf.reports.explain.words import BY_VERDICT, words_of
from pytest_attnperf.results import CaseResult, Fault
from tests import recorded_cases as recorded

BASE = CaseResult(CaseKey("prefill", "triton.flash", "w"), "suites/test_p.py::test[a b]", Verdict.SAME, "as it was")
WRONG = ErrorFigures(
    "replay", "out", 0.5, 0.01, 0.1, 0.001, (0, 1, 2, 3), 7.25, 0.4, elements=64, beyond_count=3,
    beyond_first=(0, 1, 0, 0), beyond_last=(0, 1, 3, 7),
)  # fmt: skip
NOT_TIMED = CheckReport((WRONG,), ("off",))
PAIRS = recorded.slower_by_pairs().pairs


def note(kind: NoteKind, about: str = "") -> Note:
    """A note of this kind, in words that nobody knows it by."""
    return Note(kind, "in other words", about)


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
        (Verdict.SLOWER, {"notes": (note(NoteKind.UNCHANGED),)}, "not what changed"),
        (Verdict.SLOWER, {"notes": (note(NoteKind.CHANGED),)}, "the first place to look"),
        (Verdict.SLOWER, {"notes": (note(NoteKind.CHANGED_SIDE),)}, "the first place to look"),
        (
            Verdict.SLOWER,
            {"pairs": recorded.slower_by_pairs().pairs, "notes": (note(NoteKind.RELEASES, "rocm: 6 -> 7"),)},
            "it may be the toolchain, which is not that of : rocm: 6 -> 7.",
        ),
        (Verdict.SLOWER, {"launches": (Launch("k"),)}, "the kernels of a library do not tell"),
        (
            Verdict.SLOWER,
            {"reasons": (note(NoteKind.OTHER_PATH, "path: ck here"),)},
            "took another path: path: ck here",
        ),
        (Verdict.UNDECIDED, {"reasons": (note(NoteKind.BUDGET),)}, "Nothing is proven"),
        (Verdict.ENVIRONMENT, {"reasons": (note(NoteKind.TOOLCHAIN, "driver: 1 -> 2"),)}, "with: driver: 1 -> 2."),
        (Verdict.ENVIRONMENT, {"reasons": (note(NoteKind.CANARY),)}, "So the machine moved"),
        (Verdict.UNDECIDED, {"ratio": 1.1}, "before the noise is known"),
        (Verdict.RIGHT, {"unchanged": True}, "the very machine code"),
        (Verdict.RECORDED, {"ratio": 1.05}, "+5.0 % against what was stored before"),
        (Verdict.UNSUPPORTED, {"reasons": ("no fp8 here",)}, "no fp8 here"),
        (Verdict.UNSUPPORTED, {"fails": True}, "must not disappear"),
        (Verdict.SUSPICIOUS, {"reasons": (note(NoteKind.BELOW_FLOOR),)}, "less time than the device needs"),
        (Verdict.SUSPICIOUS, {"reasons": (note(NoteKind.REMEMBERS),)}, "a memory of the result"),
        (Verdict.SUSPICIOUS, {"reasons": (note(NoteKind.NO_STORE),)}, "leaves anything behind"),
        (Verdict.SUSPICIOUS, {"reasons": (note(NoteKind.NO_MATRIX),)}, "a fallback was compiled"),
        (Verdict.ERROR, {"reasons": (note(NoteKind.NO_ANSWER),)}, "attnperf warm"),
        (Verdict.ERROR, {"reasons": (note(NoteKind.OUT_OF_MEMORY),)}, "ran out of memory"),
        (Verdict.ERROR, {"fault": Fault("out of memory")}, "ran out of memory"),
        (Verdict.ERROR, {"reasons": (note(NoteKind.DIED),)}, "ended without an answer"),
        (Verdict.ERROR, {"reasons": (note(NoteKind.KILLED),)}, "ended without an answer"),
        (Verdict.ERROR, {"reasons": (note(NoteKind.CONTRADICTED),)}, "contradicts itself"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.FOREIGN),)}, "of another tree were loaded"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.OTHER_PRODUCT),)}, "of another product"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.OTHER_PATH),)}, "dispatcher took another path"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.MIXED_PATHS),)}, "took different paths"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.WORKLOAD),)}, "not the one that the baseline"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.PROCESSES),)}, "too few processes"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.BASE_SIDE),)}, "gave no time that this one"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.MACHINE),)}, "on a machine, or by a method"),
        (Verdict.NO_BASELINE, {"median_us": 12.5}, "12.50 us"),
        (Verdict.NO_BASELINE, {"new": True, "against": "main"}, "main does not have the case"),
        (Verdict.UNSUPPORTED, {"skipped": "no fp8"}, "skips it: no fp8"),
        (Verdict.UNSUPPORTED, {"skipped": "no fp8", "fails": True}, "no way to pass"),
    ],
)
def test_causes_are_told_apart(verdict: Verdict, fields: dict[str, Any], part: str) -> None:
    """By the kinds of notes and reasons: not a word of these is one that the gate or the session writes."""
    assert part in said(verdict, **fields)


def test_a_quarantine_is_said_first() -> None:
    """Until when it does not fail; and, where it is over, that it fails by its date."""
    link = "https://example.invalid/7 until 2026-12-31"
    assert said(Verdict.SLOWER, quarantined=link).startswith(f"The case is quarantined ({link})")
    text = "quarantine expired on 2026-01-01: #7; mend it"
    over = said(Verdict.SAME, summary=text, reasons=(Note(NoteKind.EXPIRED, text),), fails=True)
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
