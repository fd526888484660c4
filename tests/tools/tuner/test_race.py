from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from pytest_attnperf.errors import CaseFailedError, UsageError, WorkerError
from pytest_attnperf.testing.fake.bench import FakeBench
from pytest_attnperf.tools.tuner.job import RACE_TRIALS_MAX, choose_strategy, search_candidates
from pytest_attnperf.tools.tuner.trial_bench import TrialBench
from pytest_attnperf.tools.tuner.tuner_journal import TrialJournal
from pytest_attnperf.tools.tuner.tuner_settings import SearchResult, TuneSearchSettings
from pytest_attnperf.tuning_records import Candidate

Times = Callable[[Candidate, str], float]
Run = Callable[..., SearchResult]


def names(result: SearchResult) -> list[str]:
    """Ids in ranked order."""
    return [candidate.id for candidate, _ in result.ranking]


def test_the_best_wins_and_clear_losers_are_dropped_early(steep: Times, run_search: Run) -> None:
    """With the known noise the planted best comes first, and what is 16 % slower is timed in one process only."""
    bench: TrialBench = FakeBench(steep, process_sd=0.0055, shared_sd=0.01)
    result = run_search(bench, strategy="race")
    assert names(result)[0] == "BLOCK=3"
    assert result.ranking[0][1] == pytest.approx(1.04**-4, abs=0.02)
    assert {trial.process for trial in result.trials if trial.candidate.id == "BLOCK=7"} >= {0, 1}
    dropped = {item.candidate.id: item.reason for item in result.excluded}
    assert dropped["BLOCK=6"].startswith("beaten: ")
    assert "slower than the leader over 1 process(es), beyond the" in dropped["BLOCK=6"]
    assert "BLOCK=7" not in dropped, "the default is never pruned"


def test_a_far_off_candidate_is_not_timed_on_every_workload(run_search: Run) -> None:
    """Three times slower on the first workload: the other three would have to be 1.3 times faster each."""
    result = run_search(FakeBench(lambda c, w: 300.0 if c.values["BLOCK"] == 0 else 100.0), strategy="race")
    assert sum(trial.candidate.id == "BLOCK=0" for trial in result.trials) == 1
    (reason,) = [item.reason for item in result.excluded if item.candidate.id == "BLOCK=0"]
    assert reason == "far off: 200.0 % slower than the leader on seq=512"


def test_a_candidate_that_makes_up_for_a_bad_first_workload_is_kept(run_search: Run) -> None:
    """1.8 times slower on the first and 1.25 times faster on the others is the best of all, and wins."""

    def times(candidate: Candidate, workload: str) -> float:
        if candidate.values["BLOCK"] != 2:
            return 100.0
        return 180.0 if workload == "seq=512" else 80.0

    result = run_search(FakeBench(times), strategy="race")
    assert result.ranking[0] == (Candidate({"BLOCK": 2}), pytest.approx((1.8 * 0.8**3) ** 0.25))


def test_all_alike_ends_early(run_search: Run) -> None:
    """Candidates within half a percent are not told apart by more processes."""
    result = run_search(FakeBench(lambda c, w: 100.0), strategy="race", processes=9)
    assert {trial.process for trial in result.trials} == {0, 1}
    assert "the race ended: the 8 candidates left are within 0.5%" in result.notes


def test_a_drift_within_a_process_does_not_choose_the_winner(run_search: Run) -> None:
    """Every trial 0.5 % slower than the one before: the best 4 % are still found, by the default around them."""

    def times(candidate: Candidate, workload: str) -> float:
        return 96.0 if candidate.values["BLOCK"] == 30 else 100.0

    for seed in range(3):
        result = run_search(FakeBench(times, drift=0.005), 40, strategy="race", seed=seed, processes=3)
        assert names(result)[0] == "BLOCK=30"


