"""Cases that run what their baseline ran are not timed; every other one is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Fingerprint, Launch, Verdict
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.rejudge.timed_cases import RejudgeSettings, rejudge_run

LOOSENED = "policy loosened since the baseline:"

if TYPE_CHECKING:
    from tests.session.conftest import Bench

KERNELS = [{"name": "attention", "isa_hash": "a" * 40}, {"name": "combine", "isa_hash": "b" * 40, "calls": 2.0}]
RENAMED = [{**KERNELS[0], "name": "attention_v2"}, KERNELS[1]]
OTHER_CODE = [{**KERNELS[0], "isa_hash": "c" * 40}, KERNELS[1]]
OTHER_GRID = [{**KERNELS[0], "grid": (16, 1, 1)}, KERNELS[1]]
TWICE = [KERNELS[0], {**KERNELS[1], "calls": 3.0}]
UNKNOWN = [*KERNELS, {"name": "cublas"}]
CONFIG = {"BLOCK_M": "64"}
ONLY_CHANGED = {"changed_only": True}
ON_100_US = {"time_us": 100.02}


@pytest.fixture
def known(bench: Bench) -> Bench:
    """The case is stored with the machine code that it ran."""
    bench.record(kernels=KERNELS, config=CONFIG)
    return bench


def judge(bench: Bench, **scripted: Any) -> CaseResult:
    """The case, timed only if it has changed; twice as slow, so that a time that was taken shows."""
    script = {"kernels": KERNELS, "config": CONFIG, "time_us": 200.0, **scripted}
    return bench.judge(settings=ONLY_CHANGED, **script)


@pytest.mark.parametrize("kernels", [KERNELS, RENAMED, KERNELS[::-1]])
def test_the_same_machine_code_is_not_timed(known: Bench, kernels: list[dict[str, Any]]) -> None:
    """RIGHT, unchanged, proven twice, in one process and without a time, whatever the kernels are called."""
    result = judge(known, kernels=kernels)
    assert (result.verdict, result.unchanged, result.fails) == (Verdict.RIGHT, True, False)
    assert (result.first, result.median_us, known.pool.visited) == ((), None, [0])
    assert [figures.check for check in result.checks for figures in check.figures] == ["check", "final"]
    (found,) = known.store.load("fake", "fake1", "prefill").values()
    stored_at = found.entry.recorded
    assert result.summary == (
        f"unchanged: 2 kernels and configuration equal those of the baseline of {stored_at} (c0); not timed"
    )
    assert (result.stored_at, result.baseline_us) == (stored_at, pytest.approx(100, rel=0.01))


@pytest.mark.parametrize(
    "scripted",
    [{"kernels": OTHER_CODE}, {"kernels": OTHER_GRID}, {"kernels": TWICE}, {"kernels": UNKNOWN}, {"kernels": []},
     {"config": {"BLOCK_M": "128"}}, {"timer": "graph"}],
    ids=["other code", "other grid", "more calls", "unknown code", "nothing seen", "other config", "other timer"],
)  # fmt: skip
def test_whatever_differs_is_timed(known: Bench, scripted: dict[str, Any]) -> None:
    """Other machine code under the same name, another grid, count, configuration or timer, or code that is not known:
    the case is judged by its time, as without the option."""
    result = judge(known, **scripted)
    assert (result.unchanged, bool(result.first), result.median_us is not None) == (False, True, True)
    assert result.verdict is (Verdict.INCOMPARABLE if "timer" in scripted else Verdict.SLOWER)


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [("wrong", Verdict.INCORRECT), ("late", Verdict.INCORRECT), ("finish", Verdict.ERROR),
     ("unsupported", Verdict.UNSUPPORTED)],
)  # fmt: skip
def test_unchanged_code_must_still_be_right(known: Bench, fault: str, verdict: Verdict) -> None:
    """The baseline's machine code that is wrong now, from the first call or in the last, broken or not supported any
    more, fails at the look that would have called it unchanged, which is not repeated."""
    result = judge(known, fault=fault)
    assert (result.verdict, result.unchanged, result.fails) == (verdict, False, True)
    assert known.pool.visited == [0]


def test_another_toolchain_or_machine_is_not_opened_for_it(known: Bench) -> None:
    """Where the driver or the card has changed the case is timed at once, by one look: code is not all there is."""
    known.pool.machine = replace(known.pool.machine, named={"driver": "2"})
    assert judge(known, **ON_100_US).verdict is Verdict.SAME
    assert known.pool.visited == [0]
    known.pool.machine = Fingerprint({**known.pool.machine.must_match, "product": "other"}, {"driver": "1"})
    assert judge(known).verdict is Verdict.INCOMPARABLE
    assert known.pool.visited == [0]


def test_nothing_stored_or_nothing_known_there_is_timed_at_once(bench: Bench) -> None:
    """Without an entry, and beside one whose machine code is not known, no look is spent on it."""
    assert judge(bench).verdict is Verdict.NO_BASELINE
    assert bench.pool.visited == [0]
    bench.record(kernels=["cublas"])
    assert judge(bench, kernels=["cublas"], config={}, **ON_100_US).verdict is Verdict.SAME
    assert bench.pool.visited == [0]


def test_memory_that_only_this_look_lacks_is_no_error(known: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs at several places may not fit where the case does: it is timed. Any other failure is the case's own."""
    error = CaseFailedError("out of memory", out_of_memory=True)

    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr("pytest_attnperf.testing.fake.device.FakeSubject.prepare_turns", refused)
    assert judge(known, **ON_100_US).verdict is Verdict.SAME
    error.out_of_memory = False
    assert judge(known).verdict is Verdict.ERROR


