"""A run within a budget, over the in-memory pool, by a clock that every look turns."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.baselines.writing import merge_entries, new_entry
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Verdict
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session import looking
from pytest_attnperf.session.case_judge import Session
from pytest_attnperf.session.rejudge.timed_cases import RejudgeSettings, rejudge_run
from pytest_attnperf.session.settings import Case, RunMode, RunSettings
from pytest_attnperf.session.time_budget import Budget
from pytest_attnperf.workers.conversation import Conversation, OpenRequest
from tests.session.conftest import CASE, FakePool

if TYPE_CHECKING:
    from tests.session.conftest import Bench

LOOK_S = 10.0
BEGAN = 1000.0


@dataclass
class TimedPool(FakePool):
    """Every look takes 10 s of the test's clock, or what `seconds` says of its place; `scripts` by backend.

    The user interrupts the run with the first look after `interrupt_after` of them.
    """

    now: float = BEGAN
    seconds: dict[int, float] = field(default_factory=dict)
    scripts: dict[str, dict[str, Any]] = field(default_factory=dict)
    served: list[tuple[int, str]] = field(default_factory=list)
    interrupt_after: int = 1000

    @contextlib.contextmanager
    def case_at(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """The case of the request's backend."""
        self.now += self.seconds.get(place, LOOK_S)
        if len(self.served) >= self.interrupt_after:
            raise KeyboardInterrupt
        self.served.append((place, request.key.backend))
        self.common = {"time_us": 100.0, **self.scripts.get(request.key.backend, {})}
        with super().case_at(place, request) as conversation:
            yield conversation


class Timed:
    """Four cases stored at 100 us, judged within a budget."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.pool = TimedPool()
        self.cases = [replace(CASE, key=replace(CASE.key, backend=f"fake.{name}")) for name in "abcd"]
        self.said: list[str] = []
        self.pool.cases = tuple(case.key for case in self.cases)
        settings = RunSettings(RunMode.UPDATE, cases=1, seed=41)
        for case in self.cases:
            stored = Session(looking.RunBench(settings, self.pool, bench.store, bench.local)).judge(case)
            entry = {case.key.entry: new_entry(stored, "c0")}
            merge_entries(bench.store, bench.store.roots[0], "fake", "fake1", "prefill", entry)
        self.pool.served.clear()
        self.pool.now = BEGAN

    def spend(self, seconds: float, cases: list[Case] | None = None, **scripts: dict[str, Any]) -> Budget:
        """The budget once it is spent, or interrupted; `scripts` by the last letter of a backend."""
        self.pool.scripts = {f"fake.{name}": script for name, script in scripts.items()}
        settings = RunSettings(RunMode.GATE, cases=4, seed=41, budget_seconds=seconds)
        pool, bench = self.pool, self.bench
        given = (settings, pool, bench.store, bench.local)
        looks = looking.RunBench(*given, against=bench.against, clock=lambda: pool.now)
        budget = Budget(Session(looks), seconds, cases or self.cases, pool.now, self.said.append)
        with contextlib.suppress(KeyboardInterrupt):
            budget.spend_all()
        return budget

    def rejudged(self, budget: Budget) -> dict[str, CaseResult]:
        """What `attnperf gate` makes of the run's results file, by the last letter of a backend."""
        cases, device = tuple(budget.results.values()), self.pool.wait_until_ready(0).device
        begun = (RESULTS_SCHEMA, "0", "gate", "2026-01-01", "pytest", "c1")
        run = RunResult(*begun, device, None, cases, selected=len(cases))
        judged = rejudge_run(run, BaselineStore(self.bench.store.roots[0]), RejudgeSettings()).cases
        return {case.key.backend[-1]: case for case in judged}


@pytest.fixture
def timed(bench: Bench) -> Timed:
    """Nothing has been judged."""
    return Timed(bench)


def verdicts(budget: Budget) -> str:
    """First letters, in the order of the cases: S of SAME, L of SLOWER, U of UNDECIDED, E of ERROR."""
    letters = {Verdict.SAME: "S", Verdict.SLOWER: "L", Verdict.UNDECIDED: "U", Verdict.ERROR: "E"}
    return "".join(letters[budget.results[case.key].verdict] for case in budget.cases)


SLOW, SLOWER = {"time_us": 103.0}, {"time_us": 112.0}
CLOSE = Policy(threshold_percent=0.1, floor_us=0.0)
"""Of a case that is allowed less than noise makes."""


