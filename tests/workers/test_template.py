"""Workers that are forked from a template, on the fake device; how a worker starts afresh is tested in test_pool.py."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.records import CaseKey, Role
from pytest_attnperf.testing.project import WORKLOAD, FakeProject
from pytest_attnperf.workers import template
from pytest_attnperf.workers.conversation import BlockPlan, OpenRequest
from pytest_attnperf.workers.forking import SWITCH, Obstacle, log_line
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.pool import WorkerPool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every worker is started afresh")

PLAN = BlockPlan(max_blocks=5)
MakePool = Callable[..., WorkerPool]

SAYING = """
import os
print("collected by", os.getpid(), flush=True)

def pytest_runtest_setup(item):
    names = ("ATTNPERF_WORKER", "CUDA_VISIBLE_DEVICES", "PYTORCH_NVML_BASED_CUDA_CHECK", "SET_AS_IMPORTED")
    print("runs in", os.getpid(), *(os.environ.get(name) for name in names), flush=True)
"""


@pytest.fixture
def make_pool(attnperf_project: FakeProject) -> Iterator[MakePool]:
    """A pool over the fake project, whose device may be forked; its workers are ended behind the test."""
    attnperf_project.script["device"] = {"forks": True}
    attnperf_project.backend("fake.a", time_us=100.0)
    pools: list[WorkerPool] = []

    def make(*gpus: str, isolate: str = "worker") -> WorkerPool:
        root = attnperf_project.path
        plan = LaunchPlan(
            files=[str(path) for path in sorted((root / "suites").glob("test_*.py"))],
            rootdir=root,
            scratch=root / ".attnperf" / "logs",
            role=Role.DEVICE,
            passed_options=("--attnperf-device=gpu",),
        )
        pools.append(WorkerPool(plan, gpus=gpus, isolate=isolate))
        return pools[-1]

    yield make
    for pool in pools:
        pool.shutdown()


def request(backend: str = "fake.a", limit_seconds: float = 30.0) -> OpenRequest:
    """Open `backend` on the project's only workload."""
    return OpenRequest(CaseKey("prefill", backend, WORKLOAD), None, 1, 2, limit_seconds)


def measured(pool: WorkerPool, place: int = 0, opening: OpenRequest | None = None) -> float:
    """One case, whole; its first block in microseconds."""
    with pool.case_at(place, opening or request()) as case:
        assert case.open().state == "open"
        assert case.check().right
        block_us = case.measure_blocks(PLAN).block_us[0]
        assert case.finish().check.right
        assert case.close().outcome == "passed"
    return block_us


def parent_of(pid: int) -> int:
    """Process id of the parent, as the kernel says."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def gone(pid: int, limit_seconds: float = 10.0) -> bool:
    """Whether a process ends within the limit; one that nobody has asked for its status has ended."""
    until = time.monotonic() + limit_seconds
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
    return True


def template_of(pool: WorkerPool) -> int:
    """Process id of a pool's template."""
    assert pool._template.process is not None
    return pool._template.process.pid


def fresh(pool: WorkerPool, *places: int) -> bool:
    """Whether the workers at these places are children of this process."""
    return all(parent_of(pool.wait_until_ready(place).pid) == os.getpid() for place in places)


def log_of(pool: WorkerPool, place: int) -> str:
    """What the worker at a place has written."""
    return pool._places[place].log.read_text()


def test_workers_are_forked_and_measure(make_pool: MakePool) -> None:
    """Three processes with one parent, which is none of them, each with a time of its own."""
    pool = make_pool()
    pool.start(range(3))
    pids = [pool.wait_until_ready(place).pid for place in range(3)]
    assert {parent_of(pid) for pid in pids} == {template_of(pool)}
    assert template_of(pool) not in pids
    assert len({measured(pool, place) for place in range(3)}) == 3


