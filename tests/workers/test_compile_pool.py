"""Real compile workers on object files that exist already: no compiler is needed."""

import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.backends import Registry
from pytest_attnperf.codeobject.built import object_bytes
from pytest_attnperf.errors import CaseFailedError, UsageError, WorkerError
from pytest_attnperf.records import CaseKey, Fingerprint, Role
from pytest_attnperf.records.notes import NoteKind
from pytest_attnperf.testing.project import FakeProject
from pytest_attnperf.workers import compile_pool
from pytest_attnperf.workers.compile_pool import CompilePool, make_compile_plan
from pytest_attnperf.workers.compile_server import CompilerDevice, CompileServer
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.protocol import Channel

DATA = Path(__file__).parents[1] / "data" / "code_objects"
OBJECT = "saxpy.gfx942.co"

SUITE = """
import dataclasses
import pytest

def test_code(code_object, kernel_build):
    if kernel_build.config == "skips":
        pytest.skip("not today")
    if kernel_build.config == "forgets":
        return
    if kernel_build.config == "swaps":
        kernel_build = dataclasses.replace(kernel_build, config="a")
    code_object.gate(kernel_build)
    if kernel_build.config == "fails":
        assert kernel_build.threads == 1
    if kernel_build.config == "twice":
        code_object.gate(kernel_build)
"""

CONFTEST = '''
import dataclasses, json, os, pathlib, signal, subprocess, time

import pytest_attnperf.workers.compile_server as server
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, ObjectFile

HERE = pathlib.Path(__file__).parent


class Saxpy(Kernel):
    def builds(self, arch):
        for config in json.loads((HERE / "configs.json").read_text()):
            path = HERE / ("missing.co" if config == "missing" else "OBJECT")
            yield KernelBuild(self.name, config, arch, ObjectFile(path, "saxpy", 256, 512, "clang 22.1.8"))


def pytest_attnperf_register_kernels(kernels):
    kernels.add(Saxpy("hip.saxpy", ()))


def meet(config):
    """Wait for the other one of two builds."""
    (HERE / config).touch()
    other = HERE / ("meets2" if config == "meets1" else "meets1")
    while not other.exists():
        time.sleep(0.01)


def hang():
    """As a compiler does that never ends."""
    child = subprocess.Popen(["sleep", "60"])
    (HERE / "child").write_text(str(child.pid))
    child.wait()


ACTS = {
    "dies": lambda config: os.kill(os.getpid(), signal.SIGKILL),
    "hangs": lambda config: hang(),
    "meets1": meet,
    "meets2": meet,
}
real = server.build_object


def build(declared, cache):
    with (HERE / "order.txt").open("a") as order:
        order.write(f"{declared.config} {os.getpid()}\\n")
    ACTS.get(declared.config, lambda config: None)(declared.config)
    return real(declared, cache)


server.build_object = build
'''.replace("OBJECT", OBJECT)

MakePool = Callable[..., CompilePool]


def key(config: str) -> CaseKey:
    """An item of the project."""
    return CaseKey("code_objects", "hip.saxpy", config, "gfx942")


@pytest.fixture
def root(attnperf_project: FakeProject) -> Path:
    """A project with one kernel, and a suite over its configurations."""
    path = attnperf_project.path
    (path / "suites" / "test_prefill.py").unlink()
    (path / "suites" / "test_code.py").write_text(SUITE)
    (path / "conftest.py").write_text(CONFTEST)
    shutil.copy(DATA / OBJECT, path)
    return path


