"""What a call costs besides its time on the device, and how much of that a change may add.

A cost is measured once in each process that times the case. It is gated only where a test asks for it.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.time_units import choose_time_unit

HOST_US, FIRST_CALL_MS, COMPILE_MS = "host_us", "first_call_ms", "compile_ms"
PEAK_BYTES, KEPT_BYTES, ALLOCATIONS = "peak_bytes", "kept_bytes", "allocations"

BUILT_IN = {
    HOST_US: "microseconds until a call returns on the host, with nothing queued on the device; median of 20 calls",
    FIRST_CALL_MS: "milliseconds of the process's first call, compiling or loading kernels, until the device is done",
    COMPILE_MS: "milliseconds of building, and of the first call beyond a later one, with empty compile caches",
    PEAK_BYTES: "most bytes that one call holds at a time from torch's allocator, beyond its inputs",
    KEPT_BYTES: "bytes of torch's allocator that a call leaves allocated when its result is gone; mean of 16 calls",
    ALLOCATIONS: "requests of one call to torch's allocator",
}
"""Cost -> what it is. A test may add costs of its own by functions of a call's result."""

OF_THE_FIRST_CALL = frozenset({FIRST_CALL_MS, COMPILE_MS})
"""Costs that are lower in a process that has served another case: it has loaded libraries and compiled kernels. Each
process that measures them serves their case first."""

OF_THE_HOST = OF_THE_FIRST_CALL | {HOST_US}
"""Costs that depend on the host's CPU. HOST_LOOP_US is measured beside them."""

HOST_LOOP_US = "host_loop_us"
"""Microseconds of a fixed loop of Python: costs of the host are compared only where it agrees."""

GROWTH_MOST_PERCENT = 1000.0
OFF = "off"
MIB = 2**20
NAME = re.compile(r"[a-z][a-z0-9_]*")
Metric = Callable[[Any], float]


@dataclass(frozen=True)
class GatedCosts:
    """The costs of a case that are gated.

    limits    cost -> by how many percent it may grow before the case is GREW
    metrics   cost -> function of what a call returned -> its value; only for costs that are not BUILT_IN
    off       costs that are not gated, although a more general setting gates them
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    off: frozenset[str] = frozenset()

    def merge_with(self, other: GatedCosts) -> GatedCosts:
        """Returns both as one; where both name a cost, what `other` says."""
        limits = {name: percent for name, percent in {**self.limits, **other.limits}.items() if name not in other.off}
        metrics = {name: made for name, made in {**self.metrics, **other.metrics}.items() if name in limits}
        return GatedCosts(limits, metrics, (self.off - other.limits.keys()) | other.off)


NO_COSTS = GatedCosts()


@dataclass(frozen=True)
class CostSettings:
    """The costs that a run gates in every case, each with its growth in percent; None does not gate it.

    project   of the command line or the ini file; what a test says replaces it
    override  of --attnperf-override; replaces what a test says
    """

    project: Mapping[str, float | None] = field(default_factory=dict)
    override: Mapping[str, float | None] = field(default_factory=dict)

    def apply_to(self, given: GatedCosts) -> GatedCosts:
        """Returns the costs that are gated where the test's marker and call give these."""
        return _as_gated(self.project).merge_with(given).merge_with(_as_gated(self.override))


def _as_gated(settings: Mapping[str, float | None]) -> GatedCosts:
    limits = {name: percent for name, percent in settings.items() if percent is not None}
    return GatedCosts(limits, off=frozenset(settings) - limits.keys())


def parse_cost_text(text: str, where: str) -> dict[str, float | None]:
    """Returns cost -> percent for 'host_us=20,peak_bytes=0'; None for 'host_us=off'. Only costs that are BUILT_IN can
    be named. Raises UsageError, beginning with `where`, for anything else."""
    found: dict[str, float | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            raise UsageError(f"{where}: {part!r} is no COST=PERCENT; give e.g. host_us=20,peak_bytes=0")
        _require_name(name, None, where)
        if name in found:
            raise UsageError(f"{where}: costs names {name!r} twice; leave one of them")
        try:
            percent: object = float(value.removesuffix("%"))
        except ValueError:
            percent = value
        found[name] = None if value == OFF else _require_percent(name, percent, where)
    return found


def format_costs(name: str, values: Iterable[float]) -> list[str]:
    """Returns values of one cost in one unit, so that they can be compared: times in the best one, bytes in MiB if one
    is that large, anything else as numbers."""
    numbers = list(values)
    length = next((length for end, length in (("_us", 1.0), ("_ms", 1e3)) if name.endswith(end)), None)
    if length is not None:
        unit = choose_time_unit(value * length for value in numbers)
        return [f"{unit.format_number(value * length)} {unit.name}" for value in numbers]
    if name.endswith("_bytes"):
        large = max(numbers, default=0.0) >= MIB
        return [f"{value / MIB:.4g} MiB" if large else f"{value:.0f} bytes" for value in numbers]
    return [f"{value:.6g}" for value in numbers]


def parse_costs(given: object, where: str) -> GatedCosts:
    """Returns the costs of `costs={...}`: cost -> percent for those that are BUILT_IN, or cost -> (function, percent);
    cost -> None for one that is not gated, although the project gates it.

    None gives no costs. Raises UsageError, beginning with `where`, for anything else, an unknown cost without a
    function, a known one with a function, and a percentage that is not from 0 to 1000.
    """
    if given is None:
        return NO_COSTS
    if not isinstance(given, Mapping):
        raise UsageError(
            f"{where}: costs={given!r:.100} is no dict; give the growth in percent that each may have, e.g. "
            'costs={"peak_bytes": 0, "host_us": 20}'
        )
    limits: dict[str, float] = {}
    metrics: dict[str, Metric] = {}
    for name, value in given.items():
        if value is None:
            _require_name(name, None, where)
            continue
        metric, percent = value if isinstance(value, tuple) and len(value) == 2 else (None, value)
        _require_name(name, metric, where)
        limits[name] = _require_percent(name, percent, where)
        if metric is not None:
            metrics[name] = metric
    return GatedCosts(limits, metrics, frozenset(given) - limits.keys())


def _require_name(name: object, metric: object, where: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(f"{where}: costs has {name!r:.100}; a cost is named by lower-case letters, digits and '_'")
    if metric is None and name not in BUILT_IN:
        near = difflib.get_close_matches(name, BUILT_IN, 1, 0.6)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(
            f"{where}: costs has {name!r}, which is not measured; {meant}measured are {', '.join(BUILT_IN)}; one of "
            f'your own needs a function of what a call returns: costs={{"{name}": (function, percent)}}'
        )
    if metric is not None and name in BUILT_IN:
        raise UsageError(f"{where}: costs has a function for {name!r}, which is measured without one; give the percent")
    if metric is not None and not callable(metric):
        raise UsageError(f"{where}: costs[{name!r}] is ({metric!r:.50}, percent); its first entry must be a function")


def _require_percent(name: str, percent: object, where: str) -> float:
    is_number = isinstance(percent, Real) and not isinstance(percent, bool)
    if not is_number or not math.isfinite(percent) or not 0 <= percent <= GROWTH_MOST_PERCENT:  # type: ignore[arg-type,operator]
        raise UsageError(
            f"{where}: costs[{name!r}] is {percent!r:.100}; expected the growth in percent that is allowed, from 0 to "
            f"{GROWTH_MOST_PERCENT:g}"
        )
    return float(percent)  # type: ignore[arg-type]
