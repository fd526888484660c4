"""The whole explanation: what stands in which part, how wide it is, and that nothing of a file reaches a terminal."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_attnperf.records import CaseKey, DeviceState, Launch, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.reports.explain.facts import Facts, Option, Stored, Told
from pytest_attnperf.reports.explain.page import as_values, code_explanation, explanation
from pytest_attnperf.reports.text.colour import Ink
from pytest_attnperf.results import CaseResult
from pytest_attnperf.testing.sample_runs import sample_run
from tests import recorded_cases as recorded

FACTS = Facts(
    cases=120, tolerated=1.026, relative_sd=0.0099, z=5.08, share=0.01 / 120,
    stored=Stored("b.json", launches=("runs k2, which it did not",), config=("BLOCK_M: 64 here, 128 stored",),
                  toolchain=("driver: 2 here, 1 stored",), canary="the canary did not move (gemm +0.1 %)"),
)  # fmt: skip


def shown(case: CaseResult, facts: Facts = FACTS, width: int = 80) -> str:
    """The text of a case in a run of its own."""
    return explanation(Told(case, recorded.run_of(case), facts), width=width)


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
        "SLOWER          beyond +4.43 %: from there on its whole interval is",
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


def test_pairs_are_shown_one_by_one() -> None:
    """Their number, ratios, noise and turns."""
    text = shown(recorded.slower_by_pairs(), replace(FACTS, relative_sd=0.00072, stored=None))
    assert "pairs           8 against origin/main (4f2c1ab), 30 quads each, 3.7 s of turns" in text
    assert "+1.36 +1.38 +1.35 +1.50 +1.45 +1.56 +1.39 +1.44 %" in text
    assert "0.072 % per pair" in text


def test_what_would_decide_is_shown_where_nothing_is_decided() -> None:
    """Each way with its seconds and its commands; one whose seconds are not known says so; and only for UNDECIDED."""
    options = (Option("9 processes", 20.4, ("cmd 1", "cmd 2")), Option("8 pairs", None, ("cmd 3",)))
    facts = replace(FACTS, options=options, undecidable="No number would.", counted="Counted so.")
    text = shown(recorded.undecided(), facts)
    part = text.partition("What would decide it\n")[2].partition("\n\n")[0].splitlines()
    assert part[:4] == ["  No number would.", "  9 processes: about 20 s", "    cmd 1", "    cmd 2"]
    assert part[4].startswith("  8 pairs: how long it takes is not known")
    assert part[-1] == "  Counted so."
    assert "What would decide it" not in shown(recorded.same(), facts)


@pytest.mark.parametrize("width", [40, 80, 132])
def test_no_line_is_wider_than_asked_but_commands(width: int) -> None:
    """A command is never broken, so that it can be copied; everything else is wrapped."""
    for case in (recorded.slower(), recorded.slower_by_pairs(), recorded.undecided()):
        wide = [line for line in shown(case, width=width).splitlines() if len(line) > width]
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
    texts = [explanation(Told(replace(case, verdict=verdict), run, facts), width=80) for verdict in Verdict]
    code = CodeResult(CaseKey(bad, bad, bad), bad, Verdict.ERROR, bad, notes=(bad,), log=bad, compiler=bad)
    texts.append(code_explanation(code, run, bad, width=80))
    for text in texts:
        assert not any(character in text for character in "\x1b\x07\u202e")
    painted = explanation(Told(case, run, facts), width=80, ink=Ink.ansi())
    assert painted.startswith("\x1b[1;31mSLOWER\x1b[0m")


def test_values_are_plain_and_complete() -> None:
    """JSON of a case: the figures as numbers, every process of both looks."""
    case = recorded.slower()
    values = json.loads(json.dumps(as_values(Told(case, recorded.run_of(case), FACTS)), allow_nan=False))
    assert (values["verdict"], values["fails"], values["case"]) == ("SLOWER", True, str(case.key))
    assert values["figures"]["second_us"] == [process.median_us for process in case.second]
    assert values["figures"]["ratio"] == case.ratio
    assert [name for name, _ in values["inputs"]][:2] == ["proof", "policy"]


def test_cases_of_any_file_are_explained() -> None:
    """Two hundred drawn cases of every mixture of fields, in every width that matters."""
    run = sample_run(200)
    for case in run.cases:
        text = explanation(Told(case, run, Facts()), width=80)
        assert text.startswith(case.verdict.value)
        assert "None" not in text
