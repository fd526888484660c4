"""Every timer, and the rule that chooses one. Which was used, and why not another, is recorded with the samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.timers.base import Call, Timer
from pytest_attnperf.measure.timers.capture import CaptureFailedError
from pytest_attnperf.measure.timers.event import EventTimer
from pytest_attnperf.measure.timers.event_fresh import EventFreshTimer
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.measure.timers.graph_cold import GraphColdTimer
from pytest_attnperf.measure.timers.graph_fresh import GraphFreshTimer
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.measure.timers.host_cold import HostColdTimer
from pytest_attnperf.measure.timers.host_fresh import HostFreshTimer, HostSyncTimer, Setup
from pytest_attnperf.measure.timers.profiler import ProfilerTimer

if TYPE_CHECKING:
    from pytest_attnperf.measure.copies import Copies
    from pytest_attnperf.measure.timers.pair_clocks import Stamps

TIMERS: tuple[type[Any], ...] = (
    *(GraphTimer, GraphColdTimer, EventTimer, ProfilerTimer, HostTimer, HostColdTimer),
    *(GraphFreshTimer, EventFreshTimer, HostFreshTimer, HostSyncTimer),
)
"""All timers. Their names are part of what must match between a number and its baseline."""

AUTO = "auto"
"""In place of a timer's name: the rule chooses."""

TIMER_NAMES = (AUTO, *(str(timer.name) for timer in TIMERS))
"""What a person may ask for."""

_ON_CPU = (HostTimer.name, HostColdTimer.name, HostFreshTimer.name)
_FRESH = (GraphFreshTimer.name, EventFreshTimer.name, HostFreshTimer.name, HostSyncTimer.name)


@dataclass(frozen=True)
class Parts:
    """A call that is more than what is timed of it.

    setup      makes what `work` takes, before every timed call
    work       what is timed
    host_sync  the call waits for the device, so that on a GPU the host's clock tells its time
    """

    setup: Setup
    work: Call
    host_sync: bool = False


CopiesMaker = Callable[[], "Copies"]
"""Makes the copies of a call's inputs that a cold timer needs; called only when one is used."""


def choose(
    torch_device: str,
    call: Call,
    block_us: float,
    cache_state: str = "hot",
    asked: str = AUTO,
    copies: CopiesMaker | None = None,
    parts: Parts | None = None,
) -> Timer:
    """The timer for a call on 'cuda' (both vendors) or 'cpu', prepared for blocks of about `block_us` microseconds.

    CPU: the host's clock. GPU: a graph; where it cannot be captured, events, and the note says why. Cold calls go
    round over `copies`, and where that cannot be captured they are not timed.

    asked    AUTO, or the name of the one timer to be used
    parts    of a call that is not timed as a whole; each timed call then gets inputs of its own

    Raises CaseFailedError for a cache state that no timer provides, and when the timer that was asked for does not
    exist, cannot be used here, or measures with another cache: a hot time must not pass for a cold one.
    """
    states = sorted({timer.cache_state for timer in TIMERS})
    if cache_state not in states:
        raise CaseFailedError(
            f"no timer measures with a {cache_state!r} cache; there are timers for: {', '.join(states)}. "
            "Run this workload without --attnperf to check its result only"
        )
    name = asked
    if asked == AUTO:
        name = _usual(torch_device, cache_state, parts)
    elif reason := _refusal(asked, torch_device, cache_state, parts):
        raise CaseFailedError(reason)
    try:
        return _prepared(_new(name, torch_device, copies, parts=parts), call, block_us)
    except CaptureFailedError as error:
        why = f"graph capture failed: {error}"
    substitute = {GraphTimer.name: EventTimer.name, GraphFreshTimer.name: EventFreshTimer.name}.get(name)
    if substitute is None or asked != AUTO:
        raise CaseFailedError(_no_substitute(name, why, cache_state))
    return _prepared(_new(substitute, torch_device, None, why, parts), call, block_us)


