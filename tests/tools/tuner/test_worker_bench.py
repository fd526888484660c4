"""Trials over in-memory pools: scripted subjects, no processes. And one over real worker processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pytest_attnperf.errors import UsageError, WorkerError
from pytest_attnperf.records import CaseKey, Role
from pytest_attnperf.testing.project import WORKLOAD, FakeProject
from pytest_attnperf.tools.tuner.worker_bench import WorkerBench, check_ran_as_pinned, warm_compilers
from pytest_attnperf.tuning_records import Candidate
from pytest_attnperf.workers.conversation import OpenRequest
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.pool import WorkerPool
from tests.tools.tuner.fake_tuning import FakeTuningPool, Surface, key_of

pytest_plugins = ["pytester", "pytest_attnperf.testing.project"]
pytestmark = pytest.mark.usefixtures("lean_processes")

SURFACE = {"BLOCK_M": (32, 64, 128)}
SMALL, LARGE = Candidate({"BLOCK_M": 32}), Candidate({"BLOCK_M": 128})
KEYS = {"short": key_of(64), "long": key_of(256)}

SIZES = (16, 32, 64, 128)
CANDIDATES = [Candidate({"BLOCK": size}) for size in SIZES]


def pin(candidate: Candidate) -> dict[str, str]:
    """Values as text."""
    return {name: str(value) for name, value in candidate.values.items()}


@pytest.fixture
def surface() -> Surface:
    """128 rows are the default, and twice as slow as 32."""
    return Surface(SURFACE, {"BLOCK_M": 128}, us=lambda values, seq: float(str(values["BLOCK_M"])) + seq)


@pytest.fixture
def pool(surface: Surface) -> FakeTuningPool:
    """One lane."""
    return FakeTuningPool(surface)


@pytest.fixture
def bench(pool: FakeTuningPool) -> WorkerBench:
    """Over one lane."""
    return WorkerBench([pool], KEYS, pin)


def test_a_trial_times_the_candidate_on_the_workload(bench: WorkerBench, pool: FakeTuningPool) -> None:
    """The case of the workload is opened with the candidate's pin, in the process of that number."""
    trial = bench.time(0, 7, SMALL, "long")
    assert trial.median_us == pytest.approx(288, rel=0.01)
    assert (trial.candidate, trial.workload, trial.process, trial.failure) == (SMALL, "long", 7, "")
    assert trial.summary is not None
    assert trial.summary.process == "pid 1007"
    assert pool.opened == [(7, KEYS["long"].workload, {"BLOCK_M": "32"})]


def test_processes_are_fresh_and_end_when_the_next_begins(bench: WorkerBench, pool: FakeTuningPool) -> None:
    """Trials of one number share a process; another number ends it, for it would hold memory of the GPU."""
    for process in (0, 0, 1):
        bench.time(0, process, SMALL, "short")
    assert [place for place, _, _ in pool.opened] == [0, 0, 1]
    assert pool.ended == 1


def test_checks_of_one_process_are_on_the_same_inputs(bench: WorkerBench, pool: FakeTuningPool) -> None:
    """References are computed once in a process, and anew in the next one."""
    seeds: list[tuple[int, int]] = []
    pool.on_case = lambda request: seeds.append((request.check_seed, request.final_seed))
    for process, candidate in ((0, SMALL), (0, LARGE), (1, SMALL)):
        bench.time(0, process, candidate, "short")
    assert seeds[0] == seeds[1]
    assert not {*seeds[0]} & {*seeds[2]}


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        ("wrong", "wrong: check: out: max error is 40.0x the budget"),
        ("nothing", "wrong: check: out: 64 of 64 elements are NaN"),
        ("late", "wrong: final: out: max error"),
        ("replay", "wrong: replay: out:"),
        ("died", "died: worker 0 died during 'check': killed by SIGSEGV"),
        ("oom", "failed: out of memory: tried to allocate 8.00 GiB"),
    ],
)
def test_a_bad_candidate_is_a_trial_without_a_time(
    bench: WorkerBench, surface: Surface, fault: str, failure: str
) -> None:
    """Liars are never timed: neither one that is wrong when called, nor only as timed, nor only in the end."""
    surface.fault = lambda values, seq: fault if values["BLOCK_M"] == 32 else ""
    trial = bench.time(0, 0, SMALL, "short")
    assert (trial.median_us, trial.summary, trial.failure[: len(failure)]) == (None, None, failure)
    assert bench.time(0, 0, LARGE, "short").median_us is not None


def test_unsupported_and_untimed_cases_say_why(bench: WorkerBench, pool: FakeTuningPool) -> None:
    """A library that refuses the candidate, and a machine whose time says nothing."""
    pool.script = {"supported": ["needs gfx950"]}
    assert bench.time(0, 0, SMALL, "short").failure == "unsupported: needs gfx950"
    pool.script = {"not_timed": "interpreted: its time says nothing"}
    assert bench.time(0, 0, SMALL, "short").failure == "failed: not timed: interpreted: its time says nothing"