def test_time_enough(timed: Timed) -> None:
    """Every case has its first look before any has a second one; the least decided suspect comes first, with more."""
    timed.cases[2] = replace(timed.cases[2], policy=CLOSE)
    budget = timed.spend(1000.0, b=SLOWER, c={"time_us": 101.0})
    assert verdicts(budget) == "SLLS"
    clear, close = (budget.results[timed.cases[index].key] for index in (1, 2))
    served = [name[-1] for _, name in timed.pool.served]
    assert served == ["a", "b", "c", "d", *"c" * len(close.second), *"b" * len(clear.second)]
    assert (len(clear.second), len(close.second)) == (3, 4)
    assert clear.seconds == pytest.approx(4 * LOOK_S)
    assert budget.describe_spending()[0].startswith("budget 17 min, ")
    assert "first looks of 4 cases 40 s, 2 suspects got 3 to 4 processes each" in budget.describe_spending()[0]
    assert timed.said[3] == "first looks 4 of 4, 16 min of the budget left"
    assert timed.said[-1].startswith("second looks 2 of 2, ")


def test_no_time_for_a_second_look(timed: Timed) -> None:
    """What first looks settle is final; a suspect without a second look is UNDECIDED, with what its first look saw."""
    budget = timed.spend(45.0, b=SLOWER)
    assert verdicts(budget) == "SUSS"
    result = budget.results[timed.cases[1].key]
    assert result.summary == "the budget of 45 s ended before its second look"
    assert result.reasons[1].startswith("the first look saw +1")
    assert (result.fails, result.second, result.ratio) == (False, (), None)
    assert budget.describe_spending() == (
        "budget 45 s, 40 s spent: first looks of 4 cases 40 s, 1 suspect got no second look",
    )


def test_no_time_for_every_first_look(timed: Timed) -> None:
    """A case that was not reached is UNDECIDED: it is not proven right, and not called the same."""
    budget = timed.spend(15.0)
    assert verdicts(budget) == "SSUU"
    last = budget.results[timed.cases[3].key]
    assert last.summary == "the budget of 15 s ended before the case was measured: nothing is proven"
    assert (last.checks, last.first) == ((), ())
    assert budget.describe_spending()[0].endswith("first looks of 2 cases 20 s, 2 cases not measured")


def test_an_interrupted_run_keeps_what_it_saw(timed: Timed) -> None:
    """Where the user ends the run, in first looks or in second ones, what was decided stands, a suspect that was not
    is UNDECIDED with what its first look saw, and a case that was not looked at has no result."""
    timed.pool.interrupt_after = 3
    early = timed.spend(1000.0, b=SLOWER)
    assert {key.backend[-1]: result.verdict.value for key, result in early.results.items()} == {
        "a": "SAME", "b": "UNDECIDED", "c": "SAME",
    }  # fmt: skip
    suspect = early.results[timed.cases[1].key]
    assert suspect.summary == "the run was interrupted before its second look was done"
    assert suspect.reasons[1].startswith("the first look saw +1")
    assert early.describe_spending()[0].endswith("of 3 cases 30 s, 1 suspect got no second look, 1 case not measured")
    timed.pool.served.clear()
    timed.pool.interrupt_after = 6
    assert verdicts(timed.spend(1000.0, b=SLOWER)) == "SUSS"


def test_a_budget_run_judged_again(timed: Timed) -> None:
    """`attnperf gate` leaves a case that the run has not come to UNDECIDED, which is no error and no pass; a suspect
    without the second look that a run without a budget takes fails, as ever."""
    budget = timed.spend(25.0, a=SLOWER, b={"time_us": 100.02}, c={"time_us": 100.02})
    again = timed.rejudged(budget)
    verdicts_there = {name: (case.verdict.value, case.fails) for name, case in again.items()}
    assert verdicts_there == {
        "a": ("UNDECIDED", True), "b": ("SAME", False), "c": ("SAME", False), "d": ("UNDECIDED", False),
    }  # fmt: skip
    assert again["d"].summary.endswith("the run's budget ended before it was measured, so nothing is proven")


def test_a_sample_that_the_clock_cuts(timed: Timed) -> None:
    """Second looks that take longer than the first end with the unit that is under way: enough of them decide, fewer
    leave the case UNDECIDED, and the cases behind it get none."""
    timed.pool.seconds = {1: 50.0, 2: 50.0}
    budget = timed.spend(120.0, a=SLOWER, b=SLOW)
    assert verdicts(budget) == "UUSS"
    cut = budget.results[timed.cases[1].key].summary
    assert cut == "the budget of 2 min ended within its second look, after 2 of the at least 3 that it needs"
    assert timed.pool.now == BEGAN + 40 + 50 + 50


def test_a_cut_sample_that_is_large_enough_decides(timed: Timed) -> None:
    """A close case is planned many processes, of which the usual number is started at once; where the clock ends them,
    those that it has, which are the usual number at least, are judged by the limit of their number."""
    close = replace(timed.cases[0], policy=CLOSE)
    timed.pool.started.clear()
    planned = len(timed.spend(1000.0, [close], a={"time_us": 100.6}).results[close.key].second)
    assert planned > 5
    assert max(timed.pool.started) == 3
    timed.pool.now = BEGAN
    timed.pool.seconds = {5: 2000.0}
    cut = timed.spend(1000.0, [close], a={"time_us": 100.6}).results[close.key]
    assert (len(cut.second), len(cut.canary["gemm"])) == (5, 5)
    assert any("7 stored and 5 new" in reason for reason in cut.reasons)


