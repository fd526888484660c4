"""Whole tuning runs on scripted surfaces: what is found, what is refused, and what a killed run leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import CaseFailedError, UsageError
from pytest_attnperf.kernel_builds import KernelBuild, ObjectFile, TritonSource
from pytest_attnperf.records import Role
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.tools.tuner.compiling import CompiledCandidate
from pytest_attnperf.tools.tuner.job import Served, TuneJob, TunePools
from pytest_attnperf.tools.tuner.tune import CONFIRM_SEED, tune
from pytest_attnperf.tools.tuner.tuner_settings import TuneSearchSettings
from pytest_attnperf.tuning_records import BETTER, NO_BETTER, SLOWER_ELSEWHERE, STATIC_ONLY, Candidate, TuneResult
from pytest_attnperf.workers.conversation import OpenRequest
from pytest_attnperf.workers.interleave import InterleavePlan
from tests.tools.tuner.fake_tuning import (
    NAME,
    FakeTunable,
    FakeTuningPool,
    Surface,
    Values,
    key_of,
    served_workload,
)

OBJECTS = Path(__file__).parents[2] / "data" / "code_objects"
BAD_DEFAULT = {"BLOCK_M": 128, "BLOCK_N": 64}
BEST = "BLOCK_M=64,BLOCK_N=32"


def planted(values: Values, seq: int) -> float:
    """64 x 32 is best everywhere, and 1.4 times faster than 128 x 64."""
    rows, columns = int(values["BLOCK_M"]), int(values["BLOCK_N"])
    return seq * (1 + 0.2 * abs(rows - 64) / 64 + 0.2 * abs(columns - 32) / 32)


class Tuning:
    """A job on a surface, and the pools that it asked for."""

    def __init__(self, folder: Path) -> None:
        self.surface = Surface({"BLOCK_M": (32, 64, 128), "BLOCK_N": (16, 32, 64)}, BAD_DEFAULT, us=planted)
        self.pools: list[FakeTuningPool] = []
        self.said: list[str] = []
        self.on_case: Callable[[OpenRequest], None] = lambda request: None
        self.lanes = 1
        self.process_sd = 0.002
        self.role = Role.INTERPRET
        self.folder = folder

    def run(self, suite: tuple[int, ...] = (), tuned: tuple[int, ...] = (64, 256), **options: Any) -> TuneResult:
        """Tune, and search on workloads of these lengths."""
        job = TuneJob(
            backend=FakeTunable(NAME, surface=self.surface),
            name=NAME,
            tuned=self.served(tuned),
            suite=self.served(suite),
            arch="gfx942",
            root=self.folder,
            cache=self.folder / "cache" / "compiled",
            journal=self.folder / "journal.jsonl",
            pools=self.made,
            source="a test",
            settings=TuneSearchSettings(strategy="race", processes=3),
            pairs=InterleavePlan(pairs=5, quads=8),
            say=self.said.append,
        )
        return tune(replace(job, **options))

    def served(self, lengths: tuple[int, ...]) -> dict[str, Served]:
        """Workloads of these lengths by id."""
        return {served_workload(seq).id: Served(key_of(seq), served_workload(seq)) for seq in lengths}

    def made(self) -> TunePools:
        """Pools whose processes differ."""
        names = [*(f"lane{n}" for n in range(self.lanes)), "base", "new", "warm"]
        self.pools = [FakeTuningPool(self.surface, self.process_sd, name, role=self.role) for name in names]
        for pool in self.pools:
            pool.on_case = lambda request: self.on_case(request)
        return TunePools(self.pools[: self.lanes], *self.pools[self.lanes :])

    @property
    def opened(self) -> int:
        """Cases that were opened by the last run."""
        return sum(len(pool.opened) for pool in self.pools)


@pytest.fixture
def tuning(tmp_path: Path) -> Tuning:
    """Nine candidates on two workloads."""
    return Tuning(tmp_path)


def test_the_planted_best_is_found(tuning: Tuning) -> None:
    """From a bad default the run names the best candidate, confirms it and gives the file that would hold it."""
    found = tuning.run(suite=(64, 128, 1024))
    assert (found.verdict, found.winner and found.winner.id, found.candidates) == (BETTER, BEST, 9)
    assert found.overall is not None
    assert found.overall[0] == pytest.approx(1 / 1.4, rel=0.01)
    assert [(change.tuned, change.verdict) for change in found.changes] == [
        (True, "FASTER"), (True, "FASTER"), (False, "FASTER"), (False, "FASTER"),
    ]  # fmt: skip
    (file,) = found.files
    written = {"config": {"BLOCK_M": 64, "BLOCK_N": 32}, "source": "a test", "when": {}}
    assert (file.path, json.loads(file.text)) == ("configs/fake_kernel/gfx942.json", written)
    assert found.ranking[0][0].id == BEST
    assert found.device is not None
    assert all(pool.ended for pool in tuning.pools)


def test_two_lanes_find_the_same(tuning: Tuning) -> None:
    """Each lane compares with the default in its own processes."""
    tuning.lanes = 2
    found = tuning.run()
    assert (found.verdict, found.winner and found.winner.id) == (BETTER, BEST)
    assert all(pool.opened for pool in tuning.pools[:2])


def test_identical_candidates_are_never_better(tuning: Tuning) -> None:
    """Nine equal candidates whose processes scatter: what the search selected by luck is refused, run after run."""
    tuning.surface.us = lambda values, seq: 100.0
    tuning.process_sd = 0.006
    for run in range(4):
        found = tuning.run(journal=tuning.folder / f"{run}.jsonl", settings=TuneSearchSettings(processes=3, seed=run))
        assert (found.verdict, found.files) == (NO_BETTER, ())
        assert found.summary.startswith("no better than default")


def test_what_the_rule_also_serves_decides(tuning: Tuning) -> None:
    """A winner that is slower on a workload of the suite that was not tuned is refused; what it does not serve is not
    measured.
    """
    tuning.surface.us = lambda values, seq: planted(values, seq) * (2 if seq == 128 and values["BLOCK_M"] == 64 else 1)
    found = tuning.run(suite=(128,))
    assert (found.verdict, found.files) == (SLOWER_ELSEWHERE, ())
    tuning.surface.serves = lambda seq: seq != 128
    again = tuning.run(suite=(128,), journal=tuning.folder / "other.jsonl")
    assert (again.verdict, len(again.changes)) == (BETTER, 2)


def test_a_winner_that_fails_elsewhere_is_refused(tuning: Tuning) -> None:
    """Wrong on one workload that the rule serves is enough."""
    tuning.surface.fault = lambda values, seq: "wrong" if seq == 128 and values["BLOCK_M"] == 64 else ""
    found = tuning.run(suite=(128,))
    assert (found.verdict, found.files) == (NO_BETTER, ())
    assert "the winner: wrong: check: out" in found.summary


def test_bad_candidates_are_excluded_with_their_reasons(tuning: Tuning) -> None:
    """Wrong results, crashes and hangs of some cost these alone, even where they would be fastest."""
    faults = {(64, 32): "wrong", (32, 16): "died", (64, 16): "oom"}
    tuning.surface.fault = lambda values, seq: faults.get((int(values["BLOCK_M"]), int(values["BLOCK_N"])), "")
    found = tuning.run()
    stages = {one.candidate.id: one.stage for one in found.excluded}
    assert (stages[BEST], stages["BLOCK_M=32,BLOCK_N=16"]) == ("wrong", "failed")
    assert found.winner is not None
    assert found.winner.id not in stages or stages[found.winner.id] == "dropped"
    assert found.verdict == BETTER


def test_the_default_is_the_best(tuning: Tuning) -> None:
    """Nothing is confirmed where nothing was faster in the search."""
    found = tuning.run(default=None)
    tuning.surface.default = {"BLOCK_M": 64, "BLOCK_N": 32}
    found = tuning.run(journal=tuning.folder / "other.jsonl")
    assert (found.verdict, found.winner, found.changes) == (NO_BETTER, None, ())
    assert found.summary == "no better than default: no candidate was faster in the search"


def test_a_default_that_cannot_be_timed_ends_the_run(tuning: Tuning) -> None:
    """There is nothing to compare with."""
    tuning.surface.fault = lambda values, seq: "wrong" if values == BAD_DEFAULT else ""
    with pytest.raises(CaseFailedError, match="the default BLOCK_M=128,BLOCK_N=64 failed twice"):
        tuning.run()


@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
def test_a_killed_run_goes_on_with_what_it_has(tuning: Tuning, share: float) -> None:
    """Interrupted in the search or while confirming, the same run ends as one that was not, and repeats little."""
    whole = tuning.run(journal=tuning.folder / "whole.jsonl")
    count = tuning.opened
    after = int(share * count)
    left = [after]

    def interrupt(request: OpenRequest) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    tuning.on_case = interrupt
    with pytest.raises(KeyboardInterrupt):
        tuning.run()
    assert f"interrupted; measurements are kept in {tuning.folder / 'journal.jsonl'}" in tuning.said[-1]
    tuning.on_case = lambda request: None
    found = tuning.run()
    assert (found.verdict, found.winner, len(found.changes)) == (BETTER, whole.winner, 2)
    assert tuning.opened <= count - after + 6


def test_a_journal_of_something_else_is_refused(tuning: Tuning) -> None:
    """Of another space, other workloads, or another commit where that was said to matter."""
    tuning.run(identity={"commit": "4f2c1ab"})
    with pytest.raises(UsageError, match="commit was '4f2c1ab', is 'dead'"):
        tuning.run(identity={"commit": "dead"})
    tuning.surface.values = {"BLOCK_M": (64, 128), "BLOCK_N": (32, 64)}
    with pytest.raises(UsageError, match="space was"):
        tuning.run(identity={"commit": "4f2c1ab"})


def object_of(name: str, values: Values) -> ObjectFile:
    """An object that every candidate launches with LDS of its own: no two of them are the same program."""
    return ObjectFile(OBJECTS / name, threads=256, dynamic_lds_bytes=int(values["BLOCK_M"]) + int(values["BLOCK_N"]))


CODE = KernelCode("flash", "gfx942", 8, 0, 8, 8, 0, 0, 0, 0, 0, 0, 256, 256, 64, None, False, 64, "ab12")


def test_the_same_machine_code_is_timed_once(tuning: Tuning, monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates that the compiler makes the same of are one; what was left out names what it repeats."""

    def compiled(builds: Mapping[str, Sequence[KernelBuild]], *_: Any, **__: Any) -> dict[str, CompiledCandidate]:
        sources = {name: declared[0].source for name, declared in builds.items()}
        return {
            name: CompiledCandidate((replace(CODE, isa_hash=str(source.constants["BLOCK_M"])),))
            for name, source in sources.items()
            if isinstance(source, TritonSource)
        }

    def builds(values: Values) -> list[KernelBuild]:
        options = {"BLOCK_N": values["BLOCK_N"]}
        source = TritonSource("kernels", "flash", {}, {"BLOCK_M": values["BLOCK_M"]}, options=options)
        return [KernelBuild("triton.fake", "a", "gfx942", source)]

    monkeypatch.setattr("pytest_attnperf.tools.tuner.tune.compile_all", compiled)
    tuning.surface.builds = builds
    found = tuning.run()
    repeats = {one.candidate.id: one.reason for one in found.excluded if one.stage == "same code"}
    assert len(repeats) == 6
    assert repeats["BLOCK_M=64,BLOCK_N=64"].startswith("the machine code of BLOCK_M=64,BLOCK_N=")
    opened = {tuple(sorted(pin.items())) for pool in tuning.pools for _, _, pin in pool.opened}
    assert len(opened) == 3


