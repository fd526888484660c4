"""The session's conversation with a worker on one case: open, check, blocks, finish, close, with one time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from pytest_attnperf.errors import WorkerError
from pytest_attnperf.records import CaseKey, CheckReport, Rotation, Samples, WorkloadFigures
from pytest_attnperf.records.code import KernelObject
from pytest_attnperf.records.costs import CostSettings
from pytest_attnperf.records.final_report import FinalReport
from pytest_attnperf.records.pairs import Turn, TurnPlan
from pytest_attnperf.records.profiles import CaseProfile
from pytest_attnperf.records.stages import Breakdown
from pytest_attnperf.workers.controller import Worker
from pytest_attnperf.workers.doing import DOING, BlocksTimed, CaseAsked

CLOSE_LIMIT_SECONDS = 60.0


@dataclass(frozen=True)
class Opened:
    """Answer to `open`: the case is supported, unsupported with reasons, or its test ended without `attnperf.run()`.

    loaded   compiled kernels that preparing the case launched; they are analysed while the case is proven
    """

    state: str
    unsupported: tuple[str, ...] = ()
    not_timed: str = ""
    figures: WorkloadFigures | None = None
    loaded: tuple[KernelObject, ...] = ()
    outcome: str = ""
    text: str = ""


@dataclass(frozen=True)
class Closed:
    """How the test item ended in the worker."""

    outcome: str
    text: str = ""


@dataclass(frozen=True)
class BlockPlan:
    """How much to measure in one process: at most `max_blocks` blocks of `block_us`, within `budget_us`.

    timer   'auto' chooses by workload and device; another timer is used, or the case fails
    """

    max_blocks: int = 30
    block_us: float = 600.0
    budget_us: float = 120_000.0
    timer: str = "auto"


@dataclass(frozen=True)
class OpenRequest:
    """A request to open a case, with the next case (a hint), the seeds of its checks, and how it is checked.

    repeats   number of calls on the same inputs whose bits are compared; 0 for none
    pin       stored configuration that the backend must use; if empty, it chooses itself
    trials    names of the trials that prove a right case again at its end
    costs     the costs that the run gates; None where no cost is compared
    """

    key: CaseKey
    next_key: CaseKey | None
    check_seed: int
    final_seed: int
    limit_seconds: float = 300.0
    repeats: int = 0
    pin: Mapping[str, str] = field(default_factory=dict)
    trials: tuple[str, ...] = ()
    costs: CostSettings | None = None


class Conversation(Protocol):
    """A conversation with what serves a case. Only the session decides what the answers mean."""

    def open(self) -> Opened: ...  # noqa: D102
    def check(self, *, profiled: bool = False) -> CheckReport: ...  # noqa: D102
    def measure_blocks(self, plan: BlockPlan) -> Samples: ...  # noqa: D102
    def measure_rotation(self, block_us: float) -> Rotation: ...  # noqa: D102
    def measure_stages(self, block_us: float) -> Breakdown: ...  # noqa: D102
    def profile(self) -> CaseProfile: ...  # noqa: D102
    def prepare_turns(self, block_us: float, timer: str) -> TurnPlan: ...  # noqa: D102
    def measure_turn(self, place: int) -> Turn: ...  # noqa: D102
    def finish(self) -> FinalReport: ...  # noqa: D102
    def close(self) -> Closed: ...  # noqa: D102


@dataclass
class RemoteCase:
    """A Conversation with a worker process. `inside` says whether the test item is open in the worker; `spent` says
    that the worker may have profiled and must be replaced before it times another case."""

    worker: Worker
    request: OpenRequest
    start_limit_seconds: float
    clock: Callable[[], float] = time.monotonic
    inside: bool = False
    spent: bool = False
    _profiled: bool = field(default=False, init=False)
    _deadline: float = field(default=0.0, init=False)

    def open(self) -> Opened:
        """Runs the worker's test item up to `attnperf.run()`, builds and compiles the backend, and starts the case's
        time limit. Returns the case's figures, why it is unsupported, or how the item ended before `attnperf.run()`.
        Raises WorkerError if the worker has not collected the case."""
        ready = self.worker.wait_until_ready(self.start_limit_seconds)
        if self.request.key not in ready.known_cases:
            raise WorkerError(
                f"worker {self.worker.name} has no case {self.request.key}; it has collected {len(ready.cases)} other "
                "cases: every process must collect the same tests, so do not parametrize by time, chance or process"
            )
        self._deadline = self.clock() + self.request.limit_seconds
        self.inside = True
        following = self.request.next_key
        answer = self._ask_worker(
            "open",
            key=msgspec.to_builtins(self.request.key),
            next_key=msgspec.to_builtins(following) if following else None,
            seeds={"check": self.request.check_seed, "final": self.request.final_seed},
            pin=dict(self.request.pin),
            costs=msgspec.to_builtins(self.request.costs),
        )
        opened = self.worker.decode_answer("open", answer, Opened)
        self.inside = opened.state == "open"
        return opened

    def check(self, *, profiled: bool = False) -> CheckReport:
        """Checks the case's results against the reference, as is required before it is timed; returns the report, also
        of a wrong result. `profiled` also watches the call with a profiler; only if this worker will time nothing."""
        self._profiled = profiled
        answer = self._ask_worker("check", profiled=profiled, repeats=self.request.repeats)
        return self.worker.decode_answer("check", answer, CheckReport)

    def measure_blocks(self, plan: BlockPlan) -> Samples:
        """Returns times of blocks of calls, within `plan`; the worker refuses it unless the check passed."""
        answer = self._ask_worker("block", **msgspec.to_builtins(plan))
        samples = self.worker.decode_answer("block", answer, Samples)
        DOING.publish_event(BlocksTimed(self.request.key, samples.block_us))
        return samples

    def measure_rotation(self, block_us: float) -> Rotation:
        """Returns times of calls on constant inputs and on inputs that change before every call, both in blocks of
        `block_us` microseconds."""
        return self.worker.decode_answer("rotate", self._ask_worker("rotate", block_us=block_us), Rotation)

    def measure_stages(self, block_us: float) -> Breakdown:
        """Returns the times of the call's stages (steps that can run alone), if it has any, alternating with the whole
        call, in blocks of `block_us` microseconds."""
        return self.worker.decode_answer("stages", self._ask_worker("stages", block_us=block_us), Breakdown)

    def profile(self) -> CaseProfile:
        """Profiles the call and frees the case. The worker may then profile other cases, but times nothing any more.

        If it does not answer with a profile, it is replaced when the case is closed.
        """
        self.spent = True
        found = self.worker.decode_answer("profile", self._ask_worker("profile"), CaseProfile)
        self.spent = False
        return found

    def prepare_turns(self, block_us: float, timer: str) -> TurnPlan:
        """Prepares the case for turns (a timed block of calls after an untimed one) of `block_us` microseconds with
        this timer; returns how they are timed. The worker refuses it unless the check passed."""
        return self.worker.decode_answer("turns", self._ask_worker("turns", block_us=block_us, timer=timer), TurnPlan)

    def measure_turn(self, place: int) -> Turn:
        """Measures one turn (a block after an unmeasured one), with the inputs in memory placement `place`."""
        return self.worker.decode_answer("turn", self._ask_worker("turn", place=place), Turn)

    def finish(self) -> FinalReport:
        """Checks the last timed call (replay of the captured graph) on new inputs, and frees the case.

        Sets `spent`, by which the worker is replaced, if it has run a profiler or does not answer with a report (it may
        have run one). A profiler that `check` requested does not count, because then nothing is timed.
        """
        before, self.spent = self.spent, not self._profiled
        final = self.worker.decode_answer(
            "finish", self._ask_worker("finish", trials=list(self.request.trials)), FinalReport
        )
        self.spent = before or (final.spent and not self._profiled)
        return final

    def close(self) -> Closed:
        """Ends the test item, with its teardown in the worker, and returns its outcome."""
        DOING.publish_event(CaseAsked(self.request.key, "close", DOING.step))
        answer = self.worker.request("close", CLOSE_LIMIT_SECONDS)
        self.inside = False
        return Closed(str(answer.get("outcome", "passed")), str(answer.get("text", "")))

    def _ask_worker(self, operation: str, **fields: Any) -> dict[str, Any]:
        if operation != "turn":  # there are hundreds, and each quad is an event of its own
            DOING.publish_event(CaseAsked(self.request.key, operation, DOING.step))
        remaining = max(0.1, self._deadline - self.clock())
        answer = self.worker.request(operation, remaining, **fields)
        if answer.get("state") == "finished":
            self.inside = False
            if operation != "open":
                raise WorkerError(
                    f"the test's body ended in the worker while {operation!r} was requested: {answer.get('outcome')}; "
                    f"fix the test\n{answer.get('text', '')}"
                )
        return answer
