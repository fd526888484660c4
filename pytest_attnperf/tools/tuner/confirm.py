"""Compares the winner with the default in new pairs of processes, measured in turns, on every workload of the changed
rule.

No process here took part in the search, because a candidate's luck there must not count again. The outer loop is over
pairs, the inner one over workloads: a run that ends early has fewer pairs of every workload, and only two processes
hold memory of the GPU at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pytest_attnperf.errors import WorkerError
from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.tools.tuner.worker_bench import PinOf, check_ran_as_pinned, reason_no_time, reason_other_path
from pytest_attnperf.tuning_records import Candidate
from pytest_attnperf.workers.conversation import OpenRequest
from pytest_attnperf.workers.interleave import InterleavePlan, PairLook, PairSide, SideFailedError, take_pair
from pytest_attnperf.workers.pool import Pool

PAIR_PLACES = 100_000
"""First place of pairs. It is above every process number of a search, so that names of workers and logs differ."""

DEFAULT_SIDE = "the default"
WINNER_SIDE = "the winner"

LIMIT_S = 300.0
ATTEMPTS = 2
"""Pairs of processes that are tried before a process's death counts as the workload's failure."""
Found: TypeAlias = "PairSummary | str"
"""Result of one pair on a workload: a ratio, or why there is none."""


@dataclass
class Confirmation:
    """The results so far: pairs by workload, and why a workload has none. Kept across an interruption.

    done   called with (workload, number of the pair, result) for each new result
    """

    pairs: dict[str, dict[int, PairSummary]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    done: Callable[[str, int, Found], None] = lambda workload, number, found: None

    def add(self, workload: str, number: int, found: Found) -> None:
        """Stores pair `number` of a workload, or a text that says why the workload failed; then calls `done`."""
        self.restore(workload, number, found)
        self.done(workload, number, found)

    def restore(self, workload: str, number: int, found: Found) -> None:
        """Stores a pair or a failure text like `add`, from an interrupted run, without calling `done`."""
        if isinstance(found, str):
            self.failures[workload] = found
        else:
            self.pairs.setdefault(workload, {})[number] = found

    def needs_pair(self, workload: str, number: int) -> bool:
        """Returns whether pair `number` of a workload must still be measured; False for a workload that failed."""
        return workload not in self.failures and number not in self.pairs.get(workload, {})

    def collect_results(self, workloads: Sequence[str]) -> dict[str, list[PairSummary] | str]:
        """Returns, by workload, its pairs in order of their numbers, or the text why it failed."""
        return {
            workload: self.failures[workload]
            if workload in self.failures
            else [pair for _, pair in sorted(self.pairs.get(workload, {}).items())]
            for workload in workloads
        }


def confirm_winner(
    default: Candidate,
    winner: Candidate,
    keys: Mapping[str, CaseKey],
    base: Pool,
    new: Pool,
    pin_of: PinOf,
    plan: InterleavePlan,
    *,
    seed: int = 0,
    limit_s: float = LIMIT_S,
    large: Collection[str] = (),
    known: Confirmation | None = None,
    stop: Callable[[], bool] = lambda: False,
    told: Callable[[int, int], None] = lambda pair, pairs: None,
) -> dict[str, list[PairSummary] | str]:
    """Measures `plan.pairs` pairs of every workload. Returns, by workload id, pairs or why there are none.

    base, new   two pools on one GPU, which nothing else uses
    seed        must differ from the search's, so that checks get new inputs
    large       workloads whose sides are checked one after the other, for lack of memory
    known       results of an interrupted run; new results are added to it
    stop        called before each pair of processes; once it returns True, no further pair is measured
    told        called with the number of each pair that begins, and the number of all
    Raises UsageError if a side does not run its configuration, WorkerError if no process starts.
    """
    known = known or Confirmation()
    measured = _Pair(
        default, winner, PairSide(base, DEFAULT_SIDE), PairSide(new, WINNER_SIDE), pin_of, plan, seed, limit_s
    )
    for number in range(plan.pairs):
        wanted = [workload for workload in keys if known.needs_pair(workload, number)]
        if not wanted:
            continue
        if stop():
            break
        told(number + 1, plan.pairs)
        try:
            for workload in wanted:
                at_once = workload not in large
                known.add(workload, number, measured.take(number, keys[workload], at_once=at_once))
        finally:
            for pool in (base, new):
                pool.shutdown()
    return known.collect_results(list(keys))


@dataclass
class _Pair:
    """Measures pairs of the default and the winner."""

    default: Candidate
    winner: Candidate
    base: PairSide
    new: PairSide
    pin_of: PinOf
    plan: InterleavePlan
    seed: int
    limit_s: float

    def take(self, number: int, key: CaseKey, *, at_once: bool) -> Found:
        """Times default and winner alternately on one workload, in two new processes (two others if one dies).

        Returns their times as pair `number`, or a text that says why there is none. `at_once` False checks the
        results of both one after the other, which needs less memory."""
        place, seed = PAIR_PLACES + number, self.seed + 2 * number
        theirs, ours = (
            OpenRequest(key, None, seed, seed + 1, self.limit_s, pin=self.pin_of(candidate))
            for candidate in (self.default, self.winner)
        )
        failure = ""
        for _ in range(ATTEMPTS):
            self._start_processes(place)
            found = self._try_pair(place, theirs, ours, at_once=at_once)
            if not isinstance(found, WorkerError):
                return found
            failure = failure or found.summary
        return failure

    def _try_pair(self, place: int, theirs: OpenRequest, ours: OpenRequest, *, at_once: bool) -> Found | WorkerError:
        try:
            look = take_pair(self.base, self.new, place, ours, self.plan, at_once=at_once, base_request=theirs)
        except WorkerError as error:
            return error
        except SideFailedError as error:
            return error.summary
        return self._judge_look(look, theirs, ours)

    def _start_processes(self, place: int) -> None:
        """Starts process number `place` of default and winner at the same time, and waits for both. Raises
        WorkerError if one does not start."""
        for side in (self.base, self.new):
            side.pool.start([place])
        for side in (self.base, self.new):
            side.pool.wait_until_ready(place)

    def _judge_look(self, look: PairLook, theirs: OpenRequest, ours: OpenRequest) -> Found:
        for name, side in ((DEFAULT_SIDE, look.base), (WINNER_SIDE, look.new)):
            if failure := reason_no_time(side):
                return f"{name}: {failure}"
        if look.problems:
            return f"the sides cannot be compared: {look.problems[0]}"
        if look.pair is None:
            return f"not timed: {look.new.note or look.base.note or 'a side may not be timed'}"
        for name, request, side in ((DEFAULT_SIDE, theirs, look.base), (WINNER_SIDE, ours, look.new)):
            if failure := reason_other_path(request.pin, side.final.config):
                return f"{name}: {failure}"
        check_ran_as_pinned(self.default, theirs.pin, look.base.final.config, ours.key.backend)
        check_ran_as_pinned(self.winner, ours.pin, look.new.final.config, ours.key.backend)
        return look.pair
