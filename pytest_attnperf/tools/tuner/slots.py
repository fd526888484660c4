"""Times candidates in numbered processes, within a budget. Trials that the journal has are not measured again.

A search numbers its processes as slots. In an uninterrupted search slot and process are the same. After a kill, the
rest of a slot is timed in a new process, where the default is timed again, so that ratios stay within a process. The
search is deterministic for its seed, so running it again with the journal's trials ends where it was killed.

The cost of a candidate is its time over the default's in the same process, over all workloads. Times of two processes
are never divided by each other, because placement and clock differ between processes. Costs are logarithms, so that a
geometric mean is a mean.
"""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pytest_attnperf.errors import CaseFailedError, UsageError
from pytest_attnperf.tools.tuner.trial_bench import TrialBench, is_death, is_wrong
from pytest_attnperf.tools.tuner.tuner_journal import SlotTrial, TrialJournal
from pytest_attnperf.tools.tuner.tuner_settings import TuneSearchSettings
from pytest_attnperf.tuning_records import Candidate, Excluded, Trial

DEFAULT_EVERY = 16
"""Candidates between two timings of the default, few enough to follow a drift of minutes."""

AGAIN = 1000
"""First attempt number of timings of the default after a kill or a dead worker. They do not count as trials, so that
a killed search ends where it would have ended."""


