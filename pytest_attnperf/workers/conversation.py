"""One case in one worker, as the session sees it: open, check, blocks, finish, close, under one time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from pytest_attnperf.errors import WorkerError
from pytest_attnperf.records import CaseKey, CheckReport, FinalReport, Rotation, Samples, WorkloadFigures
from pytest_attnperf.records.code import KernelObject
from pytest_attnperf.records.pairs import Turn, TurnPlan
from pytest_attnperf.records.profiles import CaseProfile
from pytest_attnperf.records.stages import Breakdown
from pytest_attnperf.workers.controller import Worker

CLOSE_LIMIT_SECONDS = 60.0


@dataclass(frozen=True)
class Opened:
    """How `open` was answered: supported, unsupported with reasons, or finished without a rendezvous.

    loaded   compiled kernels that preparing the case launched, to be read while it is proven
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

    timer   'auto' lets the workload and the device choose; any other is used or the case fails
    """

    max_blocks: int = 30
    block_us: float = 600.0
    budget_us: float = 120_000.0
    timer: str = "auto"


@dataclass(frozen=True)
class OpenRequest:
    """What a case needs: which case comes next (a hint), the seeds of its checks, and how it is checked.

    repeats   calls on the same inputs whose bits are compared; 0 for none
    pin       the stored configuration that the backend must run with; empty lets it choose
    """

    key: CaseKey
    next_key: CaseKey | None
    check_seed: int
    final_seed: int
    limit_seconds: float = 300.0
    repeats: int = 0
    pin: Mapping[str, str] = field(default_factory=dict)


class Conversation(Protocol):
    """A case being served. The session, and nothing else, decides what the answers mean."""

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
    """A Conversation with a worker process."""

    worker: Worker
    request: OpenRequest
    start_limit_seconds: float
    clock: Callable[[], float] = time.monotonic
    inside: bool = False
    spent: bool = False
    _profiled: bool = field(default=False, init=False)
    _deadline: float = field(default=0.0, init=False)

    def open(self) -> Opened:
        """Run the item up to its rendezvous, building and compiling the backend."""
        ready = self.worker.wait_until_ready(self.start_limit_seconds)
        if self.request.key not in ready.known_cases:
            raise WorkerError(
                f"worker {self.worker.name} has no case {self.request.key}; it has {len(ready.cases)} cases"
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
        )
        opened = self.worker.decode_answer("open", answer, Opened)
        self.inside = opened.state == "open"
        return opened

    def check(self, *, profiled: bool = False) -> CheckReport:
        """Prove the case right before it is timed; `profiled` only where nothing will be timed in this worker."""
        self._profiled = profiled
        answer = self._ask_worker("check", profiled=profiled, repeats=self.request.repeats)
        return self.worker.decode_answer("check", answer, CheckReport)

    def measure_blocks(self, plan: BlockPlan) -> Samples:
        """Measure blocks; refused by the worker unless the check passed."""
        return self.worker.decode_answer("block", self._ask_worker("block", **msgspec.to_builtins(plan)), Samples)

    def measure_rotation(self, block_us: float) -> Rotation:
        """Measure calls on inputs that stay, and on inputs that change before every call."""
        return self.worker.decode_answer("rotate", self._ask_worker("rotate", block_us=block_us), Rotation)

    def measure_stages(self, block_us: float) -> Breakdown:
        """Measure the stages of the call, where it has any, and the call in turns with them."""
        return self.worker.decode_answer("stages", self._ask_worker("stages", block_us=block_us), Breakdown)

    def profile(self) -> CaseProfile:
        """Profile the call, and free the case. The worker may profile other cases, and times nothing any more.

        Whatever else it answers, or does not, it is replaced when the case is closed.
        """
        self.spent = True
        found = self.worker.decode_answer("profile", self._ask_worker("profile"), CaseProfile)
        self.spent = False
        return found

    def prepare_turns(self, block_us: float, timer: str) -> TurnPlan:
        """Make the case ready for turns; refused by the worker unless the check passed."""
        return self.worker.decode_answer("turns", self._ask_worker("turns", block_us=block_us, timer=timer), TurnPlan)

    def measure_turn(self, place: int) -> Turn:
        """Measure one block behind an unmeasured one."""
        return self.worker.decode_answer("turn", self._ask_worker("turn", place=place), Turn)

    def finish(self) -> FinalReport:
        """Check the last replay on fresh inputs, and free the case.

        A spent worker is replaced after it, but where nothing is timed anyway: there it was told to use a profiler. One
        that does not answer with a report may have used it.
        """
        before, self.spent = self.spent, not self._profiled
        final = self.worker.decode_answer("finish", self._ask_worker("finish"), FinalReport)
        self.spent = before or (final.spent and not self._profiled)
        return final

    def close(self) -> Closed:
        """End the item; its teardown runs in the worker."""
        answer = self.worker.request("close", CLOSE_LIMIT_SECONDS)
        self.inside = False
        return Closed(str(answer.get("outcome", "passed")), str(answer.get("text", "")))

    def _ask_worker(self, operation: str, **fields: Any) -> dict[str, Any]:
        remaining = max(0.1, self._deadline - self.clock())
        answer = self.worker.request(operation, remaining, **fields)
        if answer.get("state") == "finished":
            self.inside = False
            if operation != "open":
                raise WorkerError(
                    f"the test's body ended during {operation!r}: {answer.get('outcome')}\n{answer.get('text', '')}"
                )
        return answer
