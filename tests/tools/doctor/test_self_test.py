from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pytest_attnperf.cli.commands.doctor import surroundings_here
from pytest_attnperf.environment.cards import lease_gpu
from pytest_attnperf.environment.system import ProbeError
from pytest_attnperf.measure.self_test import TimerTest
from pytest_attnperf.records import Samples
from pytest_attnperf.tools.doctor import self_test
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings
from pytest_attnperf.tools.doctor.self_test import PROCESSES_MAX, graph_probe, noise_probe
from tests.tools.doctor.gpu_machines import Smi, h200, surroundings

GRAPH = TimerTest("graph", "", True, 1.31, 209.0, 211.1, True, "", "2.13.0+cu130", "NVIDIA H200")


@pytest.fixture(autouse=True)
def _own_leases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leases of a test are its own, and are not those of workers of pytest-xdist."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)


def here(root: Path, smi: Smi | None = None) -> Surroundings:
    """A machine with one H200."""
    return surroundings(h200(root / "machine", smi), "nvidia", root)


def answering(record: Mapping[str, object]) -> Callable[[str, float], Mapping[str, object]]:
    """A self-test process that says this."""
    return lambda _kind, _seconds: record


def timer_lines(root: Path, test: TimerTest) -> dict[str, DoctorFinding]:
    """What becomes of such an answer."""
    return {line.name: line for line in graph_probe(here(root), answering(asdict(test)))}


