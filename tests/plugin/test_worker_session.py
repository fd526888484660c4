import os
import re
import shutil
import socket
import sys
from pathlib import Path

import pytest

from pytest_attnperf.plugin.worker_session import open_channel
from pytest_attnperf.testing.project import FakeProject
from pytest_attnperf.workers.protocol import Channel


def assert_they_talk(near: Channel, far: Channel) -> None:
    """A message of each arrives at the other; both are closed."""
    near.send({"id": 1})
    assert far.receive(1.0) == {"id": 1}
    far.send({"id": 2})
    assert near.receive(1.0) == {"id": 2}
    near.close()
    far.close()


def test_a_socket_is_named_by_one_number() -> None:
    """A worker of this machine has one descriptor for both ways."""
    ours, theirs = socket.socketpair()
    near, far = Channel(ours), open_channel(str(theirs.detach()))
    assert_they_talk(near, far)


def test_two_pipes_are_named_by_two_numbers() -> None:
    """A worker behind a command reads from the first and writes to the second."""
    near_in, far_out = os.pipe()
    far_in, near_out = os.pipe()
    near, far = Channel.from_fds(near_in, near_out), open_channel(f"{far_in},{far_out}")
    assert_they_talk(near, far)


@pytest.mark.parametrize("text", ["", "seven", "1,2,3", "99999", "99998,99999", "-1"])
def test_what_is_no_channel_is_shown(text: str) -> None:
    """A value that names no open descriptors is a usage error that says what it must name."""
    expected = re.escape(f"--attnperf-worker-fd={text!r} must name an open socket, or an open descriptor to read")
    with pytest.raises(pytest.UsageError, match=expected):
        open_channel(text)


SAYING = """
import os
if "ATTNPERF_WORKER" in os.environ:
    import side_kernel
    said = ("template", os.getpid(), side_kernel.__file__)
    def pytest_runtest_setup(item):
        print(*said, "worker", os.getpid(), os.getcwd(), flush=True)
"""


def said_in(project: FakeProject, side: str) -> list[list[str]]:
    """What workers of a side said in their logs, one list of words for each of their cases."""
    logs = sorted((project.path / ".attnperf" / "logs").glob(f"*/{side}*.log"))
    return [line.split() for log in logs for line in log.read_text().splitlines() if line.startswith("template")]


@pytest.fixture
def two_trees(attnperf_project: FakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose workers may be forked, and a copy of it, which is the base side; both on PYTHONPATH."""
    attnperf_project.script["device"] = {"forks": True}
    attnperf_project.script["process_sd"] = 0.002
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.conftest(SAYING)
    libraries = attnperf_project.path / "libraries"
    libraries.mkdir()
    (libraries / "side_kernel.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(libraries), prepend=os.pathsep)
    base = tmp_path.parent / f"{tmp_path.name}-base"
    shutil.copytree(attnperf_project.path, base)
    return base


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every worker is started afresh")
def test_each_side_forks_workers_of_its_own_tree(attnperf_project: FakeProject, two_trees: Path) -> None:
    """One template for each side, which has imported that side's code and stands in its folder."""
    attnperf_project.backend("fake.a", time_us=110)
    against = ("--attnperf", f"--attnperf-against={two_trees}", "--attnperf-pairs=3", "--attnperf-device=gpu")
    attnperf_project.run(*against).assert_outcomes(failed=1)
    assert attnperf_project.verdicts() == {"fake.a": "SLOWER"}
    for side, tree, least in (("worker", attnperf_project.path, 4), ("base", two_trees, 3)):
        said = said_in(attnperf_project, side)
        assert {(file, folder) for _, _, file, _, _, folder in said} == {
            (str(tree / "libraries" / "side_kernel.py"), str(tree))
        }
        assert len({template for _, template, *_ in said}) == 1
        assert len({worker for *_, worker, _ in said}) >= least


@pytest.mark.parametrize(("device", "begun"), [("gpu", True), ("cpu", False)])
def test_the_base_side_collects_while_this_side_does(
    attnperf_project: FakeProject, two_trees: Path, device: str, begun: bool
) -> None:
    """Where workers are forked, for the first pair to wait for nothing; elsewhere only where a case is left open."""
    attnperf_project.store_baselines()
    against = ("--attnperf", f"--attnperf-against={two_trees}", f"--attnperf-device={device}")
    attnperf_project.run(*against).assert_outcomes(passed=1)
    assert bool(list((attnperf_project.path / ".attnperf" / "logs").glob("*/base*.log"))) is begun


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every worker is started afresh")
def test_why_workers_are_not_forked_is_in_the_log(attnperf_project: FakeProject, two_trees: Path) -> None:
    """A suite that starts a thread as it is imported is measured all the same."""
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    attnperf_project.conftest(SAYING + thread)
    result = attnperf_project.run("--update-baselines", "--attnperf-device=gpu")
    assert result.ret == 0, result.stdout.str()
    logs = "".join(log.read_text() for log in (attnperf_project.path / ".attnperf" / "logs").glob("*/*.log"))
    assert logs.count("attnperf: every worker is started as a new process, which takes seconds: a suite, or") == 1
    said = said_in(attnperf_project, "worker")
    assert all(template == worker for _, template, _, _, worker, _ in said)