def test_code_objects_are_looked_at_first(tuning: Tuning) -> None:
    """A candidate without matrix instructions is never opened; figures of every other stand in the result."""

    def builds(values: Values) -> list[KernelBuild]:
        name = "saxpy.gfx942.co" if values["BLOCK_M"] == 32 else "mfma.gfx942.co"
        return [KernelBuild("hip.fake", f"{values['BLOCK_M']}", "gfx942", object_of(name, values))]

    tuning.surface.builds = builds
    found = tuning.run()
    thrown_out = [one for one in found.excluded if one.stage == "code object"]
    assert {one.candidate.values["BLOCK_M"] for one in thrown_out} == {32}
    assert not any(pin["BLOCK_M"] == "32" for pool in tuning.pools for _, _, pin in pool.opened)
    assert (len(found.static), found.verdict) == (9, BETTER)


def test_a_static_run_times_nothing(tuning: Tuning) -> None:
    """It asks for no pool, writes no journal, says so, and gives no file unless asked."""
    tuning.surface.builds = lambda values: [
        KernelBuild(
            "hip.fake", "a", "gfx942",
            object_of("saxpy.gfx942.co" if values["BLOCK_M"] == 32 else "no_store.gfx942.co", values),
        )
    ]  # fmt: skip
    found = tuning.run(static=True, pools=lambda: pytest.fail("a static run needs no process"))
    assert (found.verdict, found.strategy, found.files, found.trials) == (STATIC_ONLY, "static", (), ())
    assert all(cost is None for _, cost in found.ranking)
    assert found.notes[0].startswith("nothing was timed: ordered by spills, share of matrix instructions")
    assert found.summary.endswith("Nothing was timed")
    assert not (tuning.folder / "journal.jsonl").exists()
    assert len(tuning.run(static=True, static_files=True).files) == 1


