import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.base_build import build_folders, remove_stale_locks, run_build, short_hash, toolchain_id

Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Run a build command in a folder; its log."""

    def run(command: str, limit_seconds: float = 30.0, **environment: str) -> Path:
        folder, log = tmp_path / "tree", tmp_path / "build.log"
        folder.mkdir(exist_ok=True)
        run_build(
            command,
            label="origin/main (4f2c1abc)",
            folder=folder,
            python=sys.executable,
            environment={"PATH": os.environ["PATH"], **environment},
            log=log,
            limit_seconds=limit_seconds,
        )
        return log

    return run


def test_a_build_runs_through_the_shell_in_the_tree(build: Build, tmp_path: Path) -> None:
    """Its folder is the tree, its environment the side's, and what it prints is in the log."""
    log = build("echo $WHO > built && pwd; echo problem >&2", WHO="base")
    assert (tmp_path / "tree" / "built").read_text() == "base\n"
    assert log.read_text() == f"{tmp_path / 'tree'}\nproblem\n"


def test_python_in_a_build_is_the_workers_interpreter(build: Build) -> None:
    """A build made with another python than the one that loads it would fail there, or worse, not fail."""
    log = build("python -c 'import sys; print(sys.prefix)'")
    assert log.read_text().strip() == sys.prefix


def test_a_failing_build_says_what_it_printed_last(build: Build) -> None:
    """The error names the side, the command, the status and the log, and quotes the log's last 25 lines."""
    with pytest.raises(UsageError) as caught:
        build("seq 1 100; exit 3")
    text = str(caught.value)
    assert "base side origin/main (4f2c1abc): the build command 'seq 1 100; exit 3'" in text
    assert "ended with exit status 3" in text
    assert "build.log ---\n76\n" in text
    assert text.endswith("\n100")


def test_a_silent_failure_and_a_killed_build_are_named(build: Build) -> None:
    """Without a line to quote the error says so; a signal is called by its name."""
    with pytest.raises(UsageError, match=r"ended with exit status 1; it printed nothing \(.*build.log\)"):
        build("false")
    with pytest.raises(UsageError, match="was killed by SIGKILL"):
        build("kill -9 $$")


def test_a_build_that_hangs_is_ended_with_its_children(build: Build, tmp_path: Path) -> None:
    """The limit ends everything that the command started."""
    with pytest.raises(UsageError, match="did not end within 0 s"):
        build("sleep 60 & echo $! > child; wait", limit_seconds=0.4)
    child = int((tmp_path / "tree" / "child").read_text())
    for _ in range(100):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child of the build still runs")


def test_a_side_compiles_into_folders_of_its_own(tmp_path: Path) -> None:
    """torch's extensions and inductor always; aiter only where it is the side's own; Triton's cache is shared."""
    plain = build_folders(tmp_path / "a", own_aiter=False)
    assert set(plain) == {"TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR"}
    assert set(build_folders(tmp_path / "b", own_aiter=True)) - set(plain) == {"AITER_JIT_DIR"}
    assert all(Path(folder).is_dir() for folder in plain.values())


def test_locks_of_killed_compilers_are_removed(tmp_path: Path) -> None:
    """torch waits for ever for a lock file whose owner is gone; the extension itself stays."""
    folder = Path(build_folders(tmp_path, own_aiter=False)["TORCH_EXTENSIONS_DIR"])
    (folder / "my_kernel").mkdir()
    (folder / "my_kernel" / "lock").touch()
    (folder / "my_kernel" / "my_kernel.so").touch()
    remove_stale_locks(tmp_path)
    assert [path.name for path in (folder / "my_kernel").iterdir()] == ["my_kernel.so"]


def test_a_toolchain_is_told_from_another() -> None:
    """The same interpreter has one id, another has its own, and parts do not run together."""
    assert toolchain_id("/a/python") == toolchain_id("/a/python")
    assert toolchain_id("/a/python") != toolchain_id("/b/python")
    assert short_hash("a", "b") != short_hash("ab")
