"""Real worker processes on the fake device."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.records import CaseKey, NotProvenRightError, Role
from pytest_attnperf.records.notes import NoteKind
from pytest_attnperf.testing.project import WORKLOAD, FakeProject
from pytest_attnperf.workers import controller
from pytest_attnperf.workers.conversation import BlockPlan, OpenRequest
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.pool import WorkerPool, count_fitting, wait_for_starts

PLAN = BlockPlan(max_blocks=5)
MakePool = Callable[[], WorkerPool]


@pytest.fixture
def make_pool(attnperf_project: FakeProject) -> Iterator[MakePool]:
    """A pool over the fake project; its workers are ended behind the test."""
    pools: list[WorkerPool] = []

    def make() -> WorkerPool:
        root = attnperf_project.path
        plan = LaunchPlan(
            files=[str(path) for path in sorted((root / "suites").glob("test_*.py"))],
            rootdir=root,
            scratch=root / ".attnperf" / "logs",
            role=Role.INTERPRET,
            passed_options=("--attnperf-device=cpu",),
        )
        pools.append(WorkerPool(plan))
        return pools[-1]

    yield make
    for pool in pools:
        pool.shutdown()


def request(backend: str, following: str | None = None, limit_seconds: float = 30.0) -> OpenRequest:
    """Open `backend` on the project's only workload."""
    next_key = CaseKey("prefill", following, WORKLOAD) if following else None
    return OpenRequest(CaseKey("prefill", backend, WORKLOAD), next_key, 1, 2, limit_seconds)


def measured(pool: WorkerPool, opening: OpenRequest) -> float:
    """One case, whole; its first block in microseconds."""
    with pool.case_at(0, opening) as case:
        assert case.open().state == "open"
        assert case.check().right
        block_us = case.measure_blocks(PLAN).block_us[0]
        assert case.finish().check.right
        assert case.close().outcome == "passed"
    return block_us


