from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from pytest_attnperf.cli import pytest_runs


def test_execute_keeps_what_is_printed(tmp_path: Path) -> None:
    """A command's exit status comes back, and both of its streams are in the log."""
    code = "import sys; print('out'); sys.stdout.flush(); print('err', file=sys.stderr); sys.exit(5)"
    assert pytest_runs.execute([sys.executable, "-c", code], tmp_path / "log") == 5
    assert (tmp_path / "log").read_text().split() == ["out", "err"]


def test_execute_ends_its_command_when_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted, a command that goes on is told to end, and has ended when the interrupt is raised."""
    monkeypatch.setattr(pytest_runs, "CLOSING_LIMIT_S", 0.2)
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); os.replace('pid', 'ready'); time.sleep(60)"
    monkeypatch.chdir(tmp_path)

    def interrupt() -> None:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        pytest_runs.execute([sys.executable, "-c", code], tmp_path / "log")
    thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "ready").read_text()), 0)