def test_wrong_and_failed_candidates_are_excluded_with_their_text(steep: Times, run_search: Run) -> None:
    """A wrong result counts at once, as does a failure that leaves its worker alive; both are named."""
    failures = {"BLOCK=3": "wrong: out differs by 4 budgets", "BLOCK=2@seq=1024": "out of resource: shared memory"}
    result = run_search(FakeBench(steep, failures=failures), strategy="race")
    found = {(item.candidate.id, item.stage): item.reason for item in result.excluded}
    assert found["BLOCK=3", "wrong"] == "wrong: out differs by 4 budgets (on seq=512)"
    assert found["BLOCK=2", "failed"] == "out of resource: shared memory (on seq=1024)"
    assert names(result)[0] == "BLOCK=4"
    assert not {"BLOCK=2", "BLOCK=3"} & set(names(result))


def test_one_death_is_forgiven_in_another_process_and_two_are_not(steep: Times, run_search: Run) -> None:
    """The trial is repeated in a fresh process, with the default timed there; the second death excludes."""
    result = run_search(FakeBench(steep, deaths={"BLOCK=3": 1, "BLOCK=4": 9}), strategy="race")
    assert names(result)[0] == "BLOCK=3"
    assert [item.candidate.id for item in result.excluded if item.stage == "failed"] == ["BLOCK=4"]
    for trial in result.trials:
        same = [t for t in result.trials if (t.process, t.workload) == (trial.process, trial.workload)]
        assert trial.failure or any(t.candidate.id == "BLOCK=7" for t in same)


@pytest.mark.parametrize("time_us", [math.nan, math.inf, 0.0, -1.0])
def test_what_is_no_time_is_a_failure(time_us: float, run_search: Run) -> None:
    """A bench that gives a time that is none cannot make a candidate the best."""
    result = run_search(FakeBench(lambda c, w: time_us if c.values["BLOCK"] == 3 else 100.0), strategy="race")
    assert "BLOCK=3" not in names(result)
    assert any(item.reason.startswith(f"not a time: {time_us} us") for item in result.excluded)


def test_a_default_that_cannot_be_timed_ends_the_search(steep: Times, run_search: Run) -> None:
    """Nothing can be compared with it, and the failure is told."""
    with pytest.raises(CaseFailedError, match=r"the default BLOCK=7 failed twice on seq=512.*wrong: all of it"):
        run_search(FakeBench(steep, failures={"BLOCK=7": "wrong: all of it"}), strategy="race")


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_dead_bench_ends_the_search(steep: Times, run_search: Run, lanes: int) -> None:
    """WorkerError, when nothing can be measured any more, reaches the caller from every lane."""
    with pytest.raises(WorkerError, match="no worker can be started"):
        run_search(FakeBench(steep, lanes=lanes, dies_after=9), strategy="race")


def test_lanes_share_the_first_round_and_never_a_process(steep: Times, run_search: Run) -> None:
    """Three GPUs: each candidate is timed on one of them first, every process belongs to one lane, the best wins."""
    bench = FakeBench(steep, lanes=3, process_sd=0.004, shared_sd=0.02)
    result = run_search(bench, 12, strategy="race")
    assert names(result)[0] == "BLOCK=3"
    lanes = {process: {lane for lane, at, _, _ in bench.calls if at == process} for _, process, _, _ in bench.calls}
    assert all(len(found) == 1 for found in lanes.values())
    first = [call for call in bench.calls if call[1] in {0, 1, 2} and call[3] == "seq=512" and call[2] != "BLOCK=11"]
    assert len(first) == 11


def test_the_budget_ends_it_with_what_is_known(steep: Times, run_search: Run) -> None:
    """Out of time in the middle of a round: the round before decides, and a note says so."""
    result = run_search(FakeBench(steep, seconds=1.0), strategy="race", budget_s=30.0, processes=50)
    assert names(result)[0] == "BLOCK=3"
    assert "the race ended: the budget of 30 s is used up" in result.notes
    short = run_search(FakeBench(steep, seconds=1.0), strategy="race", budget_s=5.0)
    assert "8 of 8 candidates were not timed on every workload" in short.notes
    assert short.ranking == ()