def test_a_candidate_that_ends_two_workers_is_not_run_again(
    bench: WorkerBench, pool: FakeTuningPool, surface: Surface
) -> None:
    """Each death costs the start of a process: the third trial does not open a case."""
    surface.fault = lambda values, seq: "died" if values["BLOCK_M"] == 32 else ""
    assert [bench.time(0, n, SMALL, "short").failure[:4] for n in (0, 1)] == ["died", "died"]
    assert bench.time(0, 2, SMALL, "long").failure == "failed: it has ended 2 workers already"
    assert len(pool.opened) == 2


def test_no_process_that_starts_ends_the_bench(bench: WorkerBench, pool: FakeTuningPool) -> None:
    """Nothing can be measured any more: that is no candidate's fault."""
    pool.starts = False
    with pytest.raises(WorkerError, match="could not start"):
        bench.time(0, 0, SMALL, "short")


def test_a_suite_without_the_case_is_said(bench: WorkerBench, pool: FakeTuningPool) -> None:
    """Before it is taken for a worker that died."""
    pool.cases = (KEYS["long"],)
    with pytest.raises(UsageError, match=r"the suite has no case prefill/fake.tunable/prefill-b1-s64.* among its 1"):
        bench.time(0, 0, SMALL, "short")


def test_a_backend_that_ignores_its_pin_is_found_out(bench: WorkerBench, surface: Surface) -> None:
    """A liar that runs its default whatever it is told would make every candidate equal."""
    surface.fault = lambda values, seq: "ignores"
    assert bench.time(0, 0, LARGE, "short").median_us is not None
    with pytest.raises(UsageError, match="does not run the pinned values: BLOCK_M=32 was requested, BLOCK_M=128 ran"):
        bench.time(0, 0, SMALL, "short")


def test_a_backend_of_several_kernels_is_held_to_the_one_it_was_told() -> None:
    """Entries have the kernel's name before them; another kernel's value is none of the candidate's."""
    told, config = {"a.BLOCK_M": "32"}, {"a.BLOCK_M": "32", "b.BLOCK_M": "128"}
    check_ran_as_pinned(SMALL, told, config, "fake.a")
    with pytest.raises(UsageError, match=r"a\.BLOCK_M=64 ran"):
        check_ran_as_pinned(SMALL, told, {**config, "a.BLOCK_M": "64"}, "fake.a")
    with pytest.raises(UsageError, match=r"does not report with which BLOCK_M it ran.*holds b\.BLOCK_M"):
        check_ran_as_pinned(SMALL, told, {"b.BLOCK_M": "32"}, "fake.a")


def test_a_route_that_was_not_taken_is_a_failure(surface: Surface) -> None:
    """The library's own autotuner is asked for by its path; another path is no time of it."""
    routed, plain = Candidate({}, "autotuned"), {"BLOCK_M": "128"}
    pool = FakeTuningPool(surface, config={"path": "triton"})
    bench = WorkerBench([pool], KEYS, lambda candidate: {**plain, "path": "triton_dao"})
    trial = bench.time(0, 0, routed, "short")
    assert trial.failure == "failed: path triton_dao was requested, but triton ran"
    pool.config = {"path": "triton_dao"}
    assert bench.time(0, 0, routed, "short").median_us is not None