def _usual(torch_device: str, cache_state: str, parts: Parts | None) -> str:
    """The timer that the rule chooses; its name."""
    if parts is not None:
        on_gpu = HostSyncTimer.name if parts.host_sync else GraphFreshTimer.name
        return HostFreshTimer.name if torch_device == "cpu" else on_gpu
    of_kind = (HostTimer, HostColdTimer) if torch_device == "cpu" else (GraphTimer, GraphColdTimer)
    return next(timer.name for timer in of_kind if timer.cache_state == cache_state)


def _refusal(asked: str, torch_device: str, cache_state: str, parts: Parts | None) -> str:
    """Why the timer that was asked for cannot be used; '' when it can."""
    if (asked in _FRESH) != (parts is not None) and asked in TIMER_NAMES:
        usual = _usual(torch_device, cache_state, parts)
        own = "gets inputs of its own before each call" if parts is not None else "is timed as a whole"
        return f"the timer {asked!r} was asked for, but this case {own}; use --attnperf-timer={AUTO} or {usual}"
    timer = next((timer for timer in TIMERS if timer.name == asked), None)
    if timer is None:
        return f"unknown timer {asked!r}; there are: {', '.join(TIMER_NAMES)}"
    if (asked in _ON_CPU) != (torch_device == "cpu"):
        here = [name for name in TIMER_NAMES if name == AUTO or (name in _ON_CPU) == (torch_device == "cpu")]
        why = "a GPU's work goes on after a call has returned" if asked in _ON_CPU else "it needs a GPU"
        return f"the timer {asked!r} was asked for on {torch_device!r}, but {why}; use one of: {', '.join(here)}"
    if timer.cache_state != cache_state:
        return (
            f"the timer {asked!r} measures with a {timer.cache_state} cache, and this workload is {cache_state}; use "
            f"--attnperf-timer={AUTO}, or another workload"
        )
    return ""


def _no_substitute(name: str, why: str, cache_state: str) -> str:
    """Why nothing takes the place of a timer whose capture failed."""
    if cache_state == "cold":
        return (
            f"{why}; cold calls are timed by the {name!r} timer only, because a hot time must not pass for a cold one. "
            "Make the call capturable, or run this workload without --attnperf to check its result only"
        )
    return f"{why}; the timer {name!r} was asked for, and no other takes its place. Use --attnperf-timer={AUTO}"


def _new(name: str, torch_device: str, copies: CopiesMaker | None, why: str = "", parts: Parts | None = None) -> Timer:
    if parts is not None:
        return _new_in_parts(name, torch_device, parts, why or "asked for by name")
    if name == HostTimer.name:
        return HostTimer()
    if name == ProfilerTimer.name:
        return ProfilerTimer()
    if name == HostColdTimer.name:
        own = _copies(copies)
        return HostColdTimer(own.calls, own.note)
    stamps = stamps_of(torch_device)
    if name == GraphColdTimer.name:
        own = _copies(copies)
        return GraphColdTimer(own.calls, own.note, stamps)
    return GraphTimer(stamps) if name == GraphTimer.name else EventTimer(why or "asked for by name", stamps)


def _new_in_parts(name: str, torch_device: str, parts: Parts, why: str) -> Timer:
    if name == HostFreshTimer.name:
        return HostFreshTimer(parts.setup, parts.work)
    if name == HostSyncTimer.name:
        import torch

        return HostSyncTimer(parts.setup, parts.work, torch.cuda.synchronize)
    stamps = stamps_of(torch_device)
    if name == GraphFreshTimer.name:
        return GraphFreshTimer(parts.setup, parts.work, stamps)
    return EventFreshTimer(parts.setup, parts.work, why, stamps)


def _copies(maker: CopiesMaker | None) -> Copies:
    if maker is None:
        raise CaseFailedError(
            "a cold time needs copies of a call's inputs, and of this call none can be made; gate it as a case with "
            "cache_state='cold', or time it hot"
        )
    return maker()


def stamps_of(torch_device: str) -> Stamps | None:
    """This process's clock stamps on 'cuda', None where none can be taken; the first call builds and tries them."""
    # Imported late: the stamps use the timers' stream, and this package must be importable without them.
    from pytest_attnperf.measure.clock_stamps import clock_stamps

    return clock_stamps(torch_device)[0]


def _prepared(timer: Timer, call: Call, block_us: float) -> Timer:
    timer.prepare(call, block_us)
    return timer
