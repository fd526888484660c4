"""The whole explanation: what stands in which part, how wide it is, and that nothing of a file reaches a terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, CheckReport, ErrorFigures, Launch, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.gpus import DeviceState
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.reports.explain.explain_page import (
    BY_VERDICT,
    build_case_values,
    explain_case,
    render_code_explanation,
    render_explanation,
)
from pytest_attnperf.reports.explain.facts import DecisionOption, Facts, Stored, Told
from pytest_attnperf.reports.text.colour import Ink
from pytest_attnperf.results import CaseResult, Fault
from pytest_attnperf.testing.sample_runs import sample_run
from tests import recorded_cases as recorded

FACTS = Facts(
    cases=120, tolerated=1.026, relative_sd=0.0099, z=5.08, share=0.01 / 120,
    stored=Stored("b.json", launches=("runs k2, which it did not",), config=("BLOCK_M: 64 here, 128 stored",),
                  toolchain=("driver: 2 here, 1 stored",), canary="the canary did not move (gemm +0.1 %)"),
)  # fmt: skip


def shown(case: CaseResult, facts: Facts = FACTS, width: int = 80) -> str:
    """The text of a case in a run of its own."""
    return render_explanation(Told(case, recorded.run_of(case), facts), width=width)


@pytest.fixture(scope="module")
def slower() -> str:
    """A case that was slowed down by 5 %."""
    return shown(replace(recorded.slower(), launches=(Launch("k", "kernel", (64, 8), (256,), 0, 2.0, "abc" * 21),)))


@pytest.mark.parametrize(
    "row",
    [
        "policy          threshold 2 %, floor 0.5 us, creep 5 %",
        "false alarms    1 % of runs, shared by 120 cases: 0.0083 % for this one, 5.08",
        "stored          7 processes, median 19.02 us, sd 0.59 %, recorded 2026-11-21",
        "18.87 18.90 19.13 19.06 18.91 19.02 19.13 us",
        "first look      1 process, median 20.11 us, +5.7 % against stored",
        "second look     3 processes, median 20.02 us",
        "change          +5.26 % (95 %: +3.4 % .. +7.1 %), ratio 1.0526",
        "allowed         up to +2.60 %",
        "SLOWER          beyond +4.43 %: its whole interval then exceeds the allowed",
        "standard error  0.81 % of the change, 14 degrees of freedom",
        "noise           0.99 % per process",
        "clock           1799 MHz in the first look, 1801 MHz in the second look",
        "launches: runs k2, which it did not",
        "configuration: BLOCK_M: 64 here, 128 stored",
        "toolchain: driver: 2 here, 1 stored",
        "the canary did not move (gemm +0.1 %)",
        "ran: 2 x k, grid 64x8, block 256, machine code abcabcabcabc",
        "temperature_c 35 -> 41",
    ],
)
def test_every_input_of_the_decision_is_shown(slower: str, row: str) -> None:
    """Policy, rate, both looks with each process, noise, limits, identity, and the device."""
    assert row in slower, slower


def test_throttling_of_each_process_is_summed_up() -> None:
    """How many processes were throttled during their blocks, and for how long at most by reason; where no process
    knows, nothing is said."""
    case = recorded.slower()
    known = [{"software power cap": 0.012}, {}, {"software power cap": 0.03, "thermal slowdown": 0.001}]
    second = tuple(replace(one, throttled_s=each) for one, each in zip(case.second, known, strict=True))
    text = " ".join(shown(replace(case, second=second)).split())
    assert "throttled 2 of 3 processes during their blocks, at most software power cap 30.00 ms" in text
    assert "thermal slowdown 1.000 ms" in text
    calm = tuple(replace(one, throttled_s={}) for one in case.second)
    assert "throttled 0 of 3 processes during their blocks" in " ".join(shown(replace(case, second=calm)).split())
    assert "throttled" not in shown(case).replace("no throttling", "")


def test_pairs_are_shown_one_by_one() -> None:
    """Their number, ratios, noise and turns."""
    text = shown(recorded.slower_by_pairs(), replace(FACTS, relative_sd=0.00072, stored=None))
    assert "pairs           8 against origin/main (4f2c1ab), 30 quads each, 3.7 s of turns" in text
    assert "+1.36 +1.38 +1.35 +1.50 +1.45 +1.56 +1.39 +1.44 %" in text
    assert "0.072 % per pair" in text


def test_what_would_decide_is_shown_where_nothing_is_decided() -> None:
    """Each way with its seconds and its commands; one whose seconds are not known says so; and only for UNDECIDED."""
    options = (DecisionOption("9 processes", 20.4, ("cmd 1", "cmd 2")), DecisionOption("8 pairs", None, ("cmd 3",)))
    facts = replace(FACTS, options=options, undecidable="No number would.", counted="Counted so.")
    text = shown(recorded.undecided(), facts)
    part = text.partition("What would decide it\n")[2].partition("\n\n")[0].splitlines()
    assert part[:4] == ["  No number would.", "  9 processes: about 20 s", "    cmd 1", "    cmd 2"]
    assert part[4].startswith("  8 pairs: its duration is not known")
    assert part[-1] == "  Counted so."
    assert "What would decide it" not in shown(recorded.same(), facts)


@pytest.mark.parametrize("width", [40, 80, 132])
def test_no_line_is_wider_than_asked_but_commands(width: int) -> None:
    """A command or an id is never broken, so that it can be copied; everything else is wrapped."""
    for case in (recorded.slower(), recorded.slower_by_pairs(), recorded.undecided()):
        wide = [line for line in shown(case, width=width).splitlines() if len(line) > width]
        wide = [line for line in wide if " " in line.strip()]
        assert all(line.startswith(("    pytest ", "    attnperf ", "    @pytest.mark")) for line in wide), wide


def test_nothing_of_a_file_reaches_the_terminal() -> None:
    """Escape sequences in every text of a case, of a kernel and of the run are gone; colours are our own."""
    bad = "x\x1b[31m\x07\u202e"
    case = replace(
        recorded.slower(), nodeid=bad, summary=bad, notes=(bad,),
        reasons=(bad, Note(NoteKind.NOISE, bad), Note(NoteKind.CANARY, bad), Note(NoteKind.OTHER_PATH, bad, bad)),
        key=CaseKey(bad, bad, bad), log=f"{bad}\n{bad}", config={bad: bad}, launches=(Launch(bad),), against=bad,
        stored_commit=bad, stored_at=bad, floor_us=1.0, floor_bound=bad, quarantined=bad, sources={bad: bad},
        policy={"fail_on": [bad], "threshold_percent": bad}, reproduce=bad,
    )  # fmt: skip
    state = DeviceState({bad: bad, "power": "1"}, {bad: "2", "power": bad}, {bad: 1.0}, (bad,), (bad,))
    run = replace(recorded.run_of(case), device_state=state, command=bad, commit=bad, started=bad, mode=bad)
    facts = replace(FACTS, contradicted=(bad,), stored=Stored(bad, bad, (bad,), (bad,), (bad,), bad, bad))
    texts = [render_explanation(Told(replace(case, verdict=verdict), run, facts), width=80) for verdict in Verdict]
    code = CodeResult(CaseKey(bad, bad, bad), bad, Verdict.ERROR, bad, notes=(bad,), log=bad, compiler=bad)
    texts.append(render_code_explanation(code, run, bad, width=80))
    for text in texts:
        assert not any(character in text for character in "\x1b\x07\u202e")
    painted = render_explanation(Told(case, run, facts), width=80, ink=Ink.ansi())
    assert painted.startswith("\x1b[1;31mSLOWER\x1b[0m")


def test_values_are_plain_and_complete() -> None:
    """JSON of a case: the figures as numbers, every process of both looks."""
    case = recorded.slower()
    values = json.loads(json.dumps(build_case_values(Told(case, recorded.run_of(case), FACTS)), allow_nan=False))
    assert (values["verdict"], values["fails"], values["case"]) == ("SLOWER", True, str(case.key))
    assert values["figures"]["second_us"] == [process.median_us for process in case.second]
    assert values["figures"]["ratio"] == case.ratio
    assert [name for name, _ in values["inputs"]][:2] == ["proof", "policy"]


def test_cases_of_any_file_are_explained() -> None:
    """Two hundred drawn cases of every mixture of fields, in every width that matters."""
    run = sample_run(200)
    for case in run.cases:
        text = render_explanation(Told(case, run, Facts()), width=80)
        assert text.startswith(case.verdict.value)
        assert "None" not in text


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
    words = explain_case(Told(case, recorded.run_of(case), facts or Facts(share=0.0001)))
    return " ".join([*words.sentences, *(f"{step.why} {step.command}" for step in words.steps)])


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_words_even_of_an_empty_case(verdict: Verdict) -> None:
    """Three sentences at least and a command, whatever the file lacks."""
    case = replace(BASE, verdict=verdict)
    words = explain_case(Told(case, recorded.run_of(case), Facts()))
    assert set(BY_VERDICT) == set(Verdict)
    assert 3 <= len(words.sentences) <= 8
    assert any(step.command for step in words.steps)
    assert "None" not in " ".join(words.sentences)


def test_slower_names_its_figures_and_its_commands() -> None:
    """Both times, the interval, the limit, the chance, and what to type, with the commits of file and baseline."""
    case = recorded.slower()
    facts = Facts(source="r.json", share=0.01 / 120, tolerated=1.02, here=recorded.HERE)
    words = explain_case(Told(case, recorded.run_of(case), facts))
    text, commands = " ".join(words.sentences), [step.command for step in words.steps]
    for figure in ("5.3 % longer", "20.02 us now, 19.02 us then", "+3.4 % and +7.1 %", "+4.4 %", "0.0083 %"):
        assert figure in text, text
    node = "'suites/test_prefill.py::test_prefill[triton.flash-prefill-b4-s1024-h8-d64-f16-causal]'"
    assert commands[0] == f"pytest --attnperf --attnperf-against=4f2c1ab90d11 {node}"
    assert commands[1] == f"attnperf bisect 4f2c1ab90d11 8f7e9d6a1b2c {node}"
    look = commands.index(f"pytest --attnperf --attnperf-second-look=7 {node}")
    assert commands[look + 1] == f'attnperf baselines accept {case.key} --reason "..."'


def test_slower_by_enough_pairs_is_accepted_as_it_is() -> None:
    """Eight pairs are enough: no further look is asked for, nor pairs, which there are. Where nothing is stored, the
    time is recorded: there is no entry to accept it into."""
    case = replace(recorded.slower_by_pairs(), stored_us=(19.0,) * 7)
    words = explain_case(Told(case, recorded.run_of(case), Facts(source="r.json")))
    commands = [step.command for step in words.steps]
    assert f'attnperf baselines accept {case.key} --results r.json --reason "..."' in commands
    unstored = explain_case(Told(replace(case, stored_us=()), recorded.run_of(case), Facts()))
    assert not any(step.command.startswith("attnperf baselines") for step in unstored.steps)
    assert any(step.command.startswith("pytest --update-baselines") for step in unstored.steps)
    assert "in 8 pairs" in " ".join(words.sentences)
    assert not any("second-look" in command or "--attnperf-against" in command for command in commands)
    assert any(command.startswith("attnperf baselines accept ") for command in commands)


def test_incorrect_says_which_output_by_how_much_and_where() -> None:
    """Output, check, error over budget, the worst element, the box, and what planted keys mean."""
    text = said(Verdict.INCORRECT, checks=(NOT_TIMED,), reproduce="pytest --attnperf-seed=41 x")
    for part in (
        "Output 'out' of the check 'replay' has a maximum error of 0.5, allowed is 0.01: 50 times its budget",
        "(100 times)",
        "The worst element is [0, 1, 2, 3]: got 7.25, expected 0.4.",
        "3 of 64 elements exceed it, all in [0, 1, 0:4, 0:8]",
        "planted keys",
        "pytest --attnperf-seed=41 x",
    ):
        assert part in text, text


@pytest.mark.parametrize(
    ("verdict", "fields", "part"),
    [
        (Verdict.SLOWER, {"notes": (note(NoteKind.UNCHANGED),)}, "not what changed"),
        (Verdict.SLOWER, {"notes": (note(NoteKind.CHANGED),)}, "look there first"),
        (Verdict.SLOWER, {"notes": (note(NoteKind.CHANGED_SIDE),)}, "look there first"),
        (
            Verdict.SLOWER,
            {"pairs": recorded.slower_by_pairs().pairs, "notes": (note(NoteKind.RELEASES, "rocm: 6 -> 7"),)},
            "it may be the toolchain, which is not that of : rocm: 6 -> 7.",
        ),
        (Verdict.SLOWER, {"launches": (Launch("k"),)}, "a library's kernels do not show it"),
        (
            Verdict.SLOWER,
            {"reasons": (note(NoteKind.OTHER_PATH, "path: ck here"),)},
            "took another path: path: ck here",
        ),
        (Verdict.UNDECIDED, {"reasons": (note(NoteKind.BUDGET),)}, "Nothing is proven"),
        (Verdict.ENVIRONMENT, {"reasons": (note(NoteKind.TOOLCHAIN, "driver: 1 -> 2"),)}, "with: driver: 1 -> 2."),
        (Verdict.ENVIRONMENT, {"reasons": (note(NoteKind.CANARY),)}, "So the machine changed"),
        (Verdict.MOVED, {"ratio": 1.1}, "So the machine changed: another GPU"),
        (
            Verdict.DRIFT,
            {"reasons": (note(NoteKind.PINNED, "a: 1 here"),)},
            "an autotuner chose another configuration: a: 1 here.",
        ),
        (Verdict.STALE, {}, "the slowdown came before this change"),
        (Verdict.UNDECIDED, {"ratio": 1.1}, "before the noise is known"),
        (Verdict.RIGHT, {"unchanged": True}, "its machine code, launches and configuration"),
        (Verdict.RECORDED, {"ratio": 1.05}, "+5.0 % against what was stored before"),
        (Verdict.RECORDED, {"ratio": None}, "stored, the first of its case"),
        (Verdict.RECORDED, {"ratio": None, "reasons": ("method: 2 here, 1 stored",)}, "a time that cannot be compared"),
        (Verdict.UNSUPPORTED, {"reasons": ("no fp8 here",)}, "no fp8 here"),
        (Verdict.UNSUPPORTED, {"fails": True}, "must not disappear"),
        (Verdict.SUSPICIOUS, {"reasons": (note(NoteKind.BELOW_FLOOR),)}, "less time than the device needs"),
        (Verdict.SUSPICIOUS, {"reasons": (note(NoteKind.REMEMBERS),)}, "a cached result"),
        (Verdict.SUSPICIOUS, {"reasons": (note(NoteKind.NO_STORE),)}, "has no store instruction"),
        (Verdict.SUSPICIOUS, {"reasons": (note(NoteKind.NO_MATRIX),)}, "a fallback was compiled"),
        (Verdict.ERROR, {"reasons": (note(NoteKind.NO_ANSWER),)}, "pytest --attnperf-warm"),
        (Verdict.ERROR, {"reasons": (note(NoteKind.OUT_OF_MEMORY),)}, "ran out of memory"),
        (Verdict.ERROR, {"fault": Fault("out of memory")}, "ran out of memory"),
        (Verdict.ERROR, {"reasons": (note(NoteKind.DIED),)}, "ended without an answer"),
        (Verdict.ERROR, {"reasons": (note(NoteKind.KILLED),)}, "ended without an answer"),
        (Verdict.ERROR, {"reasons": (note(NoteKind.CONTRADICTED),)}, "contradicts itself"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.FOREIGN),)}, "of another tree were loaded"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.OTHER_PRODUCT),)}, "of another product"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.OTHER_PATH),)}, "dispatcher took another path"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.MIXED_PATHS),)}, "took different paths"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.WORKLOAD),)}, "layout or count of bytes has the same id"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.PROCESSES),)}, "too few processes"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.BASE_SIDE),)}, "has no time to compare this one with"),
        (Verdict.INCOMPARABLE, {"reasons": (note(NoteKind.MACHINE),)}, "on a machine, or by a method"),
        (Verdict.NO_BASELINE, {"median_us": 12.5}, "12.50 us"),
        (Verdict.NO_BASELINE, {"new": True, "against": "main"}, "main does not have the case"),
        (Verdict.UNSUPPORTED, {"skipped": "no fp8"}, "skips it: no fp8"),
        (Verdict.UNSUPPORTED, {"skipped": "no fp8", "fails": True}, "A skipped case does not pass"),
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
    text = said(Verdict.SAME, Facts(contradicted=("its change is stated as 0 %",)))
    assert text.startswith("This file contradicts itself, so believe none of it: its change is stated as 0 %.")


def test_names_from_a_file_are_quoted_for_a_shell() -> None:
    """A node id with a quote, a space and an escape sequence is one word without the escape."""
    hostile = "t.py::t['$(rm x)' \x1b[2J]"
    text = said(Verdict.SLOWER, nodeid=hostile, stored_commit="--upload-pack=x", against="$(boom) side")
    assert "\x1b" not in text
    assert "upload-pack" not in text
    assert "boom" not in text.partition("What to do next")[2].partition("How it was decided")[0]
    assert """'t.py::t['"'"'$(rm x)'"'"'  [2J]'""" in text
