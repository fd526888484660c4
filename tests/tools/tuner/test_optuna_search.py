from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.testing.fake.bench import FakeBench
from pytest_attnperf.tools.tuner.job import search_candidates
from pytest_attnperf.tools.tuner.tuner_journal import TrialJournal
from pytest_attnperf.tools.tuner.tuner_settings import SearchResult, TuneSearchSettings, list_candidates
from pytest_attnperf.tuning_records import Candidate, Constraint, TuningSpace

optuna = pytest.importorskip("optuna")

WORKLOADS = ("a", "b", "c", "d")
Run = Callable[..., SearchResult]
Times = Callable[[Candidate, str], float]
SPACE = TuningSpace(
    "flash",
    {"M": (16, 32, 64, 128), "N": (16, 32, 64, 128), "warps": (2, 4, 8), "preload": (False, True)},
    Candidate({"M": 128, "N": 128, "warps": 8, "preload": False}),
    (Constraint("N above M", lambda values: int(values["N"]) <= int(values["M"])),),
    (Candidate({}, "own autotuner"),),
)


def times(candidate: Candidate, workload: str) -> float:
    """Best at M=64, N=32, warps=4, preload; the library's own choice is mediocre."""
    v = candidate.values
    if candidate.label:
        return 130.0
    away = [(64, 32, 4, True)[at] == v[name] for at, name in enumerate(("M", "N", "warps", "preload"))]
    steps = abs(int(v["M"]) - 64) / 64 + abs(int(v["N"]) - 32) / 32
    return 100.0 * (1 + 0.2 * steps + 0.1 * (not away[2]) + 0.05 * (not away[3]))


def run(
    bench: FakeBench, journal: TrialJournal | None = None, space: TuningSpace = SPACE, **settings: Any
) -> SearchResult:
    """Search SPACE, or another."""
    return search_candidates(
        space,
        list_candidates(space)[0],
        WORKLOADS,
        bench,
        TuneSearchSettings("optuna", **settings),
        journal or TrialJournal(),
    )


LARGE = replace(
    SPACE, values={**SPACE.values, "waves": (0, 2)}, default=Candidate({**SPACE.default.values, "waves": 2})
)


@pytest.mark.parametrize("seed", range(2))
def test_a_quarter_of_the_trials_finds_the_planted_best(seed: int) -> None:
    """121 candidates on four workloads: within 3 % of the best in at most 121 trials, noise and finals included."""
    bench = FakeBench(times, process_sd=0.0055, seed=seed)
    result = run(bench, seed=seed, space=LARGE)
    assert len(bench.calls) == len(result.trials) <= len(list_candidates(LARGE)[0]) == 121
    assert times(result.ranking[0][0], "a") <= 103.0
    assert len({trial.candidate.id for trial in result.trials}) > 8


def test_only_valid_candidates_are_timed_and_each_once_before_the_finals() -> None:
    """Constraints are no business of Optuna's: what it proposes beside the valid list never reaches the bench."""
    valid = {candidate.id for candidate in list_candidates(SPACE)[0]}
    bench = FakeBench(times)
    run(bench)
    explored = [(name, work) for _, process, name, work in bench.calls if process == 0 and name != SPACE.default.id]
    assert {name for name, _ in explored} <= valid
    assert len(explored) == len(set(explored))
    assert any(name == "own autotuner:" for name, _ in explored)


def test_a_whole_space_is_searched_and_then_it_ends() -> None:
    """With more trials than there are candidates every one is tried, and none twice."""
    result = run(FakeBench(times), max_trials=5000, processes=1)
    count = len(list_candidates(SPACE)[0])
    assert result.notes[0] == f"{count} of {count} candidates were tried on {WORKLOADS[-1]}"
    assert result.ranking[0][0].id == "M=64,N=32,preload=True,warps=4"


def test_a_failing_region_is_left_out() -> None:
    """Whatever is wrong is excluded, and the best of the rest is found."""
    wrong = {c.id: "wrong: out" for c in list_candidates(SPACE)[0] if c.values.get("preload") is True}
    result = run(FakeBench(times, failures=wrong), max_trials=120)
    assert result.ranking[0][0].id == "M=64,N=32,preload=False,warps=4"
    assert {item.stage for item in result.excluded} <= {"wrong", "dropped"}