class Slots:
    """Times candidates on all lanes (GPUs) in slots, the numbered processes of a search, and keeps the results.

    strategy   the search that uses them: 'race', 'optuna' or 'exhaustive'
    lanes      number of slots in a round: the GPUs that the search began with. With fewer GPUs later, slots take turns
    stopped    why nothing more is timed, '' while there is budget
    excluded   candidates that failed, by id
    """

    def __init__(
        self,
        strategy: str,
        default: Candidate,
        workloads: Sequence[str],
        bench: TrialBench,
        settings: TuneSearchSettings,
        journal: TrialJournal,
    ) -> None:
        self.default, self.workloads, self.settings = default, tuple(workloads), settings
        self.strategy, self.bench, self.journal = strategy, bench, journal
        self.lanes = _restore_lanes(journal, strategy, settings, max(1, bench.lanes))
        self.stopped = ""
        self.excluded: dict[str, Excluded] = {}
        self._started = settings.clock()
        self._limits: tuple[float, float] = (settings.budget_s, settings.max_trials or math.inf)
        self._guard = threading.Lock()
        self._pending = 0
        self._aborted = False
        self._processes: dict[int, int] = {}
        self._used: set[tuple[int, str, str, int]] = set()
        self._with_default: set[tuple[int, str]] = set()
        self._next_process = 1 + max((trial.process for trial in journal.trials), default=-1)
        self._counted = sum(item.attempt < AGAIN for item in journal.slot_trials)

    def collect_costs(self, *workloads: str) -> Costs:
        """Returns the costs (log of time over the default's) from all trials that this search has used, over the named
        workloads, or over all if none is named. Includes every timing of the default after a kill."""
        with self._guard:
            used = set(self._used)
        seen = [item for item in self.journal.slot_trials if _trial_key(item) in used or item.attempt >= AGAIN]
        return Costs(seen, self.default, workloads or self.workloads)

    def set_limits(self, budget_s: float, trials: float) -> None:
        """Sets the limits of time and trials, both counted from the beginning of the search, and clears `stopped`. The
        settings' own limits still hold."""
        self._limits = (min(budget_s, self.settings.budget_s), min(trials, self.settings.max_trials or math.inf))
        self.stopped = ""

    def time_candidates(self, slots: Sequence[int], candidates: Sequence[Sequence[Candidate]], workload: str) -> None:
        """Times the candidates of each slot (numbered process) on one workload, the default first and again after every
        DEFAULT_EVERY candidates. Leaves out candidates that failed; stops at the limits of time and trials. Raises
        CaseFailedError if the default cannot be timed."""
        for slot in slots:
            self._assign_process(slot)
        at_once = min(len(slots), max(1, self.bench.lanes))
        if at_once == 1:
            self._time_lane(0, slots, candidates, workload)
            return
        with ThreadPoolExecutor(at_once) as executor:
            done = [
                executor.submit(self._time_lane, lane, slots[lane::at_once], candidates[lane::at_once], workload)
                for lane in range(at_once)
            ]
            try:
                for future in done:
                    future.result()
            except BaseException:
                # Otherwise an interrupt would wait for every lane's whole list.
                self._aborted = True
                raise

    def _time_lane(
        self, lane: int, slots: Sequence[int], candidates: Sequence[Sequence[Candidate]], workload: str
    ) -> None:
        try:
            for slot, todo in zip(slots, candidates, strict=True):
                self._time_in_turn(lane, slot, todo, workload)
        except BaseException:
            self._aborted = True
            raise

    def _time_in_turn(self, lane: int, slot: int, candidates: Sequence[Candidate], workload: str) -> None:
        since_default = DEFAULT_EVERY
        told = 0
        for candidate in candidates:
            if candidate.id == self.default.id or candidate.id in self.excluded:
                continue
            if since_default == DEFAULT_EVERY:
                self._time_default(lane, slot, workload, told)
                since_default, told = 0, told + 1
            if self.stopped or self._aborted:
                return
            self._time_candidate(lane, slot, candidate, workload)
            since_default += 1

    def _time_default(self, lane: int, slot: int, workload: str, told: int) -> None:
        """Times the default in this slot, and once more in a new process if that fails. Raises CaseFailedError if both
        fail. `told` is the number of earlier timings of the default in this slot and workload."""
        failures: list[Trial] = []
        for attempt in (0, 1):
            timed = self._find_or_time(lane, slot, self.default, workload, 2 * told + attempt)
            if timed is None or timed.trial.median_us is not None:
                return
            failures.append(timed.trial)
            self._leave_process(slot)
        raise CaseFailedError(
            f"the default {self.default.id} failed twice on {workload}, so nothing can be compared with "
            f"it: {failures[-1].failure}"
        )

    def _time_candidate(self, lane: int, slot: int, candidate: Candidate, workload: str) -> None:
        timed = None
        for attempt in (0, 1):
            timed = self._find_or_time(lane, slot, candidate, workload, attempt)
            if timed is None or timed.trial.median_us is not None:
                return
            if not is_death(timed.trial.failure):
                break
            self._leave_process(slot)
        if timed is not None:
            stage = "wrong" if is_wrong(timed.trial.failure) else "failed"
            self.excluded[candidate.id] = Excluded(candidate, stage, f"{timed.trial.failure} (on {workload})")

    def _find_or_time(
        self, lane: int, slot: int, candidate: Candidate, workload: str, attempt: int
    ) -> SlotTrial | None:
        """Returns the trial of this slot, candidate, workload and attempt from the journal, or measures and records it;
        None if the budget does not allow it."""
        known = self.journal.lookup(slot, candidate, workload, attempt)
        if known is not None:
            self._mark_used(known)
            return known
        if candidate.id != self.default.id and (self._assign_process(slot), workload) not in self._with_default:
            self._time_default_again(lane, slot, workload)
        if not self._reserve_trial():
            return None
        process = self._assign_process(slot)
        trial = reject_bad_time(self.bench.time(lane, process, candidate, workload))
        timed = SlotTrial(slot, attempt, trial)
        self.journal.record(timed)
        with self._guard:
            self._pending -= 1
            self._counted += attempt < AGAIN
        self._mark_used(timed)
        return timed

    def _mark_used(self, timed: SlotTrial) -> None:
        trial = timed.trial
        with self._guard:
            self._used.add(_trial_key(timed))
            if trial.candidate.id == self.default.id and trial.median_us is not None:
                self._with_default.add((trial.process, trial.workload))

    def _time_default_again(self, lane: int, slot: int, workload: str) -> None:
        """Times the default in the new process in which this slot continues after a kill or a dead worker, because
        costs are ratios within one process. If that fails, the slot goes on in another process."""
        attempts = AGAIN
        while self.journal.lookup(slot, self.default, workload, attempts) is not None:
            attempts += 1
        timed = self._find_or_time(lane, slot, self.default, workload, attempts)
        if timed is not None and timed.trial.median_us is None:
            self._leave_process(slot)

    def _reserve_trial(self) -> bool:
        """Counts one more running trial and returns True; at the limit of time or trials sets `stopped`, returns
        False."""
        budget_s, trials = self._limits
        with self._guard:
            if self.settings.clock() - self._started > budget_s:
                self.stopped = self.stopped or f"the budget of {budget_s:g} s is used up"
            elif self._counted + self._pending >= trials:
                self.stopped = self.stopped or f"{trials:g} trials were made, as many as allowed"
            if self.stopped or self._aborted:
                return False
            self._pending += 1
            return True

    def _assign_process(self, slot: int) -> int:
        with self._guard:
            if slot not in self._processes:
                self._processes[slot] = self._next_process
                self._next_process += 1
            return self._processes[slot]

    def _leave_process(self, slot: int) -> None:
        """Makes a fresh process, with the next free number, run this slot's next trial."""
        with self._guard:
            self._processes.pop(slot, None)


