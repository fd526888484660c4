"""The far end of a worker behind a command, in real processes on the fake device."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf import __version__
from pytest_attnperf.errors import WorkerError
from pytest_attnperf.records import METHOD_VERSION, CaseKey, Role
from pytest_attnperf.testing.project import WORKLOAD, FakeProject
from pytest_attnperf.workers.command_plan import CommandPlan
from pytest_attnperf.workers.conversation import BlockPlan, OpenRequest
from pytest_attnperf.workers.pool import WorkerPool

WORKER = (sys.executable, "-m", "pytest_attnperf.cli", "worker")
KEY = CaseKey("prefill", "fake.a", WORKLOAD)
MakePool = Callable[..., WorkerPool]

RELAY = """
import subprocess, sys, threading
far = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
def back():
    while chunk := far.stdout.read1(65536):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
threading.Thread(target=back, daemon=True).start()
while chunk := sys.stdin.buffer.read1(65536):
    far.stdin.write(chunk)
    far.stdin.flush()
far.stdin.close()
sys.exit(far.wait())
"""
"""What `docker run -i` is to a container: a client whose death by SIGKILL does not reach what it started."""


@pytest.fixture
def make_pool(attnperf_project: FakeProject, tmp_path: Path) -> Iterator[MakePool]:
    """A pool behind a command that serves the fake project; its workers are ended behind the test."""
    pools: list[WorkerPool] = []

    def make(argv: Sequence[str] = WORKER, files: Sequence[str] = ("suites/test_prefill.py",)) -> WorkerPool:
        plan = CommandPlan(
            argv=(*argv, f"--rootdir={attnperf_project.path}"),
            files=files,
            role=Role.INTERPRET,
            scratch=tmp_path / "scratch",
            options=("--attnperf-device=cpu",),
        )
        pools.append(WorkerPool(plan))
        return pools[-1]

    yield make
    for pool in pools:
        pool.shutdown()


def measured_us(pool: WorkerPool, limit_seconds: float = 30.0) -> float:
    """The project's case, whole; its first block in microseconds."""
    with pool.case_at(0, OpenRequest(KEY, None, 1, 2, limit_seconds)) as case:
        assert case.open().state == "open"
        assert case.check().right
        block_us = case.measure_blocks(BlockPlan(max_blocks=5)).block_us[0]
        assert case.finish().check.right
        assert case.close().outcome == "passed"
    return block_us


