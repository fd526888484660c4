"""Times candidates in worker processes. Each is checked, timed in a few short blocks, and checked again.

A lane is one GPU with one worker process at a time; each process number of a search is a new process. If a worker dies,
its trial fails, and the search continues with another number. With several lanes, each has a thread that lives as long
as the bench, because the kernel kills a worker when the thread that started it ends.

Before timing, every candidate is compiled in parallel processes: a process that times cannot share its GPU and would
spend most of a search waiting for compilers. Nothing is timed there, so many processes may share the GPU. Each opens a
candidate's case, which builds and calls it, and closes it again. Compilers with a cache on disk (Triton, Inductor,
aiter) reuse the result in the process that times.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pytest_attnperf.errors import CaseFailedError, UsageError, WorkerError
from pytest_attnperf.gate.comparable import PATH
from pytest_attnperf.records import CaseKey, NotProvenRightError
from pytest_attnperf.tools.tuner.trial_bench import DIED, WRONG
from pytest_attnperf.tuning_records import Candidate, Trial
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.conversation import BlockPlan, OpenRequest
from pytest_attnperf.workers.look import Ending, Look, take_look
from pytest_attnperf.workers.pool import Pool

PinOf = Callable[[Candidate], Mapping[str, str]]
"""Function that returns the settings with which a backend runs a candidate; see `Tunable.tuning_pin`."""

PLAN = BlockPlan(max_blocks=12, block_us=600.0, budget_us=30_000.0)
"""Blocks of one trial. More would not help, because processes differ by more than the error of these blocks."""

KILLS_MOST = 2
"""Number of workers that died with a candidate before it is excluded."""

SUMMARY_LENGTH = 300

NAMED_CHARACTERS = 200


@dataclass
class WorkerBench:
    """A bench that uses pools of workers, one pool per lane.

    keys     case of each workload id
    seed     seed of the checks' inputs: equal for all trials of a process, so that references are computed once
    limit_s  seconds for one trial's case
    """

    pools: Sequence[Pool]
    keys: Mapping[str, CaseKey]
    pin_of: PinOf
    plan: BlockPlan = PLAN
    seed: int = 0
    limit_s: float = 120.0
    _processes: dict[int, int] = field(default_factory=dict)
    _kills: Counter[str] = field(default_factory=Counter)
    _spent: int = 0
    _threads: dict[int, ThreadPoolExecutor] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def lanes(self) -> int:
        """Number of GPUs that are measured on at the same time."""
        return len(self.pools)

    def time(self, lane: int, process: int, candidate: Candidate, workload: str) -> Trial:
        """Returns the trial of one candidate on one workload, measured in process number `process` of the lane (GPU).

        A candidate that is wrong, does not run or ends its process gives a trial with a failure. Raises UsageError for
        a backend that does not run the given configuration or a suite without the case, WorkerError if no process
        starts."""
        if self.lanes == 1:
            return self._time(lane, process, candidate, workload)
        with self._lock:
            thread = self._threads.setdefault(lane, ThreadPoolExecutor(1))
        return thread.submit(self._time, lane, process, candidate, workload).result()

    def _time(self, lane: int, process: int, candidate: Candidate, workload: str) -> Trial:
        if self._kills[candidate.id] >= KILLS_MOST:
            return Trial(candidate, workload, process, None, f"failed: it has ended {KILLS_MOST} workers already")
        pool, key = self.pools[lane], self.keys[workload]
        ready = self._switch_process(lane, process)
        if ready.cases and key not in ready.cases:
            raise UsageError(f"the suite has no case {key} among its {len(ready.cases)}; name a workload that it runs")
        pin = self.pin_of(candidate)
        seed = self.seed + 2 * process
        request = OpenRequest(key, None, seed, seed + 1, self.limit_s, pin=pin)
        try:
            look = take_look(pool, process, request, self.plan, profiled=False)
        except WorkerError as error:
            with self._lock:
                self._kills[candidate.id] += 1
            return Trial(candidate, workload, process, None, f"{DIED}: {_shorten_summary(error.summary)}")
        except CaseFailedError as error:
            return Trial(candidate, workload, process, None, f"failed: {_shorten_summary(error.summary)}")
        except NotProvenRightError as error:
            return Trial(candidate, workload, process, None, f"failed: {_shorten_summary(str(error))}")
        if look.final.spent:
            with self._lock:
                self._spent += 1
        return self._judge_look(candidate, workload, process, look, pin)

    def list_notes(self) -> tuple[str, ...]:
        """Returns one note if trials needed a process each, because their timer uses a profiler; else nothing."""
        if not self._spent:
            return ()
        return (
            f"{self._spent} trials each used up a process, because their timer needs a profiler: candidates were "
            "compared across processes, which differ by up to 1 %",
        )

    def shutdown(self) -> None:
        """Ends the lanes' threads and all worker processes."""
        for thread in self._threads.values():
            thread.shutdown()
        self._threads.clear()
        for pool in self.pools:
            pool.shutdown()

    def _switch_process(self, lane: int, process: int) -> Ready:
        """Returns the first message of the lane's process of that number, starting it if needed. Ends the lane's
        previous process, because it would hold memory of the GPU."""
        pool = self.pools[lane]
        if self._processes.setdefault(lane, process) != process:
            pool.shutdown()
            self._processes[lane] = process
        return wait_for_process(pool, process)

    def _judge_look(
        self, candidate: Candidate, workload: str, process: int, look: Look, pin: Mapping[str, str]
    ) -> Trial:
        if failure := reason_no_time(look):
            return Trial(candidate, workload, process, None, failure)
        if failure := reason_other_path(pin, look.final.config):
            return Trial(candidate, workload, process, None, f"failed: {failure}")
        check_ran_as_pinned(candidate, pin, look.final.config, self.keys[workload].backend)
        if look.summary is None:
            return Trial(candidate, workload, process, None, f"failed: not timed: {look.note}")
        return Trial(candidate, workload, process, look.summary.median_us, summary=look.summary)


