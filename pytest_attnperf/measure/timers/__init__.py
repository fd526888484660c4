"""Every timer, and the rule that chooses one. The samples record the timer, and why it is not another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.timers.capture import CaptureFailedError
from pytest_attnperf.measure.timers.event import EventTimer
from pytest_attnperf.measure.timers.event_fresh import EventFreshTimer
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.measure.timers.graph_cold import GraphColdTimer
from pytest_attnperf.measure.timers.graph_fresh import GraphFreshTimer
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.measure.timers.host_cold import HostColdTimer
from pytest_attnperf.measure.timers.host_fresh import HostFreshTimer, HostSyncTimer
from pytest_attnperf.measure.timers.profiler import ProfilerTimer
from pytest_attnperf.measure.timers.report_002 import Report002Timer
from pytest_attnperf.measure.timers.timer import Call, CallParts, CopiesMaker, Timer, TimerKind, TimerMaterial
from pytest_attnperf.measure.timers.timer_table import LISTED_IN, check_table

if TYPE_CHECKING:
    from pytest_attnperf.measure.timers.pair_clocks import Stamps

TIMERS: tuple[type[TimerKind], ...] = (
    *(GraphTimer, GraphColdTimer, EventTimer, ProfilerTimer, HostTimer, HostColdTimer),
    *(GraphFreshTimer, EventFreshTimer, HostFreshTimer, HostSyncTimer, Report002Timer),
)
"""All timers; the rule takes the first that fits a call. A number and its baseline must have the same timer name."""

AUTO = "auto"
"""Instead of a timer's name: the rule chooses."""


def timer_names() -> tuple[str, ...]:
    """Returns 'auto' and the names of all timers, which --attnperf-timer accepts. Raises UsageError for a class of
    TIMERS that is no whole timer."""
    check_table(TIMERS, AUTO)
    return (AUTO, *(timer.name for timer in TIMERS))


def is_gating(name: str) -> bool:
    """Returns whether times of the timer `name`, or of AUTO, may be gated and stored. False only for timers that exist
    to show what another protocol would have said."""
    return all(timer.gates for timer in TIMERS if timer.name == name)


def choose_timer(
    torch_device: str,
    call: Call,
    block_us: float,
    cache_state: str = "hot",
    asked: str = AUTO,
    copies: CopiesMaker | None = None,
    parts: CallParts | None = None,
    split: int = 1,
) -> Timer:
    """Chooses a timer for a call on 'cuda' (both vendors) or 'cpu' and prepares it for blocks of about `block_us` us.

    CPU: the host's clock. GPU: a graph; if capture fails, events, and the note says why. Cold calls rotate over
    `copies`; if they cannot be captured, they are not timed.

    asked    AUTO, or the name of the only timer to be used
    parts    of a call that is not timed as a whole; each timed call then gets its own inputs
    split    blocks of a `GraphTimer` are this many times shorter (`placements.SPLIT`)

    Raises CaseFailedError for a cache state that no timer provides. Raises it, too, if the requested timer does not
    exist, cannot be used here, or has another cache state: a hot time must not pass for a cold one.
    """
    states = sorted({timer.cache_state for timer in TIMERS})
    if cache_state not in states:
        raise CaseFailedError(
            f"no timer measures with a {cache_state!r} cache; there are timers for: {', '.join(states)}. "
            "Run this workload without --attnperf to check its result only"
        )
    usual = _choose_usual(torch_device, cache_state, parts)
    kind = usual if asked == AUTO else _find_timer(asked)
    if asked != AUTO and (reason := _reason_unusable(kind, usual.name, torch_device, cache_state, parts)):
        raise CaseFailedError(reason)
    given = TimerMaterial(lambda: stamps_of(torch_device), copies, parts, torch_device=torch_device)
    try:
        return _prepare_timer(kind.make(given), call, block_us / split if kind is GraphTimer else block_us)
    except CaptureFailedError as error:
        why = f"graph capture failed: {error}"
    if not kind.substitute or asked != AUTO:
        raise CaseFailedError(_no_substitute(kind.name, why, cache_state))
    return _prepare_timer(_find_timer(kind.substitute).make(replace(given, why=why)), call, block_us)


def _choose_usual(torch_device: str, cache_state: str, parts: CallParts | None) -> type[TimerKind]:
    """Returns the timer that is used unless another is asked for: the first of TIMERS that fits device and call."""
    on_cpu, in_parts = torch_device == "cpu", parts is not None
    waits = parts is not None and parts.host_sync and not on_cpu
    fit = [timer for timer in TIMERS if (timer.on_cpu, timer.in_parts, timer.waits) == (on_cpu, in_parts, waits)]
    return next(timer for timer in fit if in_parts or timer.cache_state == cache_state)


def _find_timer(name: str) -> type[TimerKind]:
    """Returns the timer class with this name. Raises CaseFailedError that lists the names if there is none."""
    for timer in TIMERS:
        if timer.name == name:
            return timer
    raise CaseFailedError(f"unknown timer {name!r}; there are: {', '.join(timer_names())} (TIMERS of {LISTED_IN})")


def _reason_unusable(
    kind: type[TimerKind], usual: str, torch_device: str, cache_state: str, parts: CallParts | None
) -> str:
    """Returns why the requested timer cannot be used; '' if it can."""
    asked, on_cpu = kind.name, torch_device == "cpu"
    if kind.in_parts != (parts is not None):
        own = "gets inputs of its own before each call" if parts is not None else "is timed as a whole"
        return f"the timer {asked!r} was requested, but this case {own}; use --attnperf-timer={AUTO} or {usual}"
    if kind.on_cpu != on_cpu and not kind.on_any:
        here = ", ".join((AUTO, *(timer.name for timer in TIMERS if timer.on_any or timer.on_cpu == on_cpu)))
        why = "a GPU's work goes on after a call has returned" if kind.on_cpu else "it needs a GPU"
        hint = "" if kind.on_cpu else "; a timer whose calls run on a CPU has on_cpu = True"
        return f"the timer {asked!r} was requested on {torch_device!r}, but {why}; use one of: {here}{hint}"
    if kind.cache_state != cache_state:
        return (
            f"the timer {asked!r} measures with a {kind.cache_state} cache, and this workload is {cache_state}; use "
            f"--attnperf-timer={AUTO}, or another workload"
        )
    return ""


def _no_substitute(name: str, why: str, cache_state: str) -> str:
    """Returns the message for a call that cannot be captured (`why`) and has no other timer, with what to do."""
    if cache_state == "cold":
        return (
            f"{why}; cold calls are timed by the {name!r} timer only, because a hot time must not pass for a cold one. "
            "Make the call capturable, or run this workload without --attnperf to check its result only"
        )
    return f"{why}; the timer {name!r} was requested, and no other replaces it. Use --attnperf-timer={AUTO}"


def stamps_of(torch_device: str) -> Stamps | None:
    """Returns this process's clock stamps on 'cuda', None if it has none; the first call builds and tests them."""
    # Imported late: the stamps use the timers' stream, and this package must be importable without them.
    from pytest_attnperf.measure.clock_stamps import open_clock_stamps

    return open_clock_stamps(torch_device)[0]


def _prepare_timer(timer: Timer, call: Call, block_us: float) -> Timer:
    timer.prepare(call, block_us)
    return timer
