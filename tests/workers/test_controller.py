"""Workers behind commands that are scripted here; workers of this machine are tested in test_pool.py."""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import WorkerError
from pytest_attnperf.records import CaseKey, Role
from pytest_attnperf.records.notes import NoteKind
from pytest_attnperf.records.pairs import Turn
from pytest_attnperf.workers import controller
from pytest_attnperf.workers.command_plan import CommandPlan
from pytest_attnperf.workers.controller import Worker
from pytest_attnperf.workers.protocol import PROTOCOL_VERSION

READY: dict[str, Any] = {
    "event": "ready",
    "protocol": PROTOCOL_VERSION,
    "pid": 7,
    "role": "device",
    "device": {"kind": "cuda", "arch": "sm_90", "product": "h200"},
    "fingerprint": {"must_match": {"arch": "sm_90"}, "named": {}},
    "cases": [{"suite": "prefill", "backend": "fake.a", "workload": "w", "label": ""}],
    "harness": "9.9",
    "method": 42,
}
MakeWorker = Callable[..., Worker]


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeWorker]:
    """Starts a worker behind a program that is `code`; it is killed behind the test."""
    monkeypatch.setattr(controller, "HANG_UP_SECONDS", 2.0)
    made: list[Worker] = []

    def make(code: str, *arguments: str) -> Worker:
        program = tmp_path / "command.py"
        program.write_text(f"import sys, time\n{code}\n")
        argv = (sys.executable, str(program), *arguments)
        plan = CommandPlan(argv, files=("test_a.py",), role=Role.DEVICE, scratch=tmp_path)
        made.append(Worker(plan, "base0-1"))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def ready_but(**changes: Any) -> str:
    """Code that announces itself, with fields changed; None leaves one out."""
    fields = {key: value for key, value in {**READY, **changes}.items() if value is not None}
    return f"print({json.dumps(fields)!r}, flush=True)\nsys.stdin.readline()\n"


def test_ready_says_which_harness_measures_there(worker: MakeWorker) -> None:
    """The far harness's version and its method arrive, so that numbers of another method are not compared."""
    ready = worker(ready_but() + "sys.stdin.read()").wait_until_ready(20)
    assert (ready.harness, ready.method) == ("9.9", 42)
    assert (ready.pid, ready.cases) == (7, (CaseKey("prefill", "fake.a", "w"),))


def test_a_worker_that_does_not_say_is_of_no_known_method(worker: MakeWorker) -> None:
    """Absent fields are not taken for this side's own."""
    ready = worker(ready_but(harness=None, method=None) + "sys.stdin.read()").wait_until_ready(20)
    assert (ready.harness, ready.method) == ("", 0)


def test_a_banner_is_named(worker: MakeWorker) -> None:
    """A command that prints something else first: the command, what it printed, where it may print it, and its log."""
    started = worker("print('Welcome aboard', flush=True); sys.stderr.write('about to start\\n'); sys.stdin.read()")
    with pytest.raises(WorkerError, match=r"base0-1 \(`.*python.*answered 'start' with something else") as caught:
        started.wait_until_ready(20)
    assert "not JSON: b'Welcome aboard'; a command may print banners on its standard error only" in str(caught.value)
    assert caught.value.log_tail == "about to start"
    assert (caught.value.kind, caught.value.starting) == (None, True)
    assert not started.is_alive


@pytest.mark.parametrize(("code", "cause"), [(3, "exit status 3"), (134, r"exit status 134 \(SIGABRT\)")])
def test_a_command_that_dies_at_once(worker: MakeWorker, code: int, cause: str) -> None:
    """Its exit status, the signal that a status above 128 means, and its log."""
    started = worker(f"sys.stderr.write('no such image\\n'); sys.exit({code})")
    with pytest.raises(WorkerError, match=rf"base0-1 \(`.*`\) died during 'start': {cause}\n") as caught:
        started.wait_until_ready(20)
    assert caught.value.log_tail == "no such image"
    assert (caught.value.kind, caught.value.starting) == (NoteKind.DIED, True)


def test_a_command_that_never_answers(worker: MakeWorker) -> None:
    """It is ended at the limit, and its log quoted; the limit on a case, which is another, is not offered."""
    started = worker("sys.stderr.write('pulling\\n'); sys.stderr.flush(); sys.stdin.read()")
    while not started.log.read_text():
        time.sleep(0.01)
    with pytest.raises(WorkerError, match=r"base0-1 \(`.*`\) did not answer 'start' within 0 s") as caught:
        started.wait_until_ready(0.05)
    assert caught.value.log_tail == "pulling"
    assert (caught.value.kind, caught.value.starting) == (NoteKind.NO_ANSWER, True)
    assert "case-limit" not in str(caught.value)
    assert not started.is_alive


def test_a_far_harness_of_another_protocol(worker: MakeWorker) -> None:
    """Both numbers are named, and whose harness it is."""
    with pytest.raises(WorkerError, match=r"speaks protocol 1, this side \d+: .* installed there"):
        worker(ready_but(protocol=1)).wait_until_ready(20)


def test_a_worker_that_does_not_say_what_it_is(worker: MakeWorker) -> None:
    """A first message that lacks a field is an error of this worker, not of this program."""
    with pytest.raises(WorkerError, match=r"says that it is ready, but not what it is: .*device"):
        worker(ready_but(device=None)).wait_until_ready(20)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('{"us": "fast"}', "Expected `float`, got `str`"),
        ('{"us": NaN}', "us is nan, which is not a finite number"),
        ('{"us": -1.0}', "a time of -1.0 us per call"),
    ],
)
def test_an_answer_that_is_none_ends_the_worker(worker: MakeWorker, said: str, why: str) -> None:
    """What has another form, or cannot have been measured, is an error of this worker, which is asked nothing more."""
    started = worker(ready_but() + f'print(\'{{"id": 1, "ok": {said}}}\', flush=True)\nsys.stdin.read()')
    started.wait_until_ready(20)
    answer = started.request("turn", 20.0, place=0)
    with pytest.raises(WorkerError, match=rf"base0-1 \(`.*`\) answered 'turn' with something else: {why}"):
        started.decode_answer("turn", answer, Turn)
    assert not started.is_alive


def test_a_worker_that_stops_reading_is_killed(worker: MakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that nobody takes ends at a limit."""
    monkeypatch.setattr(controller, "SEND_LIMIT_SECONDS", 0.1)
    started = worker(ready_but() + "time.sleep(60)")
    started.wait_until_ready(20)
    with pytest.raises(WorkerError, match="did not read 'open' within 0 s and was killed"):
        started.request("open", 20.0, much="x" * 1_000_000)
    assert not started.is_alive


def test_a_command_is_ended_by_closing_its_input(worker: MakeWorker, tmp_path: Path) -> None:
    """Before the client is killed the far side sees the end of its input: a signal would not reach a container."""
    ended = tmp_path / "ended"
    started = worker(ready_but() + "sys.stdin.read()\nopen(sys.argv[1], 'w').close()", str(ended))
    started.wait_until_ready(20)
    started.kill()
    assert ended.exists()
    assert started._process.returncode == 0


def test_a_command_that_does_not_end_is_killed(worker: MakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that outlives the end of its input gets SIGKILL."""
    monkeypatch.setattr(controller, "HANG_UP_SECONDS", 0.1)
    started = worker("time.sleep(60)")
    started.kill()
    assert started._process.returncode == -signal.SIGKILL