def test_lanes_keep_their_threads(surface: Surface) -> None:
    """All processes of a lane are started by one thread: a worker ends when the thread that started it does."""
    import threading

    seen: dict[int, set[int]] = {0: set(), 1: set()}
    pools = [FakeTuningPool(surface), FakeTuningPool(surface)]
    for lane, pool in enumerate(pools):
        pool.on_case = lambda request, lane=lane: seen[lane].add(threading.get_ident())  # type: ignore[misc]
    bench = WorkerBench(pools, KEYS, pin)
    for caller in range(3):
        threads = [threading.Thread(target=bench.time, args=(lane, caller, SMALL, "short")) for lane in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    bench.shutdown()
    assert [len(threads) for threads in seen.values()] == [1, 1]
    assert seen[0] != seen[1]


def test_times_of_spent_processes_are_said(bench: WorkerBench, pool: FakeTuningPool) -> None:
    """A timer that needs a profiler leaves nothing to compare within a process."""
    bench.time(0, 0, SMALL, "short")
    assert bench.list_notes() == ()
    pool.script = {"spent": True}
    bench.time(0, 0, SMALL, "short")
    assert "1 trials each used up a process" in bench.list_notes()[0]


@pytest.fixture
def real(attnperf_project: FakeProject) -> Iterator[WorkerPool]:
    """Worker processes over the fake project."""
    root = attnperf_project.path
    attnperf_project.backend("fake.a", time_us=80.0)
    plan = LaunchPlan(
        files=[str(root / "suites" / "test_prefill.py")],
        rootdir=root,
        scratch=root / ".attnperf" / "logs",
        role=Role.INTERPRET,
        passed_options=("--attnperf-device=cpu",),
    )
    pool = WorkerPool(plan)
    yield pool
    pool.shutdown()


def test_real_workers_run_pinned_candidates(real: WorkerPool, attnperf_project: FakeProject) -> None:
    """A pin reaches the worker's backend; a worker that dies is replaced for the next candidate."""
    bench = WorkerBench([real], {WORKLOAD: CaseKey("prefill", "fake.a", WORKLOAD)}, pin)
    assert bench.time(0, 0, SMALL, WORKLOAD).median_us == pytest.approx(80, rel=0.05)
    attnperf_project.backend("fake.a", time_us=80.0, fault="crash")
    assert bench.time(0, 0, LARGE, WORKLOAD).failure.startswith("died: worker worker0-1 died during 'check': killed by")
    attnperf_project.backend("fake.a", time_us=60.0)
    assert bench.time(0, 1, LARGE, WORKLOAD).median_us == pytest.approx(60, rel=0.05)


def requests(*seqs: int) -> dict[Candidate, list[OpenRequest]]:
    """What opens every candidate on workloads of these lengths."""
    return {
        candidate: [OpenRequest(key_of(seq), None, 1, 2, pin={"BLOCK": str(candidate.values["BLOCK"])}) for seq in seqs]
        for candidate in CANDIDATES
    }


@pytest.fixture
def blocks() -> Surface:
    """Four candidates, all of which work."""
    return Surface({"BLOCK": SIZES}, default={"BLOCK": 16})


def test_every_candidate_is_opened_on_every_workload(blocks: Surface) -> None:
    """Each is opened once per workload, by whichever process is free, and nothing else is asked of it."""
    pool, told = FakeTuningPool(blocks), []
    assert warm_compilers(pool, range(3), requests(64, 128), done=lambda *numbers: told.append(numbers)) == {}
    opened = sorted((workload, pin["BLOCK"]) for _, workload, pin in pool.opened)
    assert opened == sorted((key_of(seq).workload, str(size)) for seq in (64, 128) for size in SIZES)
    assert sorted(told) == [(number, 4) for number in (1, 2, 3, 4)]


def test_processes_work_at_the_same_time(blocks: Surface) -> None:
    """Two processes are inside a case together: otherwise compiling would take as long as before."""
    meeting = threading.Barrier(2, timeout=10)
    pool = FakeTuningPool(blocks, on_case=lambda request: meeting.wait() and None)
    assert warm_compilers(pool, range(2), requests(64)) == {}


def test_what_cannot_be_opened_is_named(blocks: Surface) -> None:
    """A candidate that cannot be built fails with its reason, and is not opened on the next workload."""
    blocks.fault = lambda values, seq: "prepare" if values["BLOCK"] == 64 else ""
    pool = FakeTuningPool(blocks)
    (failed,) = warm_compilers(pool, range(2), requests(64, 128)).items()
    assert failed[0].values == {"BLOCK": 64}
    assert "scripted compile error" in failed[1]
    assert sum(pin == {"BLOCK": "64"} for _, _, pin in pool.opened) == 1


@pytest.mark.parametrize("fault", ["oom", "died"])
def test_what_is_not_its_own_doing_is_left_to_the_search(blocks: Surface, fault: str) -> None:
    """Too little memory among many processes, or one that died, throws no candidate out."""
    blocks.fault = lambda values, seq: fault if values["BLOCK"] == 64 else ""
    assert warm_compilers(FakeTuningPool(blocks), range(2), requests(64)) == {}


def test_an_unsupported_candidate_is_a_failure(blocks: Surface) -> None:
    """A reason for not running is one for not timing."""
    blocks.fault = lambda values, seq: "unsupported" if values["BLOCK"] == 32 else ""
    assert list(warm_compilers(FakeTuningPool(blocks), range(1), requests(64)).values()) == [
        "unsupported: scripted: hipcc missing"
    ]


def test_time_that_is_up_leaves_the_rest(blocks: Surface) -> None:
    """What was not opened is compiled when it is timed."""
    pool = FakeTuningPool(blocks)
    warm_compilers(pool, range(1), requests(64), expired=lambda: len(pool.opened) >= 2)
    assert len(pool.opened) == 2


def test_no_process_is_an_error(blocks: Surface) -> None:
    """Where none can start, whoever waits is told so."""
    with pytest.raises(WorkerError, match="could not start"):
        warm_compilers(FakeTuningPool(blocks, starts=False), range(2), requests(64))


def test_what_a_thread_raises_is_raised(blocks: Surface) -> None:
    """An error that is no candidate's ends all threads and reaches the caller."""

    def refuse(request: OpenRequest) -> None:
        raise UsageError("no such case")

    with pytest.raises(UsageError, match="no such case"):
        warm_compilers(FakeTuningPool(blocks, on_case=refuse), range(2), requests(64))


def test_an_interrupt_opens_nothing_more(blocks: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that is shut down after it would start its processes again for the next candidate."""
    inside, shut = threading.Event(), threading.Event()

    def wait(request: OpenRequest) -> None:
        inside.set()
        shut.wait(10)

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        inside.wait(10)
        raise KeyboardInterrupt

    pool = FakeTuningPool(blocks, on_case=wait)
    before = set(threading.enumerate())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            warm_compilers(pool, range(1), requests(64))
    shut.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert len(pool.opened) == 1
