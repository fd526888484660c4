from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.environment.system import System
from pytest_attnperf.tools.doctor import self_test, timer
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status
from tests.tools.doctor.gpu_machines import h200, no_command, surroundings


def test_without_a_gpu_no_process_is_started(tmp_path: Path) -> None:
    """A machine without a GPU has the host's timer, and what it is good for is said."""
    [line] = timer.probe(surroundings(System(tmp_path, no_command), "", tmp_path))
    assert (line.name, line.status) == ("timer", Status.NOTE)
    assert line.value.startswith("host: ")
    assert line.meaning.startswith("no GPU: correctness checks and code objects only")


def test_with_a_gpu_the_self_test_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU has the timer that the self-test found."""
    found = [DoctorFinding("timer", Status.OK, "graph: right")]
    monkeypatch.setattr(self_test, "graph_probe", lambda here: found)
    assert timer.probe(surroundings(h200(tmp_path / "machine"), "nvidia", tmp_path)) == found
