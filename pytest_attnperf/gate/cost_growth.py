"""Decides whether a call costs more than the stored one in memory, host time or whatever its test counts. Pure.

Processes are exchangeable where nothing changed. So the least of n new processes exceeds the greatest of m stored ones
by chance with probability n! m! / (n + m)!, whatever the distribution: 1 in 330 for 4 new processes against 7 stored.
The costs of all cases of a run share its false-alarm rate, so a suspect is measured in as many processes as make that
chance small enough: 9 against 7 stored for 100 costs and a rate of 0.01. One process that is no worse than the greatest
stored one ends it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.records.costs import HOST_LOOP_US, OF_THE_HOST, format_costs

Values = Sequence[Mapping[str, float]]
"""One mapping (cost -> value) for each process."""

LOOP_AGREES = 0.10
"""Relative difference of HOST_LOOP_US up to which two hosts count as one."""


LEAST_PROCESSES = 4
"""Fewest new processes that show growth: those of two looks."""


def count_needed(stored: int, compared: int, rate: float) -> int:
    """Returns how many new processes must exceed `stored` stored ones, so that a run that compares `compared` costs of
    unchanged code has a false alarm with probability `rate` at most. At least LEAST_PROCESSES."""
    needed = LEAST_PROCESSES
    while stored and math.comb(stored + needed, needed) * rate < compared:
        needed += 1
    return needed


@dataclass(frozen=True)
class CostGrowth:
    """One cost of new processes, beyond what is allowed over the stored ones in every one of them."""

    name: str
    limit_percent: float
    stored: tuple[float, ...]
    new: tuple[float, ...]

    @property
    def headline(self) -> str:
        """Says which cost grew, and by how much, e.g. 'cost peak_bytes grew by 50 %'; from zero without a figure."""
        before, now = statistics.median(self.stored), statistics.median(self.new)
        return f"cost {self.name} grew{f' by {100 * (now / before - 1):.3g} %' if before else ''}"

    @property
    def text(self) -> str:
        """Returns the headline with both medians, how much is allowed, and the two nearest processes."""
        values = (statistics.median(self.new), statistics.median(self.stored), min(self.new), max(self.stored))
        now, before, least, greatest = format_costs(self.name, values)
        return (
            f"{self.headline}: {now} against {before} stored, {self.limit_percent:g} % allowed (least of "
            f"{len(self.new)} processes {least}, greatest of {len(self.stored)} stored {greatest})"
        )


def find_growth(limits: Mapping[str, float], stored: Values, new: Values) -> list[CostGrowth]:
    """Returns the costs that in every new process exceed the greatest stored one by more than `limits` allows
    (percent), in the order of `limits`. Costs that are not comparable (`list_incomparable`) never grew."""
    apart = list_incomparable(limits, stored, new)
    found = []
    for name, percent in limits.items():
        before, now = _values_of(name, stored), _values_of(name, new)
        if name not in apart and min(now) > max(before) * (1 + percent / 100):
            found.append(CostGrowth(name, percent, before, now))
    return found


def list_incomparable(limits: Mapping[str, float], stored: Values, new: Values) -> dict[str, str]:
    """Returns cost -> why it cannot be compared: a side lacks it in a process, or its host is another one or busy."""
    found = {}
    for name in limits:
        if not _values_of(name, stored):
            found[name] = "the baseline has no value of it: record it again"
        elif not _values_of(name, new):
            found[name] = "it was not measured"
        elif name in OF_THE_HOST and (why := _describe_other_host(stored, new)):
            found[name] = why
    return found


def _values_of(name: str, processes: Values) -> tuple[float, ...]:
    """Returns the cost's value in every process; () if one lacks it."""
    values = tuple(process[name] for process in processes if name in process)
    return values if len(values) == len(processes) else ()


def _describe_other_host(stored: Values, new: Values) -> str:
    before, now = _values_of(HOST_LOOP_US, stored), _values_of(HOST_LOOP_US, new)
    if not before or not now:
        return "the speed of the host is not known"
    ratio = min(now) / min(before)  # a busy core makes a loop slower, never faster
    if 1 / (1 + LOOP_AGREES) <= ratio <= 1 + LOOP_AGREES:
        return ""
    return f"a fixed loop of Python takes {ratio:.2f} times what it took on the stored host: another CPU, or a busy one"
