"""Compiling every candidate in parallel processes before one is timed: timed processes then find it on disk.

A process that times may not share its GPU, and would otherwise spend most of a search waiting for a compiler. Here
nothing is timed, so many processes may share it: each opens a candidate's case, which builds and calls it, and closes
it again. Compilers that keep what they made on disk (Triton, Inductor, aiter) give it to the process that times.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.tuning_records import Candidate
from pytest_attnperf.workers.conversation import OpenRequest
from pytest_attnperf.workers.pool import Pool

NAMED_CHARACTERS = 200


def warm(
    pool: Pool,
    places: Sequence[int],
    requests: Mapping[Candidate, Sequence[OpenRequest]],
    *,
    done: Callable[[int, int], None] = lambda finished, of: None,
    expired: Callable[[], bool] = lambda: False,
) -> dict[Candidate, str]:
    """Open and close every candidate once, in as many processes as there are places.

    requests   what opens a candidate on each workload; those behind the first that fails are left out
    done       is told after each candidate how many of how many are finished
    expired    says when to stop: what is left is compiled when it is timed

    Gives why a candidate cannot be opened, in one line, for those that cannot (see `_failure`).
    Raises WorkerError where no process can be started.
    """
    pool.start(places)
    for place in places:
        pool.ready(place)  # here: a process that a thread starts is killed when that thread ends
    waiting: queue.SimpleQueue[Candidate] = queue.SimpleQueue()
    for candidate in requests:
        waiting.put(candidate)
    failures: dict[Candidate, str] = {}
    finished: list[Candidate] = []
    lock = threading.Lock()

    raised: list[BaseException] = []
    over = threading.Event()

    def work(place: int) -> None:
        try:
            empty(place)
        except BaseException as error:  # raised again in the thread that waits
            raised.append(error)

    def empty(place: int) -> None:
        while not (over.is_set() or expired() or raised) and (candidate := _next(waiting)) is not None:
            why = _failure(pool, place, requests[candidate])
            with lock:
                finished.append(candidate)
                if why:
                    failures[candidate] = why
                done(len(finished), len(requests))

    threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in places]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        over.set()  # an interrupt shuts the pool down: the threads would start its processes again
    if raised:
        raise raised[0]
    return failures


def _next(waiting: queue.SimpleQueue[Candidate]) -> Candidate | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


def _failure(pool: Pool, place: int, requests: Sequence[OpenRequest]) -> str:
    """Why one of these cannot be opened; '' where all can, and where that is not the candidate's own doing: memory is
    short because processes share the device, and one that died is asked again where it is timed.
    """
    try:
        for request in requests:
            if why := _opened(pool, place, request):
                return why
    except CaseFailedError as error:
        return "" if error.out_of_memory else _one_line(error.summary)
    except WorkerError:
        return ""
    return ""


def _opened(pool: Pool, place: int, request: OpenRequest) -> str:
    """Open and close one case; '' or why there was none."""
    with pool.case(place, request) as case:
        opened = case.open()
    if opened.unsupported:
        return _one_line(f"unsupported: {opened.unsupported[0]}")
    if opened.state == "finished":
        return _one_line(f"the test ended without a case: {opened.outcome} {opened.text}")
    return ""


def _one_line(text: str) -> str:
    line = text.splitlines()[0] if text else "failed without a word"
    return line if len(line) <= NAMED_CHARACTERS else f"{line[: NAMED_CHARACTERS - 3]}..."