def test_all_end_with_the_pool(make_pool: MakePool) -> None:
    """Workers in an orderly way, and the template behind them."""
    pool = make_pool()
    pids = [pool.wait_until_ready(place).pid for place in range(2)]
    workers = [pool._places[place] for place in range(2)]
    pool.shutdown()
    assert [worker._process.returncode for worker in workers] == [0, 0]
    assert all(gone(pid) for pid in [*pids, template_of(pool)])
    assert pool._template.process is not None
    assert pool._template.process.returncode == 0


def test_each_worker_has_its_own_environment_and_log(
    attnperf_project: FakeProject, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name and its GPU, what a suite has set as it was imported, and nothing of what spared the driver."""
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    conftest = attnperf_project.path / "suites" / "conftest.py"
    conftest.write_text(SAYING + "os.environ['SET_AS_IMPORTED'] = os.environ['PYTORCH_NVML_BASED_CUDA_CHECK']\n")
    pool = make_pool("0", "1")
    for place in range(3):
        measured(pool, place)
    logs = [log_of(pool, place).splitlines() for place in range(3)]
    for place, (log, name, gpu) in enumerate(zip(logs, ("worker0-1", "worker1-2", "worker2-3"), "010", strict=True)):
        said = [line for line in log if line.startswith("runs in")]
        assert said == [f"runs in {pool.wait_until_ready(place).pid} {name} {gpu} None 1"]
    assert [line for log in logs for line in log if line.startswith("collected")] == [
        f"collected by {template_of(pool)}"
    ]


def test_what_the_user_says_of_the_check_stays(
    attnperf_project: FakeProject, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTORCH_NVML_BASED_CUDA_CHECK is not touched where it is set."""
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "0")
    (attnperf_project.path / "suites" / "conftest.py").write_text(SAYING)
    pool = make_pool()
    measured(pool)
    assert f"runs in {pool.wait_until_ready(0).pid} worker0-1 None 0 None" in log_of(pool, 0)


@pytest.mark.parametrize(
    ("fault", "said"),
    [("crash", "killed by SIGABRT"), ("segfault", "killed by SIGSEGV"), ("exit", "exit status"), ("kill", "SIGKILL")],
)
def test_a_forked_worker_that_dies(attnperf_project: FakeProject, make_pool: MakePool, fault: str, said: str) -> None:
    """Its end is told as that of any worker, with its own log, and the next one serves."""
    attnperf_project.backend("fake.b", time_us=1.0, fault=fault)
    pool = make_pool()
    pid, other = pool.wait_until_ready(0).pid, pool.wait_until_ready(1).pid
    with pytest.raises(WorkerError, match=f"died during 'check': .*{said}") as caught:
        measured(pool, 0, request("fake.b"))
    if fault == "segfault":
        assert "Fatal Python error: Segmentation fault" in caught.value.log_tail
    assert pool.wait_until_ready(0).pid not in (pid, other)
    assert measured(pool, 0) > 0
    assert pool.wait_until_ready(1).pid == other


@pytest.mark.parametrize("fault", ["hang", "stuck"])
def test_a_forked_worker_that_hangs_is_killed(attnperf_project: FakeProject, make_pool: MakePool, fault: str) -> None:
    """Also where it is stuck in C and hears no signal."""
    attnperf_project.backend("fake.b", time_us=1.0, fault=fault)
    pool = make_pool()
    pid = pool.wait_until_ready(0).pid
    with pytest.raises(WorkerError, match="did not answer 'check' within 1 s and was killed"):
        measured(pool, 0, request("fake.b", limit_seconds=1.0))
    assert gone(pid)
    assert measured(pool) > 0


