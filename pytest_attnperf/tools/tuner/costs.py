"""From single trials to the cost of a candidate: its time over the default's in the same process, over all workloads.

Times of two processes are never divided by each other: they differ by the placement and the clock of their processes.
Logarithms throughout, so that a geometric mean is a mean.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from pytest_attnperf.tools.tuner.journal import Timed
from pytest_attnperf.tuning_records import Candidate


class Costs:
    """Logarithms of costs, of the given trials in the order they were measured in.

    The default is timed several times in a process. A trial is compared with the default just before it and just after
    it, as far as there is one: an even drift then cancels.
    """

    def __init__(self, timed: Sequence[Timed], default: Candidate, workloads: Sequence[str]) -> None:
        self._default, self._workloads = default, tuple(workloads)
        self._ratios: dict[str, dict[int, dict[str, float]]] = {}
        places: dict[tuple[int, str], list[Timed]] = {}
        for item in timed:
            if item.trial.median_us is not None:
                places.setdefault((item.trial.process, item.trial.workload), []).append(item)
        for (_, workload), items in places.items():
            for item, ratio in self._place(items):
                slots = self._ratios.setdefault(item.trial.candidate.id, {})
                slots.setdefault(item.slot, {})[workload] = ratio

    def _place(self, items: Sequence[Timed]) -> list[tuple[Timed, float]]:
        """The log ratios of all trials of one process and workload; none without the default."""
        logs = [math.log(item.trial.median_us or math.nan) for item in items]
        own = [index for index, item in enumerate(items) if item.trial.candidate.id == self._default.id]
        if not own:
            return []
        ratios = []
        for index, item in enumerate(items):
            if index in own:
                ratios.append((item, 0.0))
                continue
            before = [logs[at] for at in own if at < index][-1:]
            after = [logs[at] for at in own if at > index][:1]
            ratios.append((item, logs[index] - statistics.fmean(before + after)))
        return ratios

    def by_slot(self, candidate: Candidate) -> dict[int, float]:
        """Its log cost in every slot that timed it on all workloads."""
        return {
            slot: statistics.fmean(ratios[name] for name in self._workloads)
            for slot, ratios in self._ratios.get(candidate.id, {}).items()
            if all(name in ratios for name in self._workloads)
        }

    def partial(self, candidate: Candidate, slot: int, workloads: Sequence[str]) -> float | None:
        """The sum of its log ratios over these workloads in a slot; None where one was not timed."""
        ratios = self._ratios.get(candidate.id, {}).get(slot, {})
        return sum(ratios[name] for name in workloads) if all(name in ratios for name in workloads) else None

    def log_cost(self, candidate: Candidate, slots: Sequence[int] | None = None) -> float | None:
        """Mean over slots (all, or those given) of its log cost; None where no slot is complete."""
        found = [cost for slot, cost in self.by_slot(candidate).items() if slots is None or slot in slots]
        return statistics.fmean(found) if found else None

    def cost(self, candidate: Candidate, slots: Sequence[int] | None = None) -> float | None:
        """As `log_cost`, as a ratio: 1 is the default."""
        log_cost = self.log_cost(candidate, slots)
        return None if log_cost is None else math.exp(log_cost)
