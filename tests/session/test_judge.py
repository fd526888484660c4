"""The session's judge over an in-memory pool: scripted subjects, no processes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.baselines.record import new_entry
from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.errors import BaselineError, CaseFailedError, WorkerError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CaseKey, DeviceInfo, FinalReport, Fingerprint, Role, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.judge import Session
from pytest_attnperf.session.settings import Case, Mode, RunSettings
from pytest_attnperf.testing.fake_device import FakeSubject
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.conversation import Conversation, OpenRequest
from pytest_attnperf.workers.local import LocalCase
from pytest_attnperf.workloads.prefill import Prefill

WORKLOAD = Prefill(batch=1, seq_q=64, heads=1, head_dim=16)
CASE = Case(CaseKey("prefill", "fake.a", WORKLOAD.id), "suites/test_prefill.py::test_prefill[fake.a]", Policy())
DEVICE = DeviceInfo("cpu", "fake", "fake1")
MACHINE = Fingerprint({"arch": "fake", "product": "fake1"}, {"driver": "1"})
RECORD_PLACES = list(range(100, 107))


@dataclass
class Served(LocalCase):
    """A case whose process may have loaded code of another tree."""

    foreign: tuple[str, ...] = ()

    def finish(self) -> FinalReport:
        """The subject's report, with where code came from."""
        return replace(super().finish(), foreign_sources=self.foreign)


