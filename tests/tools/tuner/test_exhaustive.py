from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.testing.fake.bench import FakeBench
from pytest_attnperf.tools.tuner.journal import Journal
from pytest_attnperf.tools.tuner.search import RACE_TRIALS_MAX, search, strategy_for
from pytest_attnperf.tools.tuner.settings import SearchResult, SearchSettings
from pytest_attnperf.tuning_records import Candidate

Run = Callable[..., SearchResult]
Times = Callable[[Candidate, str], float]


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
    assert "the pass over all candidates ended early: the budget of 50 s is spent" in result.notes
    assert "20 of 20 candidates were not timed on every workload" in result.notes


def test_auto_races_small_spaces_and_asks_optuna_for_large_ones(line: Callable[[int], object]) -> None:
    """The limit is declared in trials of one pass."""
    at_limit = [Candidate({"BLOCK": at}) for at in range(RACE_TRIALS_MAX // 4)]
    workloads = ["a", "b", "c", "d"]
    assert strategy_for(at_limit, workloads, SearchSettings()) == "race"
    assert strategy_for([*at_limit, Candidate({"BLOCK": -1})], workloads, SearchSettings()) == "optuna"
    assert strategy_for(at_limit, workloads, SearchSettings("exhaustive")) == "exhaustive"


@pytest.mark.parametrize(
    ("workloads", "count", "text"),
    [
        ([], 8, "needs at least one workload"),
        (["a", "a"], 8, "named twice: a, a"),
        (["a"], 1, "no candidate beside the default BLOCK=0"),
    ],
)
def test_nothing_to_search_is_refused(
    workloads: list[str], count: int, text: str, line: Callable[[int], object]
) -> None:
    """No workload, one twice, and a space that pruning emptied."""
    built = line(count)
    with pytest.raises(UsageError, match=text):
        search(built.space, built.candidates, workloads, FakeBench({}), SearchSettings(), Journal())  # type: ignore[attr-defined]