def test_a_static_run_ends_with_its_budget(tuning: Tuning, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is for compiling; what was not compiled by then is not ranked, and a note says how much that is."""
    now, stopped = [0.0], []

    def compiled(builds: Any, *_: Any, stop: Any, **__: Any) -> dict[str, CompiledCandidate]:
        found = {}
        for name in builds:
            stopped.append(stop())
            if stopped[-1]:
                break
            found[name] = CompiledCandidate((replace(CODE, isa_hash=name),))
            now[0] += 100.0
        return found

    monkeypatch.setattr("pytest_attnperf.tools.tuner.tune.compile_all", compiled)
    tuning.surface.builds = lambda values: [
        KernelBuild("hip.fake", "a", "gfx942", object_of("no_store.gfx942.co", values)),
    ]
    found = tuning.run(static=True, budget_s=350.0, clock=lambda: now[0])
    assert stopped == [False, False, False, False, True]
    assert "compiling used its share of the budget: 5 candidates were not compiled" in found.notes
    assert tuning.said[-1].endswith("(0:00 left)")


def test_a_static_run_without_code_objects_is_refused(tuning: Tuning) -> None:
    """There is nothing to rank by."""
    with pytest.raises(UsageError, match="could be ranked for gfx942: nothing was excluded by code object"):
        tuning.run(static=True)


def test_no_workload_is_refused(tuning: Tuning) -> None:
    """A run needs something to be faster on."""
    with pytest.raises(UsageError, match=f"{NAME}: no workload to tune for"):
        tuning.run(tuned=())


def test_a_budget_that_runs_out_is_a_note(tuning: Tuning) -> None:
    """Pairs that were not measured never make a winner; the same run goes on with those that were."""
    now = [0.0]

    def passes(request: OpenRequest) -> None:
        now[0] += 10.0 if request.check_seed >= CONFIRM_SEED else 0.0

    tuning.on_case = passes
    found = tuning.run(budget_s=30.0, clock=lambda: now[0])
    assert (found.verdict, found.files) == (NO_BETTER, ())
    assert "the budget ended the confirmation after 2 of 5 pairs; run again to resume" in found.notes
    assert "2 of 3 pairs were measured" in found.summary
    assert tuning.run(budget_s=300.0, clock=lambda: now[0]).verdict == BETTER


def test_a_budget_for_nothing_is_no_comparison(tuning: Tuning) -> None:
    """Nothing is said to be slower that was not timed."""
    now = [0.0]

    def passes(request: OpenRequest) -> None:
        now[0] += 10.0

    tuning.on_case = passes
    found = tuning.run(budget_s=1.0, clock=lambda: now[0])
    assert (found.verdict, found.summary) == (NO_BETTER, "no better than default: none was timed on every workload")


def test_candidates_are_opened_in_parallel_before_the_search(tuning: Tuning) -> None:
    """On a GPU other processes open every candidate once, which fills the compiler's cache, and drop what cannot be."""
    tuning.role = Role.DEVICE
    tuning.surface.fault = lambda values, seq: "prepare" if values["BLOCK_M"] == 32 else ""
    found = tuning.run(warm_processes=2)
    assert (found.verdict, found.winner and found.winner.id) == (BETTER, BEST)
    reasons = [one.reason for one in found.excluded if one.stage == "failed"]
    assert reasons == ["failed: RuntimeError: scripted compile error in kernel fake_kernel.cu:7"] * 3
    assert {trial.candidate.values["BLOCK_M"] for trial in found.trials} == {64, 128}
    assert len({str(pin) for _, _, pin in tuning.pools[-1].opened}) == 9


def test_no_candidate_that_can_be_opened_is_an_error(tuning: Tuning) -> None:
    """It quotes the first reason."""
    tuning.role = Role.DEVICE
    tuning.surface.fault = lambda values, seq: "" if values == BAD_DEFAULT else "prepare"
    with pytest.raises(UsageError, match=r"no candidate besides the default .* can be opened: RuntimeError: scripted"):
        tuning.run(warm_processes=2)


def test_a_wrong_result_is_not_tried_away(tuning: Tuning) -> None:
    """A winner that was wrong once while confirming stays refused when the same run goes on and it is right."""
    wrong = [True]
    tuning.surface.fault = lambda values, seq: "wrong" if wrong[0] and seq == 1024 and values != BAD_DEFAULT else ""
    found = tuning.run(suite=(64, 1024))
    assert (found.verdict, found.changes[-1].note.partition(" check")[0]) == (NO_BETTER, "the winner: wrong:")
    wrong[0] = False
    again = tuning.run(suite=(64, 1024))
    assert (again.verdict, again.changes[-1]) == (NO_BETTER, found.changes[-1])


def test_a_default_of_ones_own_is_said(tuning: Tuning) -> None:
    """A gain over a default that is not today's is no gain over today's."""
    found = tuning.run(default=Candidate({"BLOCK_M": 32, "BLOCK_N": 64}))
    assert any(note.startswith("compared with BLOCK_M=32,BLOCK_N=64, the given default") for note in found.notes)
    assert not any("compared with" in note for note in tuning.run(journal=tuning.folder / "own.jsonl").notes)


def test_what_is_served_in_other_families_is_said(tuning: Tuning) -> None:
    """A bucket may serve two families, of which a run measures one."""
    tuning.surface.serves = lambda seq: seq != 2048
    elsewhere = [served_workload(seq) for seq in (2048, 512)]
    found = tuning.run(elsewhere=elsewhere)
    (note,) = [note for note in found.notes if note.startswith("NOT MEASURED")]
    assert f"also serves 1 workload(s) of prefill, e.g. {served_workload(512).id}" in note
