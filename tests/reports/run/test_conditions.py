from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from pytest_attnperf.records import CaseKey, CheckReport, Verdict
from pytest_attnperf.records.gpus import DeviceState
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.records.trials import INVARIANCE, TrialEnding, TrialResult
from pytest_attnperf.reports.run.conditions import (
    condition_lines,
    cost_line,
    determinism_lines,
    interleaved_line,
    seconds_by_part,
    trial_lines,
)
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]


def test_everything_that_disturbed_is_said(run: RunFactory) -> None:
    """Other processes, throttling with its seconds, notes, and the readings worth a glance, a line each."""
    state = DeviceState(
        before={"sm_clock_mhz": "1980", "temperature_c": "41", "power_w": "110", "fan_percent": "30"},
        after={"sm_clock_mhz": "1830", "temperature_c": "66", "fan_percent": "60"},
        throttled_s={"thermal": 0.049, "power cap": 2.26, "hw slowdown": 0.1},
        other_processes=("4711 python", "4712 train\x1b[2J"),
        notes=("exclusive mode",),
    )
    assert condition_lines(run(device_state=state)) == [
        "another compute process was on the device: 4711 python",
        "another compute process was on the device: 4712 train [2J",
        "the device was throttled during the run: hw slowdown 0.1 s, power cap 2.3 s",
        "device: exclusive mode",
        "device before -> after: sm_clock_mhz 1980 -> 1830, temperature_c 41 -> 66",
    ]


def test_a_quiet_device_needs_no_line(run: RunFactory) -> None:
    """Nothing is said of a device that was not asked, of one that says nothing, and of a blink of throttling."""
    assert condition_lines(run(device_state=None)) == []
    assert condition_lines(run(device_state=DeviceState())) == []
    blink = DeviceState(before={"fan_percent": "30"}, after={"fan_percent": "60"}, throttled_s={"power cap": 0.04})
    assert condition_lines(run(device_state=blink)) == []


def test_what_pairs_took_is_one_line(case: CaseFactory, run: RunFactory) -> None:
    """Cases, pairs of each, seconds of turns and wall seconds; cases that were not interleaved do not count."""
    pairs = tuple(PairSummary(1.01, 100.0, 101.0, 8, "graph", seconds=seconds) for seconds in (1.5, 2.0))
    cases = (case(pairs=pairs, seconds=20.25), case("b", pairs=pairs[:1], seconds=10.0), case("c", seconds=99.0))
    assert interleaved_line(run(*cases, against="main\n(4f2c1ab)")) == (
        "2 cases settled by A B B A against main (4f2c1ab) in 2 pairs of fresh processes: 5.0 s of turns, 30.2 s in all"
    )
    assert interleaved_line(run(case(), against="main")) == ""


def case(backend: str, workload: str, *checks: CheckReport) -> CaseResult:
    """A case that passed with these checks."""
    return CaseResult(CaseKey("prefill", backend, workload), "nodeid", Verdict.SAME, "", checks=checks)


def run_of(*cases: CaseResult) -> RunResult:
    """A gating run."""
    return RunResult(RESULTS_SCHEMA, "0", "gate", "", "", "", None, None, cases)


CHECK = CheckReport(seconds=2.0, parts={"reference": 1.0, "call": 0.25})


def test_the_cost_is_said_with_its_largest_parts() -> None:
    """Seconds are added over cases, dearest part first; what no part claims is 'other'."""
    line = cost_line(run_of(case("a", "w1", CHECK), case("a", "w2", CHECK)))
    assert line == "proving 2 cases took 4.0 s: reference 2.0, other 1.5, call 0.5"
    assert cost_line(run_of(case("a", "w1", CHECK))).startswith("proving 1 case took 2.0 s")


def test_a_run_that_checked_nothing_has_no_cost() -> None:
    """Skipped cases cost nothing, and nothing is said."""
    assert cost_line(run_of(case("a", "w1"))) == ""


def test_parts_are_added() -> None:
    """By name, over all checks."""
    assert seconds_by_part([CHECK, CHECK]) == {"reference": 2.0, "call": 0.5, "other": 1.5}