def test_the_seed_alone_decides_what_is_asked() -> None:
    """The same seed asks the same, another one asks otherwise, and nobody else's random numbers matter."""
    asked = []
    for seed in (1, 1, 2):
        random.seed(len(asked))
        bench = FakeBench(times)
        run(bench, seed=seed)
        asked.append([call[2] for call in bench.calls])
    assert asked[0] == asked[1] != asked[2]


def test_several_lanes_search_together() -> None:
    """Three GPUs evaluate three proposals at a time, each against the default on its own."""
    bench = FakeBench(times, lanes=3)
    result = run(bench, max_trials=90)
    assert {lane for lane, _, _, _ in bench.calls} == {0, 1, 2}
    assert times(result.ranking[0][0], "a") <= 110.0
    assert len(result.trials) <= 90


def test_a_torn_study_is_mended_and_a_broken_one_is_named(tmp_path: Path) -> None:
    """A kill in the middle of Optuna's own write costs that line; a spoilt file may be deleted without loss."""
    path, study = tmp_path / "j.jsonl", tmp_path / "j.optuna.jsonl"
    with TrialJournal.open(path, {}) as journal:
        first = run(FakeBench(times), journal)
    with study.open("a") as stream:
        stream.write('{"op_code": 4, "wor')
    with TrialJournal.open(path, {}) as journal:
        again = run(bench := FakeBench(times), journal)
    assert any("j.optuna.jsonl: dropped a last line of 19 bytes" in note for note in again.notes)
    assert (bench.calls, again.ranking) == ([], first.ranking)
    study.write_text("nonsense\nnonsense\n")
    with (
        TrialJournal.open(path, {}) as journal,
        pytest.raises(UsageError, match=r"j.optuna.jsonl: Optuna cannot read its study .* delete this file"),
    ):
        run(FakeBench(times), journal)
    study.unlink()
    with TrialJournal.open(path, {}) as journal:
        assert run(bench := FakeBench(times), journal).ranking == first.ranking
    assert bench.calls == []


def test_a_study_of_a_journal_that_was_deleted_is_begun_anew(tmp_path: Path) -> None:
    """It holds costs of another search, perhaps of another kernel: what is asked is what an empty folder asks."""
    path = tmp_path / "j.jsonl"
    run(fresh := FakeBench(times))
    with TrialJournal.open(path, {}) as journal:
        run(FakeBench(times), journal, seed=5)
    path.unlink()
    with TrialJournal.open(path, {}) as journal:
        run(bench := FakeBench(times), journal)
    assert bench.calls == fresh.calls


def test_without_optuna_the_install_command_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an optional dependency."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"pip install 'pytest-attnperf\[tune\]'"):
        run(FakeBench(times))


def test_optuna_is_silent_and_its_logging_is_left_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    """No line per trial on anybody's terminal."""
    before = optuna.logging.get_verbosity()
    run(FakeBench(times))
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before


def test_few_trials_leave_few_finalists() -> None:
    """Whoever is ranked first was timed on all workloads, in a process that did not explore, however few trials."""
    for allowed in (20, 40):
        result = run(FakeBench(times), max_trials=allowed)
        assert len(result.trials) <= allowed
        timed = {(trial.workload, trial.process) for trial in result.trials if trial.candidate in result.finalists}
        assert {work for work, process in timed if process > 0} == set(WORKLOADS)


def test_the_probe_is_what_large_spaces_are_explored_on() -> None:
    """One workload, the last unless another is named, is timed before the finals; one that is none is refused."""
    for probe, used in (("", WORKLOADS[-1]), (WORKLOADS[0], WORKLOADS[0])):
        bench = FakeBench(times)
        run(bench, probe=probe)
        assert {work for _, process, name, work in bench.calls if process == 0 and name != "own autotuner:"} == {used}
    with pytest.raises(UsageError, match=r"the probe .z. is none of the workloads"):
        run(FakeBench(times), probe="z")


def test_what_is_preferred_is_tried_first() -> None:
    """Candidates that look good before anything is timed come first; the others only as neighbours of the best."""
    good = frozenset(candidate.id for candidate in list_candidates(LARGE)[0] if candidate.values.get("warps") == 4)
    bench = FakeBench(times)
    run(bench, space=LARGE, preferred=good, max_trials=24)
    first = [name for _, process, name, _ in bench.calls if process == 0 and name != LARGE.default.id]
    assert len(first) >= 8
    assert sum(name in good for name in first[:8]) >= 7