def test_a_poisoned_worker_is_replaced(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """By another fork."""
    attnperf_project.backend("fake.b", time_us=1.0, fault="poison")
    pool = make_pool()
    pid = pool.wait_until_ready(0).pid
    with pytest.raises(CaseFailedError):
        measured(pool, 0, request("fake.b"))
    assert pool.wait_until_ready(0).pid != pid
    assert parent_of(pool.wait_until_ready(0).pid) == template_of(pool)


def test_a_case_of_its_own_process(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """--attnperf-isolate=case forks one for each case."""
    attnperf_project.backend("fake.b", time_us=1.0)
    pool, seen = make_pool(isolate="case"), []
    for backend in ("fake.a", "fake.b"):
        measured(pool, 0, request(backend))
        pid = pool.wait_until_ready(0).pid
        seen.append((pid, parent_of(pid)))
    assert len({pid for pid, _ in seen}) == 2
    assert {parent for _, parent in seen} == {template_of(pool)}


def test_a_worker_outlives_its_template(make_pool: MakePool) -> None:
    """It goes on measuring, and those that start behind it are started afresh."""
    pool = make_pool()
    pid = pool.wait_until_ready(0).pid
    os.kill(template_of(pool), signal.SIGKILL)
    assert gone(template_of(pool))
    assert measured(pool) > 0
    assert pool.wait_until_ready(0).pid == pid
    assert fresh(pool, 1, 2)


def test_the_end_of_a_worker_without_its_template(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """Nobody can ask how it ended; that it did is known, and its log is shown."""
    attnperf_project.backend("fake.b", time_us=1.0, fault="segfault")
    pool = make_pool()
    pool.wait_until_ready(0)
    os.kill(template_of(pool), signal.SIGKILL)
    assert gone(template_of(pool))
    with pytest.raises(WorkerError, match="died during 'check': nobody knows how") as caught:
        measured(pool, 0, request("fake.b"))
    assert "Fatal Python error: Segmentation fault" in caught.value.log_tail


CONTROLLER = """
import sys, time
from pathlib import Path
from pytest_attnperf.records import Role
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.pool import WorkerPool

root = Path(sys.argv[1])
plan = LaunchPlan([str(root / "suites" / "test_prefill.py")], root, root / "logs", Role.DEVICE,
                  passed_options=("--attnperf-device=gpu",))
pool = WorkerPool(plan)
print(pool.wait_until_ready(0).pid, pool.wait_until_ready(1).pid, pool._template.process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_workers_end_with_a_controller_that_is_killed(
    attnperf_project: FakeProject, make_pool: MakePool, stopped: bool
) -> None:
    """So does the template; also a worker that is stopped and could do nothing for it itself."""
    command = [sys.executable, "-c", CONTROLLER, str(attnperf_project.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert parent_of(pids[0]) == parent_of(pids[1]) == pids[2]
        if stopped:
            os.kill(pids[0], signal.SIGSTOP)
        process.kill()
    assert all(gone(pid) for pid in pids)


def test_a_device_that_does_not_say_that_it_forks(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """The template is the first worker, its log says why, and every other is started afresh."""
    attnperf_project.script["device"] = {}
    attnperf_project.backend("fake.a", time_us=100.0)
    pool = make_pool()
    attnperf_project.script["device"] = {}
    attnperf_project.backend("fake.a", time_us=100.0)
    pool.start(range(3))
    assert fresh(pool, 0, 1, 2)
    assert pool.wait_until_ready(0).pid == template_of(pool)
    assert pool._template.obstacle is Obstacle.DEVICE
    assert log_line(Obstacle.DEVICE) in log_of(pool, 0)
    assert len({measured(pool, place) for place in range(3)}) == 3


OBSTACLES = {
    Obstacle.THREADS: "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
    Obstacle.DRIVER: (
        "import sys, types\nsys.modules['torch'] = types.SimpleNamespace(\n"
        "    cuda=types.SimpleNamespace(is_initialized=lambda: True))\n"
    ),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_suite_that_must_not_be_forked(
    attnperf_project: FakeProject, make_pool: MakePool, obstacle: Obstacle
) -> None:
    """Threads would be lost, and a driver that is initialised is of no use behind a fork."""
    pool = make_pool()
    (attnperf_project.path / "suites" / "conftest.py").write_text(OBSTACLES[obstacle])
    pool.start(range(2))
    assert fresh(pool, 0, 1)
    assert pool._template.obstacle is obstacle
    assert pool.wait_until_ready(0).pid == template_of(pool)
    assert measured(pool, 0) > 0


def test_a_suite_that_cannot_be_collected(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """As of any worker: the error, with the log that says why."""
    pool = make_pool()
    (attnperf_project.path / "suites" / "test_prefill.py").write_text("import no_such_thing\n")
    with pytest.raises(WorkerError, match="could not start: the suite could not be collected") as caught:
        pool.wait_until_ready(0)
    assert "No module named 'no_such_thing'" in caught.value.log_tail


def test_a_template_that_ends_as_it_starts(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """The worker is started afresh, and says what it says."""
    pool = make_pool()
    (attnperf_project.path / "suites" / "conftest.py").write_text("import os\nos._exit(7)\n")
    with pytest.raises(WorkerError, match="died during 'start': exit status 7"):
        pool.wait_until_ready(0)


def test_one_that_is_not_wanted_any_more_ends(make_pool: MakePool) -> None:
    """Killed before the template has forked it."""
    pool = make_pool()
    pool.start(range(2))
    worker = pool._places[0]
    worker.kill()
    assert not worker.is_alive
    assert pool.wait_until_ready(1).pid
    assert measured(pool, 0) > 0


def test_a_start_that_takes_too_long(
    attnperf_project: FakeProject, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit holds for the template's start, too, whose log is the first worker's."""
    monkeypatch.setattr("pytest_attnperf.workers.pool.START_LIMIT_SECONDS", 2.0)
    pool = make_pool()
    (attnperf_project.path / "suites" / "conftest.py").write_text(
        "import time\nprint('waiting', flush=True)\ntime.sleep(600)\n"
    )
    with pytest.raises(WorkerError, match="did not answer 'start' within 2 s and was killed") as caught:
        pool.wait_until_ready(0)
    assert caught.value.log_tail == "waiting"
    monkeypatch.setattr(template, "END_SECONDS", 0.1)
    pool.shutdown()
    assert gone(template_of(pool))


DRAWING = """
import random, pytest
{seeding}
@pytest.fixture(autouse=True)
def draw():
    print("drew", random.random(), flush=True)
"""


@pytest.mark.parametrize(("seeding", "different"), [("", 2), ("random.seed(7)", 1)])
def test_random_numbers_are_those_of_a_fresh_process(
    attnperf_project: FakeProject, make_pool: MakePool, seeding: str, different: int
) -> None:
    """Others in every worker, unless a suite seeds as it is imported."""
    (attnperf_project.path / "suites" / "conftest.py").write_text(DRAWING.format(seeding=seeding))
    pool = make_pool()
    for place in range(2):
        measured(pool, place)
    drawn = {line for place in range(2) for line in log_of(pool, place).splitlines() if line.startswith("drew")}
    assert len(drawn) == different


def test_only_workers_on_a_gpu_are_forked(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU processes that are forked would agree for the wrong reason; ATTNPERF_FORK=0 starts all afresh."""
    plan = (pool := make_pool()).plan
    assert isinstance(plan, LaunchPlan)
    assert [role for role in Role if template.may_fork(replace(plan, role=role), {})] == [Role.DEVICE]
    assert not template.may_fork(plan, {SWITCH: "0"})
    monkeypatch.setenv(SWITCH, "0")
    assert fresh(pool, 0, 1)


def test_a_forked_worker_whose_channel_a_grandchild_holds(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """Its end is seen by its own descriptor, also where it was asked whether it lives before it was ready."""
    (attnperf_project.path / "suites" / "conftest.py").write_text(
        "import os, time\n\ndef pytest_runtest_setup(item):\n    if os.fork() == 0:\n        time.sleep(600)\n"
    )
    attnperf_project.backend("fake.b", time_us=1.0, fault="kill")
    pool = make_pool()
    pool.start(range(2))
    pool.wait_until_ready(0)
    time.sleep(0.5)
    assert pool._places[1].is_alive
    began = time.monotonic()
    with pytest.raises(WorkerError, match="died during 'check': killed by SIGKILL"):
        measured(pool, 1, request("fake.b"))
    assert time.monotonic() - began < 20.0
