"""What a run does, in one line of a terminal."""

from __future__ import annotations

import pytest

from pytest_attnperf.plugin.features.live.status_text import OPERATIONS, Standing, ending_text, status_text
from pytest_attnperf.records import Role
from pytest_attnperf.session.time_left import Left
from pytest_attnperf.workers.doing import Step, Unit, Waiting
from pytest_attnperf.workers.protocol import ALLOWED


def waiting(operation: str, worker: str = "worker0-1", role: Role = Role.DEVICE) -> Waiting:
    """For an answer of a worker."""
    return Waiting(worker, role, operation)


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (Standing("collecting tests", busy_s=12.0), "collecting tests (12 s)"),
        (
            Standing("ending the run", waits=[waiting("end")]),
            "ending the run, ending worker0-1 (0 s)",
        ),
        (
            Standing(total=15, busy_s=48.0, waits=[waiting("start")]),
            "case 1 of 15: starting worker0-1, importing torch (48 s); time left unknown",
        ),
        (
            Standing(done=2, total=40, step=Step(Unit.SECOND_LOOK, 3, 7, 0.0), waits=[waiting("block")], failed=1),
            "case 3 of 40: second look, process 3 of 7, timing (0 s); time left unknown; 1 failed",
        ),
        (
            Standing(done=2, total=40, waits=[waiting("check"), waiting("check", "base0-1")], left=Left(89.0)),
            "case 3 of 40: compiling and proving (0 s); about 89 s left",
        ),
        (
            Standing(total=12, compiling=(3, 12), waits=[waiting("open", "compile0-1", Role.COMPILE)]),
            "case 1 of 12: compiled 3 of 12 kernels (0 s); time left unknown",
        ),
        (
            Standing(done=2, total=40, running=["a-b1", "a-b2"], left=Left(89.0)),
            "2 of 40 cases, 2 under way (0 s); about 89 s left; a-b1, a-b2",
        ),
        (
            Standing(total=40, said="first looks 3 of 40, 3 min of the budget left"),
            "case 1 of 40 (0 s); first looks 3 of 40, 3 min of the budget left",
        ),
    ],
)
def test_what_is_done_is_named(now: Standing, text: str) -> None:
    """The phase, or the case with its step and what its worker was asked for; for how long; and what is left."""
    assert status_text(now, 120) == f"attnperf: {text}"


def test_two_workers_that_start_are_counted() -> None:
    """What several workers do at once is said once."""
    now = Standing(total=2, waits=[waiting("start"), waiting("start", "base0-1")])
    assert "starting 2 workers, importing torch" in status_text(now, 120)


def test_a_narrow_terminal() -> None:
    """A name is cut before anything else, left out where nothing of it would fit, and never paints the terminal."""
    now = Standing(done=2, total=40, running=["hip.flash-prefill-b4-s512-h8\x1b[2J"], left=Left(89.0))
    assert status_text(now, 70) == "attnperf: case 3 of 40 (0 s); about 89 s left; hip.flash-...512-h8 [2J"
    assert status_text(now, 50) == "attnperf: case 3 of 40 (0 s); about 89 s left"
    assert [len(status_text(now, width)) <= width for width in range(1, 60)] == [True] * 59


def test_every_operation_has_words() -> None:
    """Whatever a worker can be asked for is said in words."""
    asked = {operation for allowed in ALLOWED.values() for operation in allowed} - {"exit", "ping"}
    assert asked <= OPERATIONS.keys()


def test_the_answer_to_ctrl_c() -> None:
    """It says what is ended, and what becomes of the results so far."""
    assert ending_text(2, "results so far go to .attnperf/results.json") == (
        "attnperf: interrupted; ending 2 workers; results so far go to .attnperf/results.json"
    )
    assert ending_text(1, "") == "attnperf: interrupted; ending 1 worker"
    assert ending_text(0, "") == "attnperf: interrupted; ending the run"