def test_determinism_is_said_per_backend() -> None:
    """How many cases repeated their bits, and which did not; who was not asked is not mentioned."""
    equal, differing = replace(CHECK, repeats=5, bit_equal=True), replace(CHECK, repeats=5, bit_equal=False)
    cases = [case("a", "w1", equal), case("a", "w2", equal), case("b", "w1", equal, differing), case("c", "w1", CHECK)]
    assert determinism_lines(cases) == [
        "determinism: a gave the same bits in 5 calls in 2 of 2 cases",
        "determinism: b gave the same bits in 5 calls in 0 of 1 cases; not in w1",
    ]


def test_trials_are_said_where_one_did_not_end_right() -> None:
    """How many ended how, over all cases; who refused what. Nothing where all are right."""
    right = replace(CHECK, trials=(TrialResult("guards"),))
    refused = TrialResult("layouts", "sliced", TrialEnding.REFUSED, "ValueError: no\x1b[2J")
    left = TrialResult("layouts", "fused", TrialEnding.LEFT_OUT, "no input can lie that way")
    assert trial_lines([case("a", "w1", right), case("b", "w1", right)]) == []
    tried = replace(CHECK, trials=(refused, left, TrialResult("layouts", "far")))
    assert trial_lines([case("a", "w1", right, tried), case("a", "w2", tried)]) == [
        "layouts of 2 cases: 2 right, 2 refused, 2 left out; refused: a sliced (ValueError: no [2J)"
    ]
    many = [case(f"b{number}", "w1", tried) for number in range(5)]
    assert trial_lines(many)[0].endswith("b2 sliced (ValueError: no [2J) and 2 more")


def test_a_long_list_of_differing_cases_is_cut() -> None:
    """Three are named."""
    differing = replace(CHECK, repeats=2, bit_equal=False)
    (line,) = determinism_lines([case("a", f"w{number}", differing) for number in range(5)])
    assert line.endswith("in 0 of 5 cases; not in w0, w1, w2 and 2 more")


def in_process(bits: str, card: str = "") -> CheckReport:
    """The check of one process."""
    return replace(CHECK, repeats=5, bit_equal=True, bits=bits, card=card)


def test_bits_of_several_processes_are_compared() -> None:
    """With their number and that of their cards; of one process there is nothing to say."""
    cards = [in_process("a1", "gpu0"), in_process("a1", "gpu1"), in_process("a1", "gpu0")]
    by_card = [in_process("a1", "gpu0"), in_process("b2", "gpu1"), in_process("a1", "gpu0")]
    unlike = [in_process("a1"), in_process("b2")]
    cases = [case("a", "w1", *cards), case("a", "w2", *by_card), case("b", "w1", *unlike), case("c", "w1", cards[0])]
    assert determinism_lines(cases)[3:] == [
        "determinism: a gave the same bits in 3 processes on 2 cards in 1 of 2 cases; not in w2 (from card to card)",
        "determinism: b gave the same bits in 2 processes in 0 of 1 cases; not in w1",
    ]


def trial(variant: str, ulps: float | None = 0.0, why: str = "") -> TrialResult:
    """A result of the trial of invariance."""
    return TrialResult(INVARIANCE, variant, TrialEnding.LEFT_OUT if ulps is None else TrialEnding.RIGHT, why, ulps)


def tried(*trials: TrialResult) -> CheckReport:
    """A check with these trials."""
    return replace(CHECK, trials=trials)


def test_invariance_is_said_per_backend() -> None:
    """In how many cases all parts had the bits of the whole, by how much others differ, and what was not compared."""
    same, other = tried(trial("alone"), trial("half")), tried(trial("alone", 3.0), trial("half", 1.0), trial("chunk"))
    cases = [
        case("a", "w1", same),
        case("a", "w2", same),
        case("b", "w1", other),
        case("b", "w2\x1b[2J", tried(trial("alone"), trial("half", None, "too\nsmall"))),
        case("c", "w1", tried(trial("", None, "it has no rows"))),
        case("d", "w1", tried(TrialResult("guards"))),
        case("e", "w1", CHECK),
    ]
    assert determinism_lines(cases) == [
        "invariance: a gave the same bits in all parts of a batch in 2 of 2 cases",
        "invariance: b gave the same bits in all parts of a batch in 1 of 2 cases; not in w1 (within 3 ulp: alone, "
        "half); 1 part was not compared (half: too small)",
        "invariance: c was not tried; 1 part was not compared (it has no rows)",
    ]