def test_the_process_finds_this_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first folder of its path holds the package, installed or not."""
    paths = []

    def answered(command: object, *, environ: Mapping[str, str], **others: object) -> Mapping[str, object]:
        paths.append(environ["PYTHONPATH"].split(os.pathsep)[0])
        return {}

    monkeypatch.setattr(self_test, "answer_of", answered)
    self_test._make_ask(here(tmp_path), "0")("timer", 1.0)
    assert (Path(paths[0]) / "pytest_attnperf/__init__.py").is_file()


def test_a_graph_that_is_right(tmp_path: Path) -> None:
    """A call that was captured and replayed right, and events that agree, are fine; the timer is the first word."""
    lines = timer_lines(tmp_path, GRAPH)
    assert {name: line.status for name, line in lines.items()} == dict.fromkeys(lines, Status.OK)
    assert lines["timer"].value.startswith("graph: a nearly empty kernel takes 1.310 us")
    assert lines["graph against events"].value == "one GEMM takes 209.0 us in a graph, 211.1 us by events (+1.0 %)"


@pytest.mark.parametrize(
    ("changed", "name", "status", "text"),
    [
        ({"right": False}, "timer", Status.PROBLEM, "will be INCORRECT"),
        ({"timer": "event", "why": "graph capture failed: no"}, "timer", Status.WARNING, "event: graph capture failed"),
        ({"timer": "profiler", "why": "no events"}, "timer", Status.PROBLEM, "--attnperf-timer=profiler"),
        ({"event_us": 260.0}, "graph against events", Status.WARNING, "disagree"),
        ({"stamps": False, "stamps_why": "gfx1100"}, "clock stamps", Status.NOTE, "none: gfx1100"),
        ({"empty_us": math.nan}, "timer", Status.UNKNOWN, "answer is invalid"),
    ],
)
def test_other_answers(tmp_path: Path, changed: dict[str, object], name: str, status: Status, text: str) -> None:
    """Wrong replays, a timer that is no graph, disagreement and nonsense each have their line."""
    line = timer_lines(tmp_path, replace(GRAPH, **changed))[name]  # type: ignore[arg-type]
    assert line.status is status
    assert text in f"{line.value} {line.meaning} {line.fix}"


@pytest.mark.parametrize("probe", [graph_probe, noise_probe])
def test_a_leased_gpu_is_left_alone(tmp_path: Path, probe: Callable[..., list[DoctorFinding]]) -> None:
    """While another run measures, nothing is started and the line says what to wait for."""
    lease = lease_gpu(["0"])
    [line] = probe(here(tmp_path), answering({}))
    lease.release()
    assert line.status is Status.UNKNOWN
    assert "leased by another run" in line.value


@pytest.mark.parametrize(
    ("program", "why", "seconds"),
    [
        ("import time; time.sleep(60)", "did not answer in 0.1 s", 0.1),
        ("import os; os.kill(os.getpid(), 11)", "ended by signal 11", 20.0),
        ("raise SystemExit('no module named torch')", "no module named torch", 20.0),
        ("print('{]')", "not a JSON object", 20.0),
    ],
)
def test_a_process_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str, seconds: float
) -> None:
    """A process that hangs, dies or prints rubbish is a timer that does not work, and no noise; its reason is said."""
    script = tmp_path / "interpreter"
    script.write_text(f"#!{sys.executable} -S\n{program}\n")
    script.chmod(0o755)
    machine = replace(here(tmp_path), python=str(script))
    monkeypatch.setattr("pytest_attnperf.tools.doctor.self_test.TIMER_SECONDS", seconds)
    [timer] = graph_probe(machine)
    [noise] = noise_probe(replace(machine, clock=lambda: 0.0), seconds=seconds)
    assert (timer.status, noise.status) == (Status.PROBLEM, Status.UNKNOWN)
    assert why in timer.value
    assert why in noise.value


class Processes:
    """Noise processes of a clock of their own: each takes `seconds`."""

    def __init__(self, seconds: float, fails_after: int = 99) -> None:
        self.now_s = 0.0
        self.limits_s: list[float] = []
        self._seconds, self._fails_after = seconds, fails_after

    def __call__(self, _kind: str, limit_s: float) -> Mapping[str, object]:
        """The next process."""
        self.limits_s.append(limit_s)
        if len(self.limits_s) > self._fails_after:
            raise ProbeError("the process was ended by signal 11")
        self.now_s += self._seconds
        block = 200.0 * (1 + 0.001 * (len(self.limits_s) % 3))
        return {"gemm": {**asdict(Samples((block,) * 5, 5, "graph")), "block_us": [block] * 5, "clock_mhz": []}}


def noise_lines(root: Path, processes: Processes, smi: Smi | None = None) -> tuple[DoctorFinding, ...]:
    """The probe with these processes, on their clock."""
    machine = replace(here(root, smi), clock=lambda: processes.now_s)
    return tuple(noise_probe(machine, processes, seconds=55.0))


def test_the_time_is_kept(tmp_path: Path) -> None:
    """Processes follow each other while another one fits, each may take what is left, and a few suffice."""
    processes = Processes(8.0)
    [line] = noise_lines(tmp_path, processes)
    assert processes.limits_s == [55.0, 47.0, 39.0, 31.0, 23.0, 15.0]
    assert (line.name, line.status) == ("noise of gemm", Status.OK)
    assert "over 6 processes" in line.value
    fast = Processes(0.1)
    noise_lines(tmp_path, fast)
    assert len(fast.limits_s) == PROCESSES_MAX


def test_processes_that_end_early(tmp_path: Path) -> None:
    """After a crash what was measured counts; a single process says nothing of a spread."""
    [line] = noise_lines(tmp_path, Processes(5.0, fails_after=6))
    assert "over 6 processes" in line.value
    assert "no more processes: the process was ended by signal 11" in line.details
    [slow] = noise_lines(tmp_path, Processes(40.0))
    assert (slow.status, slow.value) == (Status.UNKNOWN, "not known: 1 of 2 processes ended in the 55 s that were left")


def test_the_promise_of_the_whole_doctor_is_kept(tmp_path: Path) -> None:
    """Where other probes took long, fewer processes are started: the doctor ends when it has promised to."""
    processes = Processes(8.0)
    machine = replace(here(tmp_path), clock=lambda: processes.now_s, ends_s=20.0)
    [line] = noise_probe(machine, processes, seconds=55.0)
    assert processes.limits_s == [20.0, 12.0]
    assert "over 2 processes" in line.value
    [late] = noise_probe(replace(machine, ends_s=0.0), processes, seconds=55.0)
    assert (late.status, late.value) == (Status.UNKNOWN, "not known: 0 of 2 processes ended in the 0 s that were left")
    assert late.fix.startswith("run attnperf doctor again")


def test_an_answer_that_is_none(tmp_path: Path) -> None:
    """A process that says why it could not measure, and one that says nothing, leave the noise unknown."""
    for record, why in (({"error": "RuntimeError: no kernel image"}, "no kernel image"), ({}, "measured nothing")):
        [line] = noise_probe(here(tmp_path), answering(record))
        assert line.status is Status.UNKNOWN
        assert why in line.value


@pytest.mark.gpu
def test_the_timer_and_noise_of_this_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real GPU a timer is found whose replays are right, and three cases have a noise within the time given."""
    machine = surroundings_here()
    timer, *_ = graph_probe(machine)
    assert timer.status in (Status.OK, Status.WARNING), timer
    assert timer.value.split(":")[0] in ("graph", "event")
    began_s = machine.clock()
    lines = noise_probe(machine, seconds=45.0)
    assert machine.clock() - began_s < 50
    assert [line.name for line in lines] == ["noise of softmax", "noise of attention", "noise of gemm"]
    assert all("over" in line.value for line in lines)