def ended(pids: set[int]) -> bool:
    """Whether all of these end within seconds: a signal to a whole group takes a moment to reach everybody."""
    deadline = time.monotonic() + 5
    while any(map(runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(map(runs, pids))


def workers_of(root: Path) -> list[int]:
    """Processes that were started for the project and still run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if f"--rootdir={root}".encode() in command and runs(int(process.name)):
            found.append(int(process.name))
    return found


@pytest.fixture
def make_pool(root: Path) -> Iterator[MakePool]:
    """A pool over these configurations of the project; its workers are ended behind the test."""
    pools: list[CompilePool] = []

    def make(*configs: str, size: int = 1, limit_seconds: float = 30.0) -> CompilePool:
        (root / "configs.json").write_text(json.dumps(configs))
        plan = LaunchPlan(
            files=(),
            rootdir=root,
            scratch=root / ".attnperf" / "logs",
            role=Role.INTERPRET,
            passed_options=("--attnperf-device=cpu", "--attnperf-arch=gfx942"),
        )
        pools.append(CompilePool(make_compile_plan(plan, [str(root / "suites" / "test_code.py")]), size, limit_seconds))
        return pools[-1]

    yield make
    for pool in pools:
        pool.shutdown()


def begun(root: Path) -> list[tuple[str, int]]:
    """Builds in the order in which workers began them, with the worker's process id."""
    file = root / "order.txt"
    words = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(config, int(pid)) for config, pid in words]


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_builds_come_in_the_order_they_were_asked_for(root: Path, make_pool: MakePool) -> None:
    """One process compiles all of them, in order and each once, whichever is waited for first."""
    pool = make_pool("a", "b", "c")
    pool.begin([key("a"), key("b"), key("c"), key("b")])
    last, first = pool.compile_case(key("c")), pool.compile_case(key("a"))
    assert pool.compile_case(key("c")) is last
    assert [config for config, _ in begun(root)] == ["a", "b", "c"]
    assert len({pid for _, pid in begun(root)}) == 1
    assert first.built is not None
    assert object_bytes(first.built) == (DATA / OBJECT).read_bytes()
    assert (first.built.kernel, first.built.threads, first.built.lds_dynamic_bytes) == ("saxpy", 256, 512)
    assert (first.outcome, first.text, first.unsupported, first.foreign) == ("passed", "", (), ())
    assert set(first.sources) >= {"conftest.py", "suites/test_code.py"}


def test_two_processes_compile_beside_each_other(root: Path, make_pool: MakePool) -> None:
    """Two builds that wait for one another both end, before anybody waits for them."""
    pool = make_pool("meets1", "meets2", size=2)
    pool.begin([key("meets1"), key("meets2")])
    assert None not in (pool.compile_case(key("meets1")).built, pool.compile_case(key("meets2")).built)
    assert len({pid for _, pid in begun(root)}) == 2


def test_a_build_that_raises_leaves_the_worker_usable(root: Path, make_pool: MakePool) -> None:
    """An object that is missing is that item's error, whose text says all; the same process takes the next."""
    pool = make_pool("missing", "a")
    pool.begin([key("missing"), key("a")])
    with pytest.raises(
        CaseFailedError, match=r"hip\.saxpy, configuration 'missing', for gfx942: .*missing\.co"
    ) as caught:
        pool.compile_case(key("missing"))
    assert "Traceback" not in str(caught.value)
    assert pool.compile_case(key("a")).built is not None
    assert len({pid for _, pid in begun(root)}) == 1


def test_what_a_test_does_beside_its_build(root: Path, make_pool: MakePool) -> None:
    """A test that skips, forgets its build, fails behind it, asks twice, or for another build than its own: each says
    so, and the worker goes on."""
    configs = ("skips", "forgets", "fails", "twice", "swaps", "a")
    pool = make_pool(*configs)
    pool.begin(map(key, configs))
    found = [pool.compile_case(key(config)) for config in configs]
    assert [one.outcome for one in found] == ["skipped", "passed", "failed", "failed", "failed", "passed"]
    assert [one.built is None for one in found] == [True, True, False, False, True, False]
    assert found[0].text == "not today"
    assert found[2].text.startswith("call: AttributeError: ")
    assert "code_object.gate() was called twice in one test" in found[3].text.partition("\n")[0]
    said = "was given hip.saxpy-a-gfx942 in the test of code_objects/hip.saxpy/swaps/gfx942"
    assert said in found[4].text.partition("\n")[0]
    assert [config for config, _ in begun(root)] == ["fails", "twice", "a"]


def test_a_killed_worker_is_replaced(root: Path, make_pool: MakePool) -> None:
    """Its item is an error that names the signal; the next is compiled by a fresh process."""
    pool = make_pool("dies", "a", "b")
    pool.begin(map(key, ("dies", "a", "b")))
    with pytest.raises(WorkerError, match="worker compile0-1 died during 'open': killed by SIGKILL") as caught:
        pool.compile_case(key("dies"))
    assert (caught.value.kind, caught.value.starting) == (NoteKind.KILLED, False)
    assert pool.compile_case(key("a")).built is not None
    assert pool.compile_case(key("b")).built is not None
    (_, dead), (_, second), (_, third) = begun(root)
    assert dead != second == third


def test_a_worker_that_was_killed_between_items_is_replaced(root: Path, make_pool: MakePool) -> None:
    """No item is an error for it."""
    pool = make_pool("a", "b")
    assert pool.compile_case(key("a")).built is not None
    [(_, pid)] = begun(root)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # ended with all its threads, and left for the pool to notice
    assert pool.compile_case(key("b")).built is not None


def test_a_compilation_without_end_is_ended(root: Path, make_pool: MakePool) -> None:
    """At its limit the worker is killed with what it started; the next item gets a fresh one."""
    pool = make_pool("hangs", "a", limit_seconds=1.0)
    pool.begin(map(key, ("hangs", "a")))
    with pytest.raises(WorkerError, match=r"did not answer 'open' within 1 s and was killed \(--attnperf-case-limit"):
        pool.compile_case(key("hangs"))
    assert ended({int((root / "child").read_text())})
    assert pool.compile_case(key("a")).built is not None


def test_a_suite_that_cannot_be_collected(root: Path, make_pool: MakePool) -> None:
    """One error with the log for every item, and one process that tried."""
    (root / "suites" / "test_code.py").write_text("import no_such_module_anywhere\n")
    pool = make_pool("a", "b", "c")
    pool.begin(map(key, ("a", "b", "c")))
    for config in ("a", "b", "c"):
        with pytest.raises(WorkerError, match="worker compile0-1 could not start") as caught:
            pool.compile_case(key(config))
        assert "no_such_module_anywhere" in caught.value.log_tail
    assert [path.name for path in (root / ".attnperf" / "logs").glob("*.log")] == ["compile0-1.log"]


def test_an_item_that_is_not_there(root: Path, make_pool: MakePool) -> None:
    """A key of no item is an error that says so, and the worker goes on."""
    pool = make_pool("a")
    with pytest.raises(WorkerError, match=r"worker compile0-1 has no item .*hip\.saxpy/gone/gfx942; it has coll.* 1"):
        pool.compile_case(key("gone"))
    assert pool.compile_case(key("a")).built is not None
    assert len(begun(root)) == 1


def test_shutting_down_leaves_nothing_behind(root: Path, make_pool: MakePool) -> None:
    """A worker in the middle of a compilation, what it started, and one that waits are ended at once."""
    pool = make_pool("a", "hangs", "b", size=2)
    pool.begin(map(key, ("a", "hangs")))
    assert pool.compile_case(key("a")).built is not None
    while not (root / "child").exists() or not (root / "child").read_text():
        time.sleep(0.01)
    pids = {pid for _, pid in begun(root)} | {int((root / "child").read_text())}
    assert all(map(runs, pids))
    started = time.monotonic()
    pool.shutdown()
    assert time.monotonic() - started < 5
    assert ended(pids)
    pool.shutdown()
    with pytest.raises(WorkerError, match="have been ended"):
        pool.compile_case(key("b"))
    assert pool.compile_case(key("a")).built is not None


def test_shutting_down_while_workers_start(root: Path, make_pool: MakePool) -> None:
    """Processes that have only just been started, and have said nothing yet, are ended, too."""
    pool = make_pool("a", "b", size=2)
    pool.begin(map(key, "ab"))
    deadline = time.monotonic() + 5
    while len(workers_of(root)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)  # between fork and exec a process has its parent's command line
    assert len(workers_of(root)) == 2
    pool.shutdown()
    assert workers_of(root) == []


def test_a_compile_workers_plan(tmp_path: Path) -> None:
    """It has the files of its own items once each, a role that shows no GPU and never interprets, and a flag for it."""
    plan = LaunchPlan(("old.py",), tmp_path, tmp_path, Role.INTERPRET, passed_options=("--attnperf-device=cpu",))
    compiling = make_compile_plan(plan, ["b.py", "a.py", "b.py"])
    assert compiling.files == ("b.py", "a.py")
    command = compiling.make_command(3, "compile0-1")
    assert {"--attnperf-device=cpu", "--attnperf-worker-role=compile", "a.py"} <= set(command)
    environment = compiling.make_environment(
        {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "0"}, "w", compile_pool.NO_GPU
    )
    assert "TRITON_INTERPRET" not in environment
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["HIP_VISIBLE_DEVICES"]) == ("", "")


def test_a_compile_worker_runs_no_backend() -> None:
    """A timed case that strays into one is refused by name, whether by its server or its device."""
    ours, theirs = socket.socketpair()
    with ours:
        server = CompileServer(Channel(theirs), [key("a")], Path(), Path(), Registry().get)
        strayed: Any = SimpleNamespace(name="triton.flash", id="prefill-b1")
        with pytest.raises(UsageError, match=r"only compiles, .* with triton\.flash on prefill-b1"):
            server.serve_case(strayed, strayed)
    device = CompilerDevice()
    with pytest.raises(UsageError, match=r"runs no backend, but a test calls triton\.flash"):
        device.subject(strayed, strayed, (1, 2))
    assert (device.info().kind, device.canary(), device.healthy()) == ("cpu", {}, True)
    assert device.fingerprint() == Fingerprint({}, {})