def test_one_worker_serves_case_after_case(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """Two cases, promised in order, are measured by one process."""
    attnperf_project.script["process_sd"] = 0.0
    attnperf_project.backend("fake.a", time_us=100.0, block_sd=0.0)
    attnperf_project.backend("fake.b", time_us=50.0, block_sd=0.0)
    pool = make_pool()
    assert measured(pool, request("fake.a", "fake.b")) == 100.0
    pid = pool.wait_until_ready(0).pid
    assert measured(pool, request("fake.b")) == 50.0
    assert pool.wait_until_ready(0).pid == pid


MODULE_FIXTURE = """
@pytest.fixture(scope="module", autouse=True)
def costly():
    open("order.txt", "a").write("up {name}\\n")
    yield
    open("order.txt", "a").write("down {name}\\n")
"""


def test_a_change_of_plan_tears_down_what_was_promised(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """Opening a case of another file than the promised one ends the first file's fixtures, in the same process."""
    for name in ("fake.a", "fake.b"):
        attnperf_project.backend(name, time_us=10.0)
    attnperf_project.suite([WORKLOAD], settings=", suite='other'", name="test_other.py")
    for name in ("test_prefill.py", "test_other.py"):
        path = attnperf_project.path / "suites" / name
        path.write_text(path.read_text() + MODULE_FIXTURE.format(name=name))
    pool = make_pool()
    measured(pool, request("fake.a", "fake.b"))
    pid = pool.wait_until_ready(0).pid
    measured(pool, replace(request("fake.a"), key=CaseKey("other", "fake.a", WORKLOAD)))
    assert pool.wait_until_ready(0).pid == pid
    order = (attnperf_project.path / "order.txt").read_text().split("\n")
    assert order[:3] == ["up test_prefill.py", "down test_prefill.py", "up test_other.py"]


def profiled(pool: WorkerPool, opening: OpenRequest) -> int:
    """One case profiled; the calls that were."""
    with pool.case_at(0, opening) as case:
        assert case.open().state == "open"
        assert case.check().right
        return case.profile().calls


def test_a_worker_profiles_case_after_case_and_times_none(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """Only one that does not give a profile is replaced; before that neither case nor canary is timed in it."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.backend("fake.b", time_us=50.0, fault="unprofiled")
    pool = make_pool()
    pid = pool.wait_until_ready(0).pid
    assert [profiled(pool, request("fake.a")) for _ in range(2)] == [5, 5]
    assert pool.wait_until_ready(0).pid == pid
    with pytest.raises(NotProvenRightError, match="a profiler has been used"):
        measured(pool, request("fake.a"))
    with pytest.raises(NotProvenRightError, match="a profiler has been used"):
        pool.measure_canary(0)
    with pytest.raises(CaseFailedError, match="saw no kernel"):
        profiled(pool, request("fake.b"))
    assert pool.wait_until_ready(0).pid != pid


def test_a_worker_that_could_not_finish_is_replaced(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """It may have used a profiler there, and nobody says so: the next case would be slower for it, or refused."""
    attnperf_project.backend("fake.a", time_us=100.0, fault="finish")
    attnperf_project.backend("fake.b", time_us=50.0)
    pool = make_pool()
    pid = pool.wait_until_ready(0).pid
    with pytest.raises(CaseFailedError, match="gave nothing"):
        measured(pool, request("fake.a", "fake.b"))
    assert pool.wait_until_ready(0).pid != pid
    measured(pool, request("fake.b"))


def test_no_time_without_proof(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """Asking for blocks before the check raises, and the worker stays usable."""
    attnperf_project.backend("fake.a", time_us=10.0)
    pool = make_pool()
    with pool.case_at(0, request("fake.a")) as case:
        case.open()
        with pytest.raises(NotProvenRightError):
            case.measure_blocks(PLAN)
    measured(pool, request("fake.a"))


def test_a_crash_is_named_with_the_log_and_the_next_case_runs(
    attnperf_project: FakeProject, make_pool: MakePool
) -> None:
    """A case that aborts its process: the signal, the log's tail, and a fresh worker for the next case."""
    attnperf_project.backend("fake.a", fault="crash")
    attnperf_project.backend("fake.b", time_us=10.0)
    pool = make_pool()
    with (
        pytest.raises(WorkerError, match="killed by SIGABRT") as caught,
        pool.case_at(0, request("fake.a", "fake.b")) as case,
    ):
        case.open()
        case.check()
    assert "scripted abort in kernel fake_kernel" in caught.value.log_tail
    measured(pool, request("fake.b"))


def test_a_hang_ends_at_the_limit(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """A case that never answers is killed at its limit, not waited for."""
    attnperf_project.backend("fake.a", fault="hang")
    pool = make_pool()
    pool.wait_until_ready(0)
    started = time.monotonic()
    with (
        pytest.raises(WorkerError, match="did not answer 'check' within") as caught,
        pool.case_at(0, request("fake.a", limit_seconds=0.7)) as case,
    ):
        case.open()
        case.check()
    assert (caught.value.kind, caught.value.starting) == (NoteKind.NO_ANSWER, False)
    assert time.monotonic() - started < 10


def test_a_poisoned_worker_is_replaced(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """After a fault that the context does not survive, the process is not used again."""
    attnperf_project.backend("fake.a", fault="poison")
    pool = make_pool()
    pid = pool.wait_until_ready(0).pid
    with pytest.raises(CaseFailedError, match="illegal memory access"), pool.case_at(0, request("fake.a")) as case:
        case.open()
        case.check()
    assert pool.wait_until_ready(0).pid != pid


def test_an_abandoned_conversation_leaves_the_worker_idle(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """Leaving the context in the middle (the other side lacked the case) closes the item; nothing stays parked."""
    attnperf_project.backend("fake.a", time_us=10.0)
    pool = make_pool()
    with pool.case_at(0, request("fake.a")) as case:
        case.open()
    pid = pool.wait_until_ready(0).pid
    measured(pool, request("fake.a"))
    assert pool.wait_until_ready(0).pid == pid


def test_a_missing_case_is_an_error_not_a_hang(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """A side that lacks the case says so and stays usable."""
    attnperf_project.backend("fake.a", time_us=10.0)
    pool = make_pool()
    with (
        pytest.raises(WorkerError, match=r"has no case prefill/fake\.gone"),
        pool.case_at(0, request("fake.gone")) as case,
    ):
        case.open()
    measured(pool, request("fake.a"))


def test_a_suite_that_does_not_import_is_an_error_with_the_log(
    attnperf_project: FakeProject, make_pool: MakePool
) -> None:
    """A worker that cannot collect ends with the traceback in the error."""
    attnperf_project.backend("fake.a", time_us=10.0)
    (attnperf_project.path / "suites" / "test_prefill.py").write_text("import no_such_module_anywhere\n")
    with pytest.raises(WorkerError, match="could not start") as caught:
        make_pool().wait_until_ready(0)
    assert "no_such_module_anywhere" in caught.value.log_tail


def test_much_output_does_not_block_the_protocol(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """A backend that prints 200 kB goes into the log; the protocol has a socket of its own."""
    attnperf_project.backend("fake.a", time_us=10.0, fault="chatter")
    pool = make_pool()
    measured(pool, request("fake.a"))
    assert next((attnperf_project.path / ".attnperf" / "logs").glob("worker0*.log")).stat().st_size > 190_000


def test_workers_die_with_the_controller(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """Shutting down leaves no process behind, also one that is stuck."""
    attnperf_project.backend("fake.a", time_us=10.0)
    pool = make_pool()
    pid = pool.wait_until_ready(0).pid
    pool.shutdown()
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]


def test_places_are_different_processes(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """Fresh processes are what a baseline is made of: each place has its own."""
    attnperf_project.backend("fake.a", time_us=10.0)
    pool = make_pool()
    pool.start([0, 1])
    assert pool.wait_until_ready(0).pid != pool.wait_until_ready(1).pid


def test_a_canary_is_measured_once_per_process(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """Asked again the process gives the same answer, whatever the device does by then; a fresh one measures anew."""
    attnperf_project.script["process_sd"] = 0.0
    attnperf_project.backend("fake.a", time_us=10.0)
    attnperf_project.device(canary={"gemm": 200.0, "copy": 50.0})
    pool = make_pool()
    first = pool.measure_canary(0)
    assert {name: canary.median_us for name, canary in first.items()} == {"gemm": 200.0, "copy": 50.0}
    assert first["gemm"].process == f"pid {pool.wait_until_ready(0).pid}"
    attnperf_project.device(canary={"gemm": 220.0, "copy": 55.0})
    assert pool.measure_canary(0) == first
    assert pool.measure_canary(1)["gemm"].median_us == 220.0


def test_a_worker_of_another_protocol_is_refused(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """A side with another harness version is named, not misread."""
    attnperf_project.backend("fake.a", time_us=10.0)
    attnperf_project.conftest("import pytest_attnperf.workers.server as s\ns.PROTOCOL_VERSION = 99\n")
    with pytest.raises(WorkerError, match="speaks protocol 99, this side 4"):
        make_pool().wait_until_ready(0)


def test_the_plan_is_data(tmp_path: Path) -> None:
    """A plan can be varied without starting anything: another interpreter is one field."""
    plan = LaunchPlan(files=[], rootdir=tmp_path, scratch=tmp_path, role=Role.DEVICE)
    assert replace(plan, python="/other/python").make_command(3, "w")[0] == "/other/python"


def pids_of(pool: WorkerPool, *requests: OpenRequest) -> list[int]:
    """The processes that serve these cases, one after the other, in place 0."""
    found = []
    for opening in requests:
        with pool.case_at(0, opening) as case:
            case.open()
            found.append(pool.wait_until_ready(0).pid)
            case.close()
    return found


def test_how_far_a_process_is_shared(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """By 'backend' until another one comes, by 'case' never; fixtures that nobody needs any more are torn down."""
    for name in ("fake.a", "fake.b"):
        attnperf_project.backend(name, time_us=10.0)
    workloads = [WORKLOAD, "prefill-b1-s128-h1-d16-f16"]
    attnperf_project.suite(workloads)
    path = attnperf_project.path / "suites" / "test_prefill.py"
    path.write_text(path.read_text() + MODULE_FIXTURE.format(name="it"))
    first = request("fake.a")
    second, third = (replace(first, key=CaseKey("prefill", name, workloads[1])) for name in ("fake.a", "fake.b"))
    order = [replace(first, next_key=second.key), replace(second, next_key=third.key), third]
    pool = make_pool()
    pool.isolate = "backend"
    one, two, three = pids_of(pool, *order)
    assert one == two != three
    lines = (attnperf_project.path / "order.txt").read_text().splitlines()
    assert lines == ["up it", "down it", "up it", "down it"]
    pool.isolate = "case"
    pool.renew(third.key)
    assert pool.wait_until_ready(0).pid == three
    assert len({three, *pids_of(pool, *order[:2])}) == 3


STUCK = (
    "worker0-1 did not answer 'check' within .*; process {pid} does not end even when it is killed, and still holds "
)


def test_a_process_that_does_not_end_keeps_its_gpu(
    attnperf_project: FakeProject, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stuck in C with signals ignored, and not ended by SIGKILL either: it is said, its GPU is left alone, the next
    case runs on another one, and without another one it is an error at once."""
    attnperf_project.backend("fake.a", fault="stuck")
    attnperf_project.backend("fake.b", time_us=10.0)
    kill = os.killpg
    pool = make_pool()
    pool.gpus = ("0", "1")
    pid = pool.wait_until_ready(0).pid
    monkeypatch.setattr(controller, "EXIT_LIMIT_SECONDS", 0.2)
    monkeypatch.setattr(os, "killpg", lambda *args: None if args[0] == pid else kill(*args))
    try:
        with (
            pytest.raises(WorkerError, match=STUCK.format(pid=pid) + "GPU 0"),
            pool.case_at(0, request("fake.a", limit_seconds=0.5)) as case,
        ):
            case.open()
            case.check()
        measured(pool, request("fake.b"))
        assert [worker.gpu for worker in pool._places.values()] == ["1"]
        pool.gpus = ("0",)
        started = time.monotonic()
        for _ in range(3):
            with pytest.raises(WorkerError, match=f"not started; process {pid} .* holds GPU 0: nothing is measured"):
                pool.wait_until_ready(0)
        assert time.monotonic() - started < 5
    finally:
        kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}/stat").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text():
        time.sleep(0.01)
    assert pool.wait_until_ready(0).pid != pid


GB = 2.0**30


@pytest.mark.parametrize(
    ("memory_gb", "case_gb", "fit"),
    [(0, 1, 8), (80, 0, 8), (80, 0.5, 8), (8, 0, 6), (4, 0, 3), (8, 0.25, 3), (8, 1, 1), (1, 0, 1), (0.1, 9, 1)],
)
def test_what_starts_ahead_fits_into_memory(memory_gb: float, case_gb: float, fit: int) -> None:
    """Eight pairs, unless contexts and the pair that measures need more than there is; one starts in any case."""
    assert count_fitting(8, memory_gb * GB, case_gb * GB, processes=2) == fit


def test_one_that_cannot_start_is_not_waited_for(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """It says so in its turn: what waits for several to be ready has nothing to say of one."""
    attnperf_project.backend("fake.a", time_us=100.0)
    pool = make_pool()
    (attnperf_project.path / "suites" / "conftest.py").write_text("import no_such_thing\n")
    wait_for_starts(pool, [0])
    with pytest.raises(WorkerError, match="no_such_thing"):
        pool.wait_until_ready(0)