@pytest.mark.parametrize("seed", range(5))
def test_the_budget_is_kept_within_one_unit(timed: Timed, seed: int) -> None:
    """Whatever looks take, the run is late by no more than the look that was under way; no case is lost, and what is
    SAME or SLOWER is so in whatever order the cases come."""
    draw = random.Random(seed)
    timed.pool.seconds = {place: draw.uniform(1, 60) for place in range(30)}
    seconds = draw.uniform(20, 400)
    scripts = {name: {"time_us": draw.choice((100.0, 103.0, 112.0))} for name in "abcd"}
    budget = timed.spend(seconds, **scripts)
    assert timed.pool.now - BEGAN <= seconds + 60.0
    assert set(budget.results) == {case.key for case in timed.cases}
    timed.pool.now = BEGAN
    other = timed.spend(10_000.0, timed.cases[::-1], **scripts)
    settled = {Verdict.SAME, Verdict.SLOWER}
    for key, result in budget.results.items():
        if result.verdict in settled and other.results[key].verdict in settled:
            assert result.verdict is other.results[key].verdict


def test_pairs_are_planned_too(timed: Timed) -> None:
    """With a base side, suspects get pairs: as many as usual at least, more where the noise of processes asks for them;
    the usual number is started at once. The clock ends pairs, too."""
    against = timed.bench.against_base()
    timed.bench.base.cases = tuple(case.key for case in timed.cases)
    budget = timed.spend(3000.0, b=SLOW)
    result = budget.results[timed.cases[1].key]
    assert (result.verdict, result.against) == (Verdict.SLOWER, against.label)
    assert len(result.pairs) == 3
    assert "1 suspect got 3 pairs" in budget.describe_spending()[0]
    close = replace(timed.cases[0], policy=CLOSE)
    assert len(timed.spend(3000.0, [close], a={"time_us": 100.6}).results[close.key].pairs) > 3
    assert max(timed.bench.base.started) == 1002
    timed.pool.seconds = {1000: 5000.0}
    cut = timed.spend(3000.0, b=SLOW).results[timed.cases[1].key]
    assert (cut.verdict, cut.pairs) == (Verdict.UNDECIDED, ())
    assert "after 1 of the at least 3 that it needs" in cut.summary


def test_a_base_side_without_the_case_spends_by_the_clock(timed: Timed) -> None:
    """Where the base side cannot run a suspect, fresh processes settle it, which the clock ends like any others."""
    timed.bench.against_base(supported=["not there"])
    timed.bench.base.cases = tuple(case.key for case in timed.cases)
    result = timed.spend(1000.0, b=SLOWER).results[timed.cases[1].key]
    assert (result.verdict, len(result.second), result.pairs) == (Verdict.SLOWER, 3, ())
    timed.pool.seconds = {1: 5000.0}
    cut = timed.spend(1000.0, b=SLOWER).results[timed.cases[1].key]
    assert cut.summary.endswith("ended within its second look, after 1 of the at least 3 that it needs")


def test_nothing_stored_and_pairs(timed: Timed) -> None:
    """A case without a baseline is settled by the usual pairs; without a base side it is NO_BASELINE at once."""
    new = replace(CASE, key=replace(CASE.key, backend="fake.new"))
    assert timed.spend(1000.0, [new]).results[new.key].verdict is Verdict.NO_BASELINE
    timed.bench.against_base()
    timed.bench.base.cases = (new.key,)
    result = timed.spend(1000.0, [new]).results[new.key]
    assert (result.verdict, len(result.pairs)) == (Verdict.SAME, 3)


def test_half_of_the_pairs_decide_within_a_budget_too(timed: Timed) -> None:
    """Four of eight pairs that show SAME are not taken for a sample that the clock has cut."""
    new = replace(CASE, key=replace(CASE.key, backend="fake.new"))
    against = timed.bench.against_base()
    against.plan = replace(against.plan, pairs=8)
    timed.bench.base.cases = (new.key,)
    result = timed.spend(1000.0, [new]).results[new.key]
    assert (result.verdict, len(result.pairs)) == (Verdict.SAME, 4)


def test_what_breaks_is_an_error_of_its_case(timed: Timed) -> None:
    """A case that breaks in its first or in its second look is an ERROR; the others are judged as ever."""
    timed.pool.by_place[1] = {"error": CaseFailedError("scripted")}
    budget = timed.spend(1000.0, a={"error": CaseFailedError("scripted")}, b=SLOWER)
    assert verdicts(budget) == "EESS"
    assert budget.results[timed.cases[1].key].fails
