from __future__ import annotations

import threading

import pytest

from pytest_attnperf.errors import UsageError, WorkerError
from pytest_attnperf.testing.fake.tuning import FakeTuningPool, Surface, key_of
from pytest_attnperf.tools.tuner.warming import warm
from pytest_attnperf.tuning_records import Candidate
from pytest_attnperf.workers.conversation import OpenRequest

SIZES = (16, 32, 64, 128)
CANDIDATES = [Candidate({"BLOCK": size}) for size in SIZES]


def requests(*seqs: int) -> dict[Candidate, list[OpenRequest]]:
    """What opens every candidate on workloads of these lengths."""
    return {
        candidate: [OpenRequest(key_of(seq), None, 1, 2, pin={"BLOCK": str(candidate.values["BLOCK"])}) for seq in seqs]
        for candidate in CANDIDATES
    }


@pytest.fixture
def surface() -> Surface:
    """Four candidates, all of which work."""
    return Surface({"BLOCK": SIZES}, default={"BLOCK": 16})


def test_every_candidate_is_opened_on_every_workload(surface: Surface) -> None:
    """Each is opened once per workload, by whichever process is free, and nothing else is asked of it."""
    pool, told = FakeTuningPool(surface), []
    assert warm(pool, range(3), requests(64, 128), done=lambda *numbers: told.append(numbers)) == {}
    opened = sorted((workload, pin["BLOCK"]) for _, workload, pin in pool.opened)
    assert opened == sorted((key_of(seq).workload, str(size)) for seq in (64, 128) for size in SIZES)
    assert sorted(told) == [(number, 4) for number in (1, 2, 3, 4)]


def test_processes_work_at_the_same_time(surface: Surface) -> None:
    """Two processes are inside a case together: otherwise compiling would take as long as before."""
    meeting = threading.Barrier(2, timeout=10)
    pool = FakeTuningPool(surface, on_case=lambda request: meeting.wait() and None)
    assert warm(pool, range(2), requests(64)) == {}


def test_what_cannot_be_opened_is_named(surface: Surface) -> None:
    """A candidate that cannot be built fails with its reason, and is not opened on the next workload."""
    surface.fault = lambda values, seq: "prepare" if values["BLOCK"] == 64 else ""
    pool = FakeTuningPool(surface)
    (failed,) = warm(pool, range(2), requests(64, 128)).items()
    assert failed[0].values == {"BLOCK": 64}
    assert "scripted compile error" in failed[1]
    assert sum(pin == {"BLOCK": "64"} for _, _, pin in pool.opened) == 1


@pytest.mark.parametrize("fault", ["oom", "died"])
def test_what_is_not_its_own_doing_is_left_to_the_search(surface: Surface, fault: str) -> None:
    """Too little memory among many processes, or one that died, throws no candidate out."""
    surface.fault = lambda values, seq: fault if values["BLOCK"] == 64 else ""
    assert warm(FakeTuningPool(surface), range(2), requests(64)) == {}


def test_an_unsupported_candidate_is_a_failure(surface: Surface) -> None:
    """A reason for not running is one for not timing."""
    surface.fault = lambda values, seq: "unsupported" if values["BLOCK"] == 32 else ""
    assert list(warm(FakeTuningPool(surface), range(1), requests(64)).values()) == [
        "unsupported: scripted: hipcc missing"
    ]


def test_time_that_is_up_leaves_the_rest(surface: Surface) -> None:
    """What was not opened is compiled when it is timed."""
    pool = FakeTuningPool(surface)
    warm(pool, range(1), requests(64), expired=lambda: len(pool.opened) >= 2)
    assert len(pool.opened) == 2


def test_no_process_is_an_error(surface: Surface) -> None:
    """Where none can start, whoever waits is told so."""
    with pytest.raises(WorkerError, match="could not start"):
        warm(FakeTuningPool(surface, starts=False), range(2), requests(64))


def test_what_a_thread_raises_is_raised(surface: Surface) -> None:
    """An error that is no candidate's ends all threads and reaches the caller."""

    def refuse(request: OpenRequest) -> None:
        raise UsageError("no such case")

    with pytest.raises(UsageError, match="no such case"):
        warm(FakeTuningPool(surface, on_case=refuse), range(2), requests(64))


def test_an_interrupt_opens_nothing_more(surface: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that is shut down after it would start its processes again for the next candidate."""
    inside, shut = threading.Event(), threading.Event()

    def wait(request: OpenRequest) -> None:
        inside.set()
        shut.wait(10)

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        inside.wait(10)
        raise KeyboardInterrupt

    pool = FakeTuningPool(surface, on_case=wait)
    before = set(threading.enumerate())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            warm(pool, range(1), requests(64))
    shut.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert len(pool.opened) == 1
