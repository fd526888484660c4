from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from pytest_attnperf.errors import WorkerError
from pytest_attnperf.workers import shared_gpus
from pytest_attnperf.workers.pool import WorkerPool
from pytest_attnperf.workers.shared_gpus import SharedGpuPool, in_turns

PLACES = range(100, 107)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the pool below was asked, in place of processes."""
    asked: list[Any] = []

    @contextlib.contextmanager
    def case(self: WorkerPool, place: int, request: object) -> Iterator[int]:
        asked.append(("case", place))
        yield place

    monkeypatch.setattr(WorkerPool, "case_at", case)
    monkeypatch.setattr(WorkerPool, "start", lambda self, places: asked.append(("start", list(places))))
    monkeypatch.setattr(WorkerPool, "wait_until_ready", lambda self, place: asked.append(("ready", place)))
    return asked


def pool(folder: Path, gpus: Sequence[str] = ("A", "B"), limit_s: float = 20.0) -> SharedGpuPool:
    """A session's pool on cards whose locks lie in this folder."""
    return SharedGpuPool(None, gpus, turns=[folder / f"{gpu}.lock" for gpu in gpus], limit_s=limit_s)  # type: ignore[arg-type]


def busy(folder: Path, gpu: str) -> bool:
    """Whether some session measures on a card."""
    with contextlib.suppress(TimeoutError), FileLock(folder / f"{gpu}.lock", timeout=0):
        return False
    return True


def test_places_come_as_cards_become_free(tmp_path: Path) -> None:
    """Cards alternate; what stands on a busy one comes when it is free, and in the end every place has come once."""
    ours = pool(tmp_path)
    with in_turns(ours, PLACES) as order:
        assert list(order) == [*PLACES]
    with FileLock(tmp_path / "B.lock") as theirs, in_turns(ours, PLACES) as order:
        first = [next(order) for _ in range(4)]
        assert (first, busy(tmp_path, "A")) == ([100, 102, 104, 106], True)
        theirs.release()
        assert list(order) == [101, 103, 105]
    assert not busy(tmp_path, "A")


def test_no_card_measures_twice_at_once(tmp_path: Path) -> None:
    """Two sessions that begin on different cards never meet on one, and neither waits for the other for ever."""
    counts, most = dict.fromkeys("AB", 0), [0]

    def session(gpus: Sequence[str]) -> None:
        ours = pool(tmp_path, gpus)
        for _ in range(3):
            with in_turns(ours, PLACES) as order:
                for place in order:
                    card = gpus[place % 2]
                    counts[card] += 1
                    most[0] = max(most[0], counts[card])
                    time.sleep(0.02)
                    counts[card] -= 1

    threads = [threading.Thread(target=session, args=(gpus,)) for gpus in (("A", "B"), ("B", "A"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (most[0], not any(thread.is_alive() for thread in threads)) == (1, True)


def test_leaving_early_gives_the_turn_back(tmp_path: Path) -> None:
    """A case that is wrong in its first process leaves no card taken, and neither does an error."""
    with in_turns(pool(tmp_path), PLACES) as order:
        next(order)
        assert busy(tmp_path, "A")
    assert not busy(tmp_path, "A")
    with pytest.raises(KeyError), in_turns(pool(tmp_path), PLACES) as order:
        raise KeyError(next(order))
    assert not busy(tmp_path, "A")


def test_a_case_of_its_own_takes_a_turn(tmp_path: Path, served: list[Any]) -> None:
    """What is only proven runs on the card, too: in its turn, which one that is held already counts for."""
    ours = pool(tmp_path)
    with ours.case_at(101, object()):  # type: ignore[arg-type]
        assert (busy(tmp_path, "A"), busy(tmp_path, "B")) == (False, True)
    with in_turns(ours, [101]) as order:
        next(order)
        with ours.case_at(101, object()):  # type: ignore[arg-type]
            pass
        assert busy(tmp_path, "B")
    assert [what for what, _ in served] == ["case", "case"]


def test_what_is_known_needs_no_turn(tmp_path: Path, served: list[Any]) -> None:
    """Processes start once; what one runs on is remembered, and asked again in its turn, where it may be another."""
    ours = pool(tmp_path)
    ours.start([100, 101])
    ours.start([100, 101])
    ours.wait_until_ready(100)
    with FileLock(tmp_path / "A.lock"):
        ours.wait_until_ready(100)
    with in_turns(ours, [100]) as order:
        next(order)
        ours.wait_until_ready(100)
    assert served == [("start", [100, 101]), ("ready", 100), ("ready", 100)]


def test_a_turn_that_never_comes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the card, how long it was waited for, and where to look."""
    monkeypatch.setattr(shared_gpus, "POLL_S", 0.001)
    ours = pool(tmp_path, limit_s=0.01)
    with FileLock(tmp_path / "A.lock"), pytest.raises(WorkerError, match="A did not become free within 0 s: another"):
        ours.measure_canary(100)


def test_who_holds_a_turn_does_not_wait_for_another(tmp_path: Path, served: list[Any]) -> None:
    """Where a place moves away from a card that was lost in its turn, the case is an error, and the turn given back."""
    ours = pool(tmp_path)
    lost = pytest.raises(WorkerError, match="GPU A was lost while this session measured")
    with lost, in_turns(ours, [100]) as order, ours.case_at(next(order) + 1, object()):  # type: ignore[arg-type]
        pass
    assert (served, busy(tmp_path, "A")) == ([], False)
