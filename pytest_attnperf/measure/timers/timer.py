"""Interface and shared arithmetic of all timers. A new timer is one file, its import and line in `timers/__init__.py`,
and a row in `docs/how-a-number-is-made.md`.

A *block* is `calls_per_block` back-to-back calls timed as one. An unmeasured block of the same length runs before every
measured one, because the first block after a pause has another clock and other caches than the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from pytest_attnperf.errors import CaseFailedError

if TYPE_CHECKING:
    from pytest_attnperf.measure.copies import Copies
    from pytest_attnperf.measure.timers.pair_clocks import Stamps

Call = Callable[[], Any]
"""One call of what is timed, with its arguments bound; it returns the backend's raw result."""

Setup = Callable[[], tuple[Any, ...]]
"""Makes the arguments of one call, untimed."""

CopiesMaker = Callable[[], "Copies"]
"""Makes the copies of a call's inputs that a cold timer needs; called only if one is used."""

MAX_CALLS_PER_BLOCK = 2000
"""Limits the nodes of a captured graph and its memory; a 0.5 us call still fills 1 ms."""

WARM_UP_CALLS = 3
"""Calls before anything is captured or estimated: lazy initialisation, plans, autotuning."""


class Timer(Protocol):
    """Times blocks of one call.

    name             recorded with every sample; baselines of another timer are INCOMPARABLE
    cache_state      'hot' or 'cold': what a timed call may find in the last-level cache
    note             why this timer and not the usual one, and what limits its accuracy; '' for nothing
    replays          True if blocks re-run recorded work instead of calling: it must be proven right by itself
    max_pairs        pairs of blocks queued before one synchronisation; 1 if Python runs inside a block, so that a
                     block in which something compiled is rejected alone
    calls_per_block  known after `prepare`
    clock_mhz        mean compute clock over each pair of blocks of the last `measure`; () if unknown
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def cache_state(self) -> str: ...  # noqa: D102
    @property
    def note(self) -> str: ...  # noqa: D102
    @property
    def replays(self) -> bool: ...  # noqa: D102
    @property
    def max_pairs(self) -> int: ...  # noqa: D102
    @property
    def calls_per_block(self) -> int: ...  # noqa: D102
    @property
    def clock_mhz(self) -> tuple[float, ...]: ...  # noqa: D102

    def prepare(self, call: Call, block_us: float) -> None:
        """Warms up, records what is replayed, and sets `calls_per_block` for blocks of about `block_us` us."""

    def measure(self, pairs: int) -> list[float]:
        """Runs `pairs` times an unmeasured then a measured block; returns us per call of each measured block."""

    def run_once(self, *, poisoned: bool = True) -> Any:
        """Runs what is timed once, unmeasured, and returns the raw result of its last call.

        A timer that replays fills that result's memory with NaN first, so that a replay that writes nothing is noticed.
        If not `poisoned`, an earlier result stays there, so that a replay that only overwrites NaN is noticed, too.
        """

    def close(self) -> None:
        """Drops the call and everything recorded from it."""


@dataclass(frozen=True)
class CallParts:
    """A call of which only a part is timed.

    setup      makes the arguments of `work`, before every timed call
    work       what is timed
    host_sync  the call waits for the device, so that on a GPU the host's clock shows its time
    """

    setup: Setup
    work: Call
    host_sync: bool = False


@dataclass(frozen=True)
class TimerMaterial:
    """What a timer can be made of.

    stamps   returns this process's clock stamps; the first call builds and tests them
    why      why it is not the usual timer
    torch_device   'cuda' or 'cpu', on which the call runs
    """

    stamps: Callable[[], Stamps | None]
    copies: CopiesMaker | None = None
    parts: CallParts | None = None
    why: str = "asked for by name"
    torch_device: str = "cpu"

    def make_copies(self) -> Copies:
        """Makes the copies over which a cold timer rotates. Raises CaseFailedError if none can be made."""
        if self.copies is None:
            raise CaseFailedError(
                "a cold time needs copies of a call's inputs, but none can be made for this call; gate it as a case "
                "with cache_state='cold', or time it hot"
            )
        return self.copies()

    def require_parts(self) -> CallParts:
        """Returns `parts`, for a timer that needs them (`TimerKind.in_parts`). Raises AssertionError without."""
        assert self.parts is not None, "a timer in parts is made for a call that has them"
        return self.parts


class TimerKind:
    """Properties of a timer's class for the rule that chooses; a new timer needs a `name` and what `Timer` lists.

    on_cpu      the CPU does the work, which has finished when the call returns; False: it needs a GPU
    on_any      it times on a CPU and on a GPU, whatever `on_cpu` says
    gates       False for times that show what another protocol gives: a run with it gates and stores nothing
    in_parts    each timed call gets its own inputs, which `TimerMaterial.parts` makes
    waits       with `in_parts` on a GPU: for calls that wait for the device
    substitute  name of the timer that the rule uses instead if a call cannot be captured; '' for none

    `calls_per_block` is that of a timer whose block is one call.
    """

    name: str
    cache_state: str = "hot"
    on_cpu: bool = False
    on_any: bool = False
    gates: bool = True
    in_parts: bool = False
    waits: bool = False
    substitute: str = ""
    replays: bool = False
    max_pairs: int = 1
    clock_mhz: tuple[float, ...] = ()
    calls_per_block: int = 1

    @classmethod
    def make(cls, given: TimerMaterial) -> Timer:
        """Returns a new timer, not prepared yet; a subclass takes what it needs from `given`, this one nothing."""
        return cast(Timer, cls())


def count_calls_per_block(block_us: float, call_us: float) -> int:
    """Returns the calls that fill a block of `block_us`, at least 1 and at most MAX_CALLS_PER_BLOCK."""
    if call_us <= 0:
        return MAX_CALLS_PER_BLOCK
    return max(1, min(MAX_CALLS_PER_BLOCK, math.ceil(block_us / call_us)))