def wait_for_process(pool: Pool, place: int) -> Ready:
    """Returns the first message of the pool's process number `place`, with its device and cases, when it has started.

    Raises WorkerError if two attempts to start one fail.
    """
    try:
        return pool.wait_until_ready(place)
    except WorkerError:
        return pool.wait_until_ready(place)


def reason_no_time(look: Look) -> str:
    """Returns why one measurement has no valid time: 'wrong: ...', 'unsupported: ...', 'failed: ...'; '' if it has
    one."""
    reason = look.reasons[0] if look.reasons else "without a reason"
    if look.ending is Ending.INCORRECT:
        return f"{WRONG}: {_shorten_summary(reason)}"
    if look.ending is Ending.UNSUPPORTED:
        return f"unsupported: {_shorten_summary(reason)}"
    if look.ending in (Ending.SKIPPED, Ending.BODY_FAILED):
        return f"failed: {look.ending.value}: {_shorten_summary(reason)}"
    return ""


def reason_other_path(pin: Mapping[str, str], config: Mapping[str, str]) -> str:
    """Returns how the kernel path that ran differs from the pinned one; '' if it does not, or none was pinned."""
    wanted, ran = pin.get(PATH, ""), config.get(PATH, "unknown")
    return f"path {wanted} was requested, but {ran} ran" if wanted and wanted != ran else ""


