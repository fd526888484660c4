"""What a timer is, and the arithmetic all timers share. A new timer is one file and one line in `timers/__init__.py`.

A *block* is `count_calls_per_block` back-to-back calls timed as one. Before every measured block runs an unmeasured
one of the same length: the first block after a pause runs on another clock and with other caches than its successors.
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
"""One call of what is timed, with its arguments bound; its result is the backend's raw result."""

Setup = Callable[[], tuple[Any, ...]]
"""Makes what one call takes, untimed."""

CopiesMaker = Callable[[], "Copies"]
"""Makes the copies of a call's inputs that a cold timer needs; called only when one is used."""

MAX_CALLS_PER_BLOCK = 2000
"""Bounds the nodes of a captured graph and its memory; a 0.5 us call still fills 1 ms."""

WARM_UP_CALLS = 3
"""Calls before anything is captured or estimated: lazy initialisation, plans, autotuning."""


class Timer(Protocol):
    """Times blocks of one call.

    name             recorded with every sample; baselines of another timer are INCOMPARABLE
    cache_state      'hot' or 'cold': what a timed call may find in the last-level cache
    note             why this timer and not the usual one, and what weakens its figures; '' when nothing does
    replays          True when blocks re-run recorded work instead of calling: it must be proven right by itself
    max_pairs        pairs of blocks queued before one synchronisation; 1 where Python runs inside a block, so that a
                     block in which something compiled is rejected alone
    calls_per_block  known after `prepare`
    clock_mhz        mean compute clock over each pair of blocks of the last `measure`; () where it is not known
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
        """Warm up, record what must be recorded, and choose `count_calls_per_block` for blocks of about `block_us`."""

    def measure(self, pairs: int) -> list[float]:
        """Run `pairs` times an unmeasured then a measured block; microseconds per call of each measured block."""

    def run_once(self, *, poisoned: bool = True) -> Any:
        """Run what is timed once, unmeasured, and give the raw result of its last call.

        A timer that replays fills the memory of that result with NaN first, so that a replay that writes nothing shows;
        not `poisoned` it leaves an earlier result there, so that one that writes only over NaN shows, too.
        """

    def close(self) -> None:
        """Let go of the call and everything recorded from it."""


@dataclass(frozen=True)
class CallParts:
    """A call that is more than what is timed of it.

    setup      makes what `work` takes, before every timed call
    work       what is timed
    host_sync  the call waits for the device, so that on a GPU the host's clock tells its time
    """

    setup: Setup
    work: Call
    host_sync: bool = False


@dataclass(frozen=True)
class TimerMaterial:
    """What there is to make a timer of.

    stamps   gives this process's clock stamps; the first call builds and tries them
    why      why not the usual timer
    """

    stamps: Callable[[], Stamps | None]
    copies: CopiesMaker | None = None
    parts: CallParts | None = None
    why: str = "asked for by name"

    def make_copies(self) -> Copies:
        """The copies that a cold timer goes round over. Raises CaseFailedError where none can be made."""
        if self.copies is None:
            raise CaseFailedError(
                "a cold time needs copies of a call's inputs, and of this call none can be made; gate it as a case "
                "with cache_state='cold', or time it hot"
            )
        return self.copies()

    def require_parts(self) -> CallParts:
        """The parts of a call, for a timer that is `in_parts`."""
        assert self.parts is not None, "a timer in parts is made for a call that has them"
        return self.parts


class TimerKind:
    """What a timer's class says of itself, for the rule that chooses; with `Timer`, all that a new one needs.

    on_cpu      the work is the CPU's: it has finished when the call returns; False: it needs a GPU
    in_parts    each timed call gets inputs of its own, which `Given.parts` makes
    waits       of those, on a GPU, for calls that wait for the device
    substitute  name of the timer that takes its place by the rule where a call cannot be captured; '' for none
    """

    name: str
    cache_state: str = "hot"
    on_cpu: bool = False
    in_parts: bool = False
    waits: bool = False
    substitute: str = ""
    replays: bool = False
    max_pairs: int = 1
    clock_mhz: tuple[float, ...] = ()

    @classmethod
    def make(cls, given: TimerMaterial) -> Timer:
        """A timer of what there is, not yet prepared; of one that needs none of it, just that."""
        return cast(Timer, cls())


def count_calls_per_block(block_us: float, call_us: float) -> int:
    """Calls that fill a block of `block_us`, at least 1 and at most MAX_CALLS_PER_BLOCK."""
    if call_us <= 0:
        return MAX_CALLS_PER_BLOCK
    return max(1, min(MAX_CALLS_PER_BLOCK, math.ceil(block_us / call_us)))