def runs(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends_within(pid: int, seconds: float) -> bool:
    """Whether a process ends in that time."""
    deadline = time.monotonic() + seconds
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not runs(pid)


def typed(text: bytes, folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """`attnperf worker ARGUMENTS` with `text` on its standard input, in `folder`."""
    return subprocess.run([*WORKER, *arguments], input=text, capture_output=True, cwd=folder, timeout=60, check=False)


def start_line(**changes: Any) -> bytes:
    """A start line for the fake project."""
    fields = {"files": ["suites/test_prefill.py"], "options": [], "name": "w", "role": "interpret"}
    return json.dumps({"start": {**fields, **changes}}).encode() + b"\n"


def test_a_case_is_measured_behind_a_command(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """The whole conversation runs over a command's standard input and output, in one process for all cases."""
    attnperf_project.script["process_sd"] = 0.0
    attnperf_project.backend("fake.a", time_us=100.0, block_sd=0.0)
    pool = make_pool()
    ready = pool.wait_until_ready(0)
    assert (ready.harness, ready.method, ready.cases) == (__version__, METHOD_VERSION, (KEY,))
    assert measured_us(pool) == 100.0
    assert measured_us(pool) == 100.0
    assert pool.wait_until_ready(0).pid == ready.pid


def test_what_a_test_prints_does_not_reach_the_protocol(
    attnperf_project: FakeProject, make_pool: MakePool, tmp_path: Path
) -> None:
    """print(), a write to descriptor 1 and a child's output go to the log; reading standard input finds its end."""
    attnperf_project.backend("fake.a", time_us=100.0, fault="chatter")
    suite = attnperf_project.path / "suites" / "test_prefill.py"
    chatter = (
        "    import os, sys\n    print('{\"id\": 1}')\n    os.write(1, b'from the kernel\\n')\n"
        "    os.system('echo from a child')\n    assert sys.stdin.read() == ''\n    attnperf.run"
    )
    suite.write_text(suite.read_text().replace("    attnperf.run", chatter))
    measured_us(make_pool())
    log = (tmp_path / "scratch" / "worker0-1.log").read_text()
    assert all(text in log for text in ('{"id": 1}', "from the kernel", "from a child", "x" * 200_000))


def test_the_far_worker_is_set_up_like_a_local_one(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """Its name, role and variables arrive, its addopts are emptied, and nothing is written into its tree."""
    attnperf_project.backend("fake.a", time_us=10.0)
    attnperf_project.pytester.makeini("[pytest]\naddopts = --junitxml=report.xml\n")
    attnperf_project.conftest(
        "import json, os\n"
        "names = ('ATTNPERF_WORKER', 'TRITON_INTERPRET', 'HIP_VISIBLE_DEVICES')\n"
        "open('seen.json', 'w').write(json.dumps({name: os.environ.get(name) for name in names}))\n"
    )
    pool = make_pool()
    pool.gpus = ("5",)
    measured_us(pool)
    pool.shutdown()
    seen = json.loads((attnperf_project.path / "seen.json").read_text())
    assert seen == {"ATTNPERF_WORKER": "worker0-1", "TRITON_INTERPRET": "1", "HIP_VISIBLE_DEVICES": "5"}
    assert not (attnperf_project.path / "report.xml").exists()
    assert not (attnperf_project.path / ".pytest_cache").exists()


def test_a_crash_behind_a_command_is_named(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """The signal that killed the far pytest and the far log are in the error, and the next case gets a fresh worker."""
    attnperf_project.backend("fake.a", fault="crash")
    pool = make_pool()
    with pytest.raises(WorkerError, match=r"died during 'check': exit status 134 \(SIGABRT\)") as caught:
        measured_us(pool)
    assert "scripted abort in kernel fake_kernel" in caught.value.log_tail
    attnperf_project.backend("fake.a", time_us=10.0)
    measured_us(pool)


def test_a_far_worker_that_hangs_ends_although_no_signal_reaches_it(
    attnperf_project: FakeProject, make_pool: MakePool, tmp_path: Path
) -> None:
    """Behind a client like docker's, a worker that is stuck in a kernel is ended by closing its input."""
    attnperf_project.backend("fake.a", fault="hang")
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    pool = make_pool((sys.executable, str(relay), *WORKER))
    pid = pool.wait_until_ready(0).pid
    with pytest.raises(WorkerError, match="did not answer 'check' within"):
        measured_us(pool, limit_seconds=0.7)
    assert not runs(pid), "the client waits for what it started, so the GPU is free when kill() returns"


def test_a_far_worker_ends_when_its_client_is_killed(
    attnperf_project: FakeProject, make_pool: MakePool, tmp_path: Path
) -> None:
    """A client that dies takes its pipes along, and the far worker sees their end."""
    attnperf_project.backend("fake.a", time_us=10.0)
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    pool = make_pool((sys.executable, str(relay), *WORKER))
    pid = pool.wait_until_ready(0).pid
    os.kill(pool._places[0].pid, signal.SIGKILL)
    assert ends_within(pid, 20)


def test_a_worker_that_is_asked_to_end_takes_pytest_along(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """SIGTERM, which `docker stop` sends, ends the far pytest too."""
    attnperf_project.backend("fake.a", time_us=10.0)
    pool = make_pool()
    pid = pool.wait_until_ready(0).pid
    os.kill(pool._places[0].pid, signal.SIGTERM)
    assert ends_within(pid, 20)


def test_shutting_down_leaves_nothing_behind(
    attnperf_project: FakeProject, make_pool: MakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The far pytest ends in an orderly way, and its private folder is removed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    attnperf_project.backend("fake.a", time_us=10.0)
    pool = make_pool()
    pid, worker = pool.wait_until_ready(0).pid, pool._places[0]
    assert list(tmp_path.glob("attnperf-worker-*"))
    pool.shutdown()
    assert not runs(pid)
    assert worker._process.returncode == 0
    assert not list(tmp_path.glob("attnperf-worker-*"))


def test_a_file_the_far_tree_lacks_is_left_out(
    attnperf_project: FakeProject, make_pool: MakePool, tmp_path: Path
) -> None:
    """A new suite file does not keep the others from being served; the log says what is missing."""
    attnperf_project.backend("fake.a", time_us=10.0)
    pool = make_pool(files=("suites/test_prefill.py", "suites/test_new.py"))
    assert pool.wait_until_ready(0).cases == (KEY,)
    assert "has no suites/test_new.py; it is left out" in (tmp_path / "scratch" / "worker0-1.log").read_text()


def test_a_far_suite_that_does_not_import(attnperf_project: FakeProject, make_pool: MakePool) -> None:
    """The far pytest's traceback is quoted here."""
    (attnperf_project.path / "suites" / "test_prefill.py").write_text("import no_such_module_anywhere\n")
    with pytest.raises(WorkerError, match=r"\(`.*worker.*`\) could not start") as caught:
        make_pool().wait_until_ready(0)
    assert "no_such_module_anywhere" in caught.value.log_tail


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (b"", [], "standard input ended before the start line was whole; it held b''"),
        (b'{"start": {', [], "it held b'{\"start\": {'"),
        (b"hello\n", [], "the first line on standard input must be like"),
        (b"x" * 1_100_000, [], "is longer than 1048576 bytes, so it is no start line; it begins with b'xxx"),
        (start_line(role="gpu"), [], "the start line's 'role' is 'gpu'"),
        (start_line(), [], "none of the 1 test files exists in"),
        (start_line(), ["--rootdir=absent"], "absent is no folder; name the tree that holds suites/test_prefill.py"),
    ],
)
def test_a_bad_start(text: bytes, arguments: list[str], message: str, tmp_path: Path) -> None:
    """One message on standard error, nothing on standard output, exit status 2."""
    result = typed(text, tmp_path, *arguments)
    (line,) = result.stderr.decode().splitlines()
    assert result.returncode == 2
    assert result.stdout == b""
    assert line.startswith("attnperf: ")
    assert message in line


def test_typed_by_hand(tmp_path: Path) -> None:
    """On a terminal it says what it is for instead of waiting for ever."""
    ours, theirs = os.openpty()
    command = [*WORKER, "--rootdir", str(tmp_path)]
    result = subprocess.run(command, stdin=theirs, capture_output=True, timeout=60, check=False)
    os.close(ours)
    os.close(theirs)
    assert result.returncode == 2
    assert b"is not typed by hand: it is what COMMAND in --attnperf-against=COMMAND runs" in result.stderr