@dataclass
class FakePool:
    """A Pool without processes: `common` scripts every place, `by_place` single ones, `error` is raised instead.

    `visited` holds the places whose process served a case, in order. Processes differ by up to 0.3 %.
    """

    common: dict[str, Any] = field(default_factory=lambda: {"time_us": 100.0})
    by_place: dict[int, dict[str, Any]] = field(default_factory=dict)
    visited: list[int] = field(default_factory=list)
    started: list[int] = field(default_factory=list)

    @contextlib.contextmanager
    def case(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """The scripted case in that place."""
        self.visited.append(place)
        script = {**self.common, **self.by_place.get(place, {})}
        if "error" in script:
            raise script["error"]
        subject = FakeSubject(script, 1 + 0.001 * (place % 7 - 3), (request.check_seed, request.final_seed))
        yield Served(subject, WORKLOAD, request.repeats, script.get("foreign", ()))

    def ready(self, place: int) -> Ready:
        """Each place is a process of its own."""
        return Ready(1000 + place, Role.INTERPRET, DEVICE, MACHINE, (CASE.key,))

    def start(self, places: Sequence[int]) -> None:
        """Remember."""
        self.started += places

    def known(self) -> Ready | None:
        """Some place."""
        return self.ready(0)

    def shutdown(self) -> None:
        """Nothing runs."""


class Bench:
    """Sessions over one store, each with a fresh pool."""

    def __init__(self, folder: Path) -> None:
        self.store = BaselineStore(folder / "baselines", folder / "local")
        self.local = folder / "local"
        self.pool = FakePool()

    def judge(
        self, mode: Mode = Mode.GATE, case: Case = CASE, settings: dict[str, Any] | None = None, **common: Any
    ) -> CaseResult:
        """One case judged; `common` scripts every place, `self.pool.by_place` those set before."""
        self.pool.visited.clear()
        self.pool.common = {"time_us": 100.0, **common}
        run = RunSettings(mode, cases=1, seed=41, **(settings or {}))
        return Session(run, self.pool, self.store, self.local).judge(case)

    def record(self, case: Case = CASE, **common: Any) -> None:
        """Store a baseline."""
        result = self.judge(Mode.UPDATE, case, **common)
        self.store.merge(self.store.roots[0], "fake", "fake1", "prefill", {case.key.entry: new_entry(result, "c0")})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Nothing is stored."""
    return Bench(tmp_path)


@pytest.fixture
def stored(bench: Bench) -> Bench:
    """The case is stored at 100 us."""
    bench.record()
    return bench


def test_unchanged_code_takes_one_look(stored: Bench) -> None:
    """SAME is settled by the gate's own process."""
    result = stored.judge()
    assert (result.verdict, result.fails, result.second) == (Verdict.SAME, False, ())
    assert stored.pool.visited == [0]


def test_the_second_look_is_taken_elsewhere(stored: Bench) -> None:
    """SLOWER is settled by three processes, none of which made the first look."""
    result = stored.judge(time_us=110.0)
    assert result.verdict is Verdict.SLOWER
    assert stored.pool.visited == [0, 1, 2, 3]
    assert [process.process for process in result.first] == ["pid 1000"]
    assert [process.process for process in result.second] == ["pid 1001", "pid 1002", "pid 1003"]


def test_the_size_is_that_of_the_second_look(stored: Bench) -> None:
    """The first look was selected for being large; what is reported comes from the second alone."""
    stored.pool.by_place[0] = {"time_us": 150.0}
    result = stored.judge(time_us=110.0)
    assert result.verdict is Verdict.SLOWER
    assert result.first[0].median_us == pytest.approx(150, rel=0.01)
    assert result.median_us == pytest.approx(110, rel=0.01)
    assert result.ratio == pytest.approx(1.10, rel=0.01)


def test_what_the_second_look_does_not_confirm_is_same(stored: Bench) -> None:
    """One slow process is no slowdown."""
    stored.pool.by_place[0] = {"time_us": 150.0}
    result = stored.judge()
    assert (result.verdict, len(result.second)) == (Verdict.SAME, 3)


@pytest.mark.parametrize("fault", ["wrong", "late", "replay"])
def test_incorrect_in_the_second_look_wins(stored: Bench, fault: str) -> None:
    """A process of the second look that is wrong makes the case INCORRECT, without a time."""
    stored.pool.by_place[2] = {"fault": fault}
    result = stored.judge(time_us=110.0)
    assert (result.verdict, result.fails) == (Verdict.INCORRECT, True)
    assert (result.median_us, result.ratio, result.second) == (None, None, ())
    assert "40.0x the budget" in result.summary


@pytest.mark.parametrize("place", [0, 2])
def test_a_worker_that_dies_is_an_error_with_its_log(stored: Bench, place: int) -> None:
    """In either look, what the process printed last is kept beside the cause."""
    stored.pool.by_place[place] = {"error": WorkerError("killed by SIGABRT", "kernel aborted\nbye")}
    result = stored.judge(time_us=110.0)
    assert (result.verdict, result.fails) == (Verdict.ERROR, True)
    assert (result.summary, result.reasons) == ("killed by SIGABRT", ("killed by SIGABRT",))
    assert result.log == "kernel aborted\nbye"


def test_a_case_that_raises_is_an_error_with_its_traceback(stored: Bench) -> None:
    """The summary is the cause, the reasons hold the traceback; there is no log, for the worker lives."""
    stored.pool.by_place[0] = {"error": CaseFailedError("CUDA error: misaligned", traceback="Traceback: line 7")}
    result = stored.judge()
    assert (result.verdict, result.summary, result.log) == (Verdict.ERROR, "CUDA error: misaligned", "")
    assert result.reasons == ("CUDA error: misaligned\nTraceback: line 7",)


@pytest.mark.parametrize("place", [0, 3])
def test_code_from_another_tree_is_incomparable(stored: Bench, place: int) -> None:
    """In either look, a process that loaded another tree's kernels says nothing of this one."""
    stored.pool.by_place[place] = {"foreign": ("module kernels.x was loaded from /elsewhere",)}
    result = stored.judge(time_us=110.0)
    assert (result.verdict, result.summary) == (Verdict.INCOMPARABLE, "code from another tree ran")
    assert result.reasons == ("module kernels.x was loaded from /elsewhere",)
    assert result.ratio is None


def test_code_from_another_tree_is_not_recorded(bench: Bench) -> None:
    """A baseline of another tree's code would gate this one's; the update fails instead."""
    bench.pool.by_place[104] = {"foreign": ("module kernels.x was loaded from /elsewhere",)}
    result = bench.judge(Mode.UPDATE)
    assert (result.verdict, result.fails) == (Verdict.INCOMPARABLE, True)
    with pytest.raises(BaselineError, match="only results recorded"):
        new_entry(result, "c0")


def test_recording_takes_seven_processes(bench: Bench) -> None:
    """RECORDED holds every process with its proof, and was started at once."""
    result = bench.judge(Mode.UPDATE)
    assert (result.verdict, result.fails) == (Verdict.RECORDED, False)
    assert bench.pool.visited == bench.pool.started == RECORD_PLACES
    assert len(result.first) == len(result.checks) == 7
    assert result.summary == "recorded; nothing was stored before"


def test_one_wrong_process_keeps_a_case_from_being_recorded(bench: Bench) -> None:
    """Six right processes and a wrong one are INCORRECT."""
    bench.pool.by_place[106] = {"fault": "nan"}
    result = bench.judge(Mode.UPDATE)
    assert (result.verdict, result.fails, result.first) == (Verdict.INCORRECT, True, ())
    assert bench.pool.visited == RECORD_PLACES


def test_recording_again_names_the_change(stored: Bench) -> None:
    """What is replaced is said beside what replaces it."""
    result = stored.judge(Mode.UPDATE, time_us=110.0)
    assert result.verdict is Verdict.RECORDED
    assert result.summary == "recorded; +10.0% against what was stored"


def test_only_incorrect_names_the_seed(stored: Bench) -> None:
    """Inputs of a check decide whether it fails; they do not decide how long a call takes."""
    wrong, slower = stored.judge(fault="wrong"), stored.judge(time_us=110.0)
    assert wrong.reproduce == f'pytest --attnperf --attnperf-seed=41 "{CASE.nodeid}"'
    assert slower.reproduce == f'pytest --attnperf "{CASE.nodeid}"'
    assert stored.judge(Mode.CHECK, fault="wrong").reproduce == f'pytest --attnperf-seed=41 "{CASE.nodeid}"'


def test_a_loosened_policy_is_noted(stored: Bench) -> None:
    """A threshold above the stored one lets more through, and says so; a tighter one does not."""
    looser = stored.judge(case=replace(CASE, policy=Policy(threshold_percent=5)))
    assert looser.notes == ("policy loosened since the baseline: threshold_percent 2 -> 5",)
    assert stored.judge(case=replace(CASE, policy=Policy(threshold_percent=1))).notes == ()


def test_correctness_alone_is_not_timed(stored: Bench) -> None:
    """Without --attnperf a right case is RIGHT, without a time and without looking at the store."""
    result = stored.judge(Mode.CHECK, time_us=200.0)
    assert (result.verdict, result.median_us, result.baseline_us) == (Verdict.RIGHT, None, None)


def test_a_local_baseline_is_recorded_by_other_processes(bench: Bench) -> None:
    """With record_local the gate's own process is held against seven others, under the local root only."""
    result = bench.judge(settings={"record_local": True})
    assert (result.verdict, bench.pool.visited) == (Verdict.SAME, [0, *RECORD_PLACES])
    assert result.notes[0] == "baseline under .attnperf/local, recorded in this run, in 7 other processes"
    assert (bench.local / "fake" / "fake1" / "prefill.json").is_file()
    assert not bench.store.roots[0].exists()


def test_a_local_baseline_is_not_recorded_from_wrong_results(bench: Bench) -> None:
    """A wrong process among the seven is the case's verdict, and nothing is stored."""
    bench.pool.by_place[103] = {"fault": "wrong"}
    result = bench.judge(settings={"record_local": True})
    assert (result.verdict, result.fails) == (Verdict.INCORRECT, True)
    assert not bench.local.exists()


def test_a_jump_is_checked_again_on_new_inputs(stored: Bench) -> None:
    """Three times faster than stored is proven right in a fresh process, on inputs that change, and says so."""
    result = stored.judge(time_us=30.0)
    assert (result.verdict, stored.pool.visited) == (Verdict.FASTER, [0, 1])
    (note,) = result.notes
    assert re.match(r"3\.\d+ times faster than stored: right again on new inputs in another process, and 2\d\.", note)
    assert stored.judge(time_us=40.0).notes == ()
    assert stored.pool.visited == [0]


def test_a_jump_that_remembers_is_suspicious(stored: Bench) -> None:
    """A kernel that is fast only while its inputs stay the same has not become faster."""
    result = stored.judge(time_us=20.0, remembers=5.0)
    assert (result.verdict, result.fails) == (Verdict.SUSPICIOUS, True)
    assert re.match(r"remembers its results: \S+ us per call while the inputs stay the same, ", result.summary)
    assert result.summary.endswith("when they change before every call; the time is not that of the work")
    assert stored.judge(time_us=20.0, remembers=3.9).verdict is Verdict.FASTER


def test_a_jump_that_is_wrong_on_new_inputs_is_incorrect(stored: Bench) -> None:
    """Being wrong in the re-check outweighs being fast in the first look."""
    stored.pool.by_place[1] = {"fault": "wrong"}
    result = stored.judge(time_us=20.0)
    assert (result.verdict, result.fails, result.median_us) == (Verdict.INCORRECT, True, None)


def test_what_remembers_is_not_recorded(bench: Bench) -> None:
    """A baseline of a kernel that returns old results would make every honest one slower."""
    result = bench.judge(Mode.UPDATE, remembers=5.0)
    assert (result.verdict, result.fails) == (Verdict.SUSPICIOUS, True)
    assert bench.judge(Mode.UPDATE).verdict is Verdict.RECORDED


def test_what_ran_is_stored_and_its_change_is_named(bench: Bench) -> None:
    """A library that falls back to other kernels is named beside the slowdown it causes."""
    bench.record(kernels=["flash_fwd"])
    result = bench.judge(time_us=500.0, kernels=["softmax", "gemm"])
    assert result.verdict is Verdict.SLOWER
    assert [launch.name for launch in result.launches] == ["softmax", "gemm"]
    assert result.notes == (
        "what ran has changed since the baseline: no longer runs flash_fwd; runs softmax, which it did not; "
        "runs gemm, which it did not",
    )


def test_the_same_kernels_are_said_to_be_the_same(bench: Bench) -> None:
    """A slowdown without a change of kernels is no fallback; a case that is not slower needs no word about it."""
    bench.record(kernels=["flash_fwd"])
    (note,) = bench.judge(time_us=110.0, kernels=["flash_fwd"]).notes
    assert note.startswith("the same work was launched as when the baseline was recorded")
    assert bench.judge(kernels=["flash_fwd"]).notes == ()


def test_a_baseline_that_does_not_know_what_ran_says_nothing_of_it(stored: Bench) -> None:
    """Entries recorded where graphs cannot be read are compared by time alone."""
    assert stored.judge(kernels=["flash_fwd"]).notes == ()


def test_determinism_is_asked_for_and_reported(bench: Bench) -> None:
    """Bits are compared only on request, and the answer is part of the check."""
    asked = {"determinism_repeats": 5}
    (check,) = bench.judge(Mode.CHECK, settings=asked).checks
    assert (check.repeats, check.bit_equal) == (5, True)
    (check,) = bench.judge(Mode.CHECK, settings=asked, bit_equal=False).checks
    assert (check.repeats, check.bit_equal) == (5, False)
    (check,) = bench.judge(Mode.CHECK).checks
    assert (check.repeats, check.bit_equal) == (0, None)
