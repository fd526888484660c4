from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.tools.doctor.child import answer_of, end_all


def ask(source: str, folder: Path, limit_s: float = 10.0) -> dict[str, object]:
    """What a Python program answers."""
    return answer_of((sys.executable, "-S", "-c", source), limit_s=limit_s, environ=os.environ, folder=folder)


def test_last_line_is_the_answer(tmp_path: Path) -> None:
    """Chatter before the answer, and on the error output, does not matter."""
    source = "import sys; print('loading'); print('warning', file=sys.stderr); print('{\"a\": 1}')"
    assert ask(source, tmp_path) == {"a": 1}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print('hello')", "is 'hello', not a JSON object"),
        ("print('[1]')", "is '[1]', not a JSON object"),
        ("", "is '', not a JSON object"),
        ("raise ImportError('libhip.so: no such file')", "ImportError: libhip.so: no such file"),
        ("import sys; sys.exit(7)", "ended with status 7"),
        ("import os; os.kill(os.getpid(), 11)", "ended by signal 11"),
    ],
)
def test_failures_are_said_in_one_line(tmp_path: Path, source: str, said: str) -> None:
    """A process that raises, ends, crashes or prints rubbish is a ProbeError that says which."""
    with pytest.raises(ProbeError) as caught:
        ask(source, tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def ends_soon(pid: str) -> bool:
    """Whether a process is gone, or dead and not yet waited for; the kernel takes a moment to end it."""
    stat, ends_s = Path("/proc", pid, "stat"), time.monotonic() + 5
    while time.monotonic() < ends_s:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def slow(then: str) -> str:
    """A program that starts another, says which in a file, and then does this."""
    return (
        "import subprocess, sys, time; child = subprocess.Popen(['sleep', '30']); "
        f"open('pid', 'w').write(str(child.pid)); {then}"
    )


def test_slow_process_and_what_it_started_are_ended(tmp_path: Path) -> None:
    """A process that hangs is ended at its limit, and so is a child that holds its output open after its end."""
    folders = {tmp_path / name: then for name, then in (("a", "time.sleep(30)"), ("b", "sys.exit()"))}

    def failure(folder: Path) -> str:
        folder.mkdir()
        with pytest.raises(ProbeError) as caught:
            ask(slow(folders[folder]), folder, limit_s=0.7)
        return str(caught.value)

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(failure, folders)) == ["the process did not answer in 0.7 s"] * 2
    assert all(ends_soon((folder / "pid").read_text()) for folder in folders)


def test_a_doctor_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    """At the end of Python whatever still runs is ended with what it started: it gets no Ctrl-C of the terminal."""
    pid, ends_s = tmp_path / "pid", time.monotonic() + 20
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(ask, slow("time.sleep(30)"), tmp_path, 30.0)
        while not (pid.exists() and pid.read_text()) and time.monotonic() < ends_s:
            time.sleep(0.01)
        end_all()
        with pytest.raises(ProbeError, match="ended by signal 9"):
            asked.result(timeout=10)
    assert ends_soon(pid.read_text())


def test_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A command that cannot be started is a ProbeError with its name."""
    with pytest.raises(ProbeError, match="no-such-python cannot be started"):
        answer_of(("no-such-python",), limit_s=1, environ={}, folder=tmp_path)