def test_code_of_another_tree_and_a_loosened_policy_are_said(known: Bench) -> None:
    """Files of another tree are no unchanged case, whatever they compile to; a loosened policy is noted as ever."""
    assert judge(known, foreign=("module kernels.x was loaded from /elsewhere",)).verdict is Verdict.INCOMPARABLE
    loose = replace(known.case, policy=Policy(threshold_percent=5))
    script = {"kernels": KERNELS, "config": CONFIG, "time_us": 200.0}
    result = known.judge(case=loose, settings=ONLY_CHANGED, **script)
    assert result.unchanged
    assert result.notes == (f"{LOOSENED} threshold_percent 2 -> 5",)


def test_what_has_crept_is_said_without_a_time(known: Bench) -> None:
    """An entry that was recorded slower than its anchor allows is the same finding, timed or not, here and there."""
    known.record(kernels=KERNELS, config=CONFIG, time_us=110.0)
    case = judge(known)
    assert case.unchanged
    assert [note.startswith("crept: 110.0 us against ") for note in case.notes] == [True]
    assert "crept: " in _rejudged(known, case).findings[0]


def _rejudged(bench: Bench, case: CaseResult) -> RunResult:
    device = bench.pool.wait_until_ready(0).device
    run = RunResult(RESULTS_SCHEMA, "0", "gate", "", "", "c1", device, None, (case,), selected=1)
    return rejudge_run(run, BaselineStore(bench.store.roots[0]), RejudgeSettings())


def test_another_judge_believes_what_the_file_shows(known: Bench) -> None:
    """Launches, configuration, machine and toolchain of the file are those of the entry: unchanged, and gated so."""
    case = judge(known)
    again = _rejudged(known, replace(case, summary="forged", baseline_us=1.0))
    assert (again.gated, again.findings, again.cases[0].summary) == (1, (), case.summary)
    assert (again.cases[0].unchanged, again.cases[0].fails, again.cases[0].baseline_us) == (
        True, False, case.baseline_us
    )  # fmt: skip


LIES: dict[str, dict[str, Any]] = {
    "other code": {"launches": (Launch("attention", isa_hash="c" * 40),)},
    "no code": {"launches": ()},
    "config": {"config": {"BLOCK_M": "128"}},
    "toolchain": {"fingerprint": Fingerprint({"arch": "fake", "product": "fake1", "timer": "host"}, {"driver": "9"})},
    "nothing": {"fingerprint": None},
    "not said": {"unchanged": False},
}


@pytest.mark.parametrize("lie", list(LIES))
def test_a_file_that_only_says_unchanged_fails(known: Bench, lie: str) -> None:
    """Without a time, and with other code, configuration or toolchain than the entry's, a case has ceased to be
    timed."""
    case = replace(judge(known), **LIES[lie])
    (again,) = _rejudged(known, case).cases
    assert (again.verdict, again.unchanged, again.fails) == (Verdict.RIGHT, False, True)
    assert again.summary.startswith("not timed any more, but a baseline is stored in prefill.json")


def test_a_file_that_is_wrong_and_says_unchanged_is_incorrect(known: Bench) -> None:
    """Its checks are judged before anything it says of its code."""
    case = judge(known)
    figures = replace(case.checks[0].figures[0], max_error=1.0)
    forged = replace(case, checks=(replace(case.checks[0], figures=(figures,)),))
    assert _rejudged(known, forged).cases[0].verdict is Verdict.INCORRECT