def _trial_key(timed: SlotTrial) -> tuple[int, str, str, int]:
    return timed.slot, timed.trial.candidate.id, timed.trial.workload, timed.attempt


def _restore_lanes(journal: TrialJournal, strategy: str, settings: TuneSearchSettings, lanes: int) -> int:
    """Returns the number of lanes (GPUs) that the journal's search began with. A new journal records `lanes`, and this
    is returned. Raises UsageError if the journal's strategy or seed differs from this run's."""
    begun = next(journal.iterate_records("search"), None)
    if begun is None:
        journal.append("search", {"strategy": strategy, "seed": settings.seed, "lanes": lanes})
        return lanes
    for name, now in (("strategy", strategy), ("seed", settings.seed)):
        if begun.get(name) != now:
            raise UsageError(
                f"{journal.path or 'the journal'}: began with {name} {begun.get(name)!r}, now it is {now!r}; "
                "use the former, or give another --out"
            )
    return int(begun["lanes"])


def reject_bad_time(trial: Trial) -> Trial:
    """Returns the trial; as a failed one if it has a failure, or if its time is not finite, not positive or missing."""
    time_us = trial.median_us
    if time_us is None:
        return trial if trial.failure else replace(trial, failure="no time, and no reason given")
    if trial.failure:
        return replace(trial, median_us=None)
    if not (math.isfinite(time_us) and time_us > 0):
        return replace(trial, median_us=None, failure=f"not a time: {time_us} us", summary=None)
    return trial


class Costs:
    """Log costs of the given trials, which must be in the order of measurement.

    The default is timed several times in a process. A trial is compared with the mean of the default just before and
    just after it (or with the only one of them), so that a steady drift cancels."""

    def __init__(self, timed: Sequence[SlotTrial], default: Candidate, workloads: Sequence[str]) -> None:
        self._default, self._workloads = default, tuple(workloads)
        self._ratios: dict[str, dict[int, dict[str, float]]] = {}
        places: dict[tuple[int, str], list[SlotTrial]] = {}
        for item in timed:
            if item.trial.median_us is not None:
                places.setdefault((item.trial.process, item.trial.workload), []).append(item)
        for (_, workload), items in places.items():
            for item, ratio in self._log_ratios(items):
                slots = self._ratios.setdefault(item.trial.candidate.id, {})
                slots.setdefault(item.slot, {})[workload] = ratio

    def _log_ratios(self, items: Sequence[SlotTrial]) -> list[tuple[SlotTrial, float]]:
        """Returns (trial, log of a ratio) for all trials of one process and workload, in the order measured. The ratio
        is its time over the default's (the geometric mean of the nearest before and after it), 1 for the default
        itself. Empty if the default has no time there."""
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
        """Returns slot -> a candidate's log cost, its mean over all workloads, for slots that timed it on all of
        them."""
        return {
            slot: statistics.fmean(ratios[name] for name in self._workloads)
            for slot, ratios in self._ratios.get(candidate.id, {}).items()
            if all(name in ratios for name in self._workloads)
        }

    def sum_log_ratios(self, candidate: Candidate, slot: int, workloads: Sequence[str]) -> float | None:
        """Returns the sum over `workloads` of log(candidate's time / default's) in a slot; None if one was not timed
        there."""
        ratios = self._ratios.get(candidate.id, {}).get(slot, {})
        return sum(ratios[name] for name in workloads) if all(name in ratios for name in workloads) else None

    def log_cost(self, candidate: Candidate, slots: Sequence[int] | None = None) -> float | None:
        """Returns the mean of a candidate's log costs over `slots` (None: all); None if no slot timed it on all
        workloads."""
        found = [cost for slot, cost in self.by_slot(candidate).items() if slots is None or slot in slots]
        return statistics.fmean(found) if found else None