def check_ran_as_pinned(candidate: Candidate, pin: Mapping[str, str], config: Mapping[str, str], backend: str) -> None:
    """Raises UsageError if the configuration that ran differs from the candidate, or the backend does not report it.
    Names may have a prefix ('prefill_forward.BLOCK_M'); if `pin` has a value's name with a prefix, only that one is
    checked."""
    for name, value in sorted(candidate.values.items()):
        pinned = [key for key in pin if _is_entry_of(key, name)]
        told = {key: config[key] for key in pinned or config if key in config and _is_entry_of(key, name)}
        if not told:
            raise UsageError(
                f"{backend} does not report with which {name} it ran ({candidate.id} was requested; its configuration "
                f"holds {', '.join(sorted(config)) or 'nothing'}), so what was timed is not known. Its "
                "configuration must hold every value of its tuning space"
            )
        other = {key: text for key, text in told.items() if text != str(value)}
        if other:
            ran = ", ".join(f"{key}={text}" for key, text in sorted(other.items()))
            raise UsageError(
                f"{backend} does not run the pinned values: {name}={value} was requested, {ran} ran; its `pinned` must "
                "apply every value of its tuning space"
            )


def _is_entry_of(key: str, name: str) -> bool:
    return key == name or key.endswith(f".{name}")


def _shorten_summary(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= SUMMARY_LENGTH else first[: SUMMARY_LENGTH - 1] + "…"


def warm_compilers(
    pool: Pool,
    places: Sequence[int],
    requests: Mapping[Candidate, Sequence[OpenRequest]],
    *,
    done: Callable[[int, int], None] = lambda finished, of: None,
    expired: Callable[[], bool] = lambda: False,
) -> dict[Candidate, str]:
    """Opens and closes every candidate once, in as many processes as there are places.

    requests   the requests that open a candidate on each workload; after the first failure the rest is skipped
    done       called after each candidate with the number of finished ones and of all
    expired    once it returns True, stops; the other candidates are compiled when they are timed
    Returns, in one line each, why candidates cannot be opened (see `_reason_not_opened`).
    Raises WorkerError if no process can be started.
    """
    pool.start(places)
    for place in places:
        pool.wait_until_ready(place)  # in this thread: a process dies with the thread that started it
    waiting: queue.SimpleQueue[Candidate] = queue.SimpleQueue()
    for candidate in requests:
        waiting.put(candidate)
    failures: dict[Candidate, str] = {}
    finished: list[Candidate] = []
    lock = threading.Lock()

    raised: list[BaseException] = []
    over = threading.Event()

    def run_thread(place: int) -> None:
        try:
            open_waiting(place)
        except BaseException as error:  # raised again in the thread that waits
            raised.append(error)

    def open_waiting(place: int) -> None:
        while not (over.is_set() or expired() or raised) and (candidate := _take_next(waiting)) is not None:
            why = _reason_not_opened(pool, place, requests[candidate])
            with lock:
                finished.append(candidate)
                if why:
                    failures[candidate] = why
                done(len(finished), len(requests))

    threads = [threading.Thread(target=run_thread, args=(place,), daemon=True) for place in places]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        over.set()  # after an interrupt the threads must not start processes again
    if raised:
        raise raised[0]
    return failures


def _take_next(waiting: queue.SimpleQueue[Candidate]) -> Candidate | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


def _reason_not_opened(pool: Pool, place: int, requests: Sequence[OpenRequest]) -> str:
    """Returns why one of a candidate's requests cannot be opened; '' if all can or the candidate is not at fault. Too
    little memory is no fault, because processes share the device. After a death, timing tries the candidate again."""
    try:
        for request in requests:
            if why := _reason_no_case(pool, place, request):
                return why
    except CaseFailedError as error:
        return "" if error.out_of_memory else _one_line(error.summary)
    except WorkerError:
        return ""
    return ""


def _reason_no_case(pool: Pool, place: int, request: OpenRequest) -> str:
    """Opens and closes the case of one request. Returns in one line why the test gave no case, '' if it did."""
    with pool.case_at(place, request) as case:
        opened = case.open()
    if opened.unsupported:
        return _one_line(f"unsupported: {opened.unsupported[0]}")
    if opened.state == "finished":
        return _one_line(f"the test ended without a case: {opened.outcome} {opened.text}")
    return ""


def _one_line(text: str) -> str:
    line = text.splitlines()[0] if text else "failed without a message"
    return line if len(line) <= NAMED_CHARACTERS else f"{line[: NAMED_CHARACTERS - 3]}..."