def test_max_trials_is_kept(steep: Times, run_search: Run) -> None:
    """Not one trial more, the default's included."""
    result = run_search(FakeBench(steep), strategy="race", max_trials=20)
    assert len(result.trials) == 20
    assert "the race ended: 20 trials were made, as many as allowed" in result.notes


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"strategy": "grid"}, "strategy 'grid' is unknown; known: auto, race, optuna, exhaustive"),
        ({"budget_s": 0}, "budget is 0 s"),
        ({"budget_s": math.nan}, "budget is nan s"),
        ({"max_trials": 0}, "may make 0 trials"),
        ({"processes": 0}, "in 0 processes"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    settings: dict[str, object], text: str, steep: Times, run_search: Run
) -> None:
    """Each names what it saw."""
    with pytest.raises(UsageError, match=text):
        run_search(FakeBench(steep), **settings)


@pytest.mark.parametrize("lanes", [1, 4])
def test_every_candidate_is_timed_on_every_workload_once(steep: Times, run_search: Run, lanes: int) -> None:
    """One process a lane, no candidate given up, the ranking that of the true times."""
    bench = FakeBench(lambda c, w: 10 * steep(c, w) if c.values["BLOCK"] == 0 else steep(c, w), lanes=lanes)
    result = run_search(bench, 20, strategy="exhaustive", processes=1)
    timed = [(name, workload) for _, _, name, workload in bench.calls if name != "BLOCK=19"]
    assert len(timed) == len(set(timed)) == 19 * 4
    expected = sorted(range(20), key=lambda block: 10 * 1.04**3 if block == 0 else 1.04 ** abs(block - 3))
    found = [int(candidate.values["BLOCK"]) for candidate, _ in result.ranking]
    assert found[0] == 3
    assert {found[-1]} == {expected[-1]} == {0}


def test_finalists_are_timed_again_in_fresh_processes(run_search: Run) -> None:
    """What one pass ranks first by luck is not first over five fresh processes."""
    true = {f"BLOCK={at}": 100.0 for at in range(30)} | {"BLOCK=3": 97.0}
    wins = sum(
        run_search(FakeBench(true, process_sd=0.0055, seed=seed), 30, strategy="exhaustive").ranking[0][0].id
        == "BLOCK=3"
        for seed in range(10)
    )
    assert wins >= 9
    result = run_search(FakeBench(true, process_sd=0.0055), 30, strategy="exhaustive")
    assert 1 <= len(result.finalists) <= 5
    assert max(trial.process for trial in result.trials) >= 2


def test_the_budget_ends_the_pass_with_a_note(steep: Times, run_search: Run) -> None:
    """What was not timed on every workload is counted."""
    result = run_search(FakeBench(steep, seconds=1), 20, strategy="exhaustive", budget_s=50)
    assert "the pass over all candidates ended early: the budget of 50 s is used up" in result.notes
    assert "20 of 20 candidates were not timed on every workload" in result.notes


def test_auto_races_small_spaces_and_asks_optuna_for_large_ones(line: Callable[[int], object]) -> None:
    """The limit is declared in trials of one pass."""
    at_limit = [Candidate({"BLOCK": at}) for at in range(RACE_TRIALS_MAX // 4)]
    workloads = ["a", "b", "c", "d"]
    assert choose_strategy(at_limit, workloads, TuneSearchSettings()) == "race"
    assert choose_strategy([*at_limit, Candidate({"BLOCK": -1})], workloads, TuneSearchSettings()) == "optuna"
    assert choose_strategy(at_limit, workloads, TuneSearchSettings("exhaustive")) == "exhaustive"


@pytest.mark.parametrize(
    ("workloads", "count", "text"),
    [
        ([], 8, "needs at least one workload"),
        (["a", "a"], 8, "named twice: a, a"),
        (["a"], 1, "no candidate besides the default BLOCK=0"),
    ],
)
def test_nothing_to_search_is_refused(
    workloads: list[str], count: int, text: str, line: Callable[[int], object]
) -> None:
    """No workload, one twice, and a space that pruning emptied."""
    built = line(count)
    with pytest.raises(UsageError, match=text):
        search_candidates(built.space, built.candidates, workloads, FakeBench({}), TuneSearchSettings(), TrialJournal())  # type: ignore[attr-defined]
