"""Times one proven case: its timer, its places in memory, and the proof of every replay before it counts.

One block of each process is a hidden check: its inputs change without notice, and its last result is judged. A call can
find out that it is checked and not timed: by its caller, by whether Python's collector runs, by what came before, by
planted elements. So the hidden block runs from the same code as all others, on inputs like the timed ones with another
seed. Its time is not used.
"""

from __future__ import annotations

import functools
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness.judge import Checking, Judge, advance
from pytest_attnperf.correctness.own_inputs import written_in_place
from pytest_attnperf.correctness.result import has_results
from pytest_attnperf.environment.device_state import ThrottleWatch, open_throttle_counters
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import placements, torch_settings
from pytest_attnperf.measure.cold_cache import cold_size
from pytest_attnperf.measure.copies import Copies, copy_inputs, make_copies
from pytest_attnperf.measure.placements import Twins
from pytest_attnperf.measure.proving import TimedWrongError
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.rotation import measure_rotation
from pytest_attnperf.measure.sampling import measure_pairs, require_reachable, sample_blocks
from pytest_attnperf.measure.stopping import MIN_BLOCKS, StoppingRule
from pytest_attnperf.measure.timers import AUTO, choose_timer, stamps_of
from pytest_attnperf.measure.timers.event import EventTimer
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.measure.timers.graph_cold import GraphColdTimer
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.measure.timers.replay import ReplayTimer
from pytest_attnperf.measure.timers.timer import CallParts
from pytest_attnperf.measure.warm_up import warm_device, warm_up
from pytest_attnperf.records import CheckReport, Rotation, Samples
from pytest_attnperf.records.listing import find_class_place
from pytest_attnperf.records.pairs import Turn, TurnPlan

if TYPE_CHECKING:
    from pytest_attnperf.backends import Prepared
    from pytest_attnperf.correctness.judge import Judge
    from pytest_attnperf.environment.system import ThrottleReading
    from pytest_attnperf.measure.proving import Prover
    from pytest_attnperf.measure.timers.timer import Timer

COLD_BLOCKS_MOST = 12
"""Each is a mean over many places already; more blocks would reach the throttling that a rest delays (`placements`)."""

HIDDEN_TURNS = 4
"""One of this many first turns is followed by a hidden check."""

INSIDE = "inside a timed block"


class Timing:
    """Times one case. If a replay raises TimedWrongError or OtherWorkError, the case is not right.

    prepared   owns the timed inputs; `judge` judges it
    inspect    examines a captured graph, and raises OtherWorkError
    call_bytes memory that a call allocates, with its inputs, as soon as it is known
    """

    def __init__(
        self, prover: Prover, prepared: Prepared, judge: Judge, inspect: Callable[[ReplayTimer], None]
    ) -> None:
        self.timer: Timer | None = None
        self.asked = AUTO
        self.call_bytes = 0
        self._prover = prover
        self._prepared = prepared
        self._judge = judge
        self._inspect = inspect
        self._block_us = 0.0
        self._copies = Copies(())
        self._places = _Places()
        self._median_us = 0.0
        self._direct_us = 0.0
        self._turns = 0
        self._hidden_turn = 0

    def measure_blocks(self, max_blocks: int, block_us: float, budget_us: float, asked: str) -> Samples:
        """Measures the case's blocks (see `Subject.measure_blocks`); `asked` is a timer's name or AUTO."""
        read = _throttle_counters(self._prover.device.kind, self._prover.device.device_id)
        timer = self._timer_for(block_us, asked, placements.SPLIT)
        throttled = ThrottleWatch(read)
        samples = replace(self._measure_samples(timer, max_blocks, budget_us), throttled_s=throttled.end())
        self._median_us = statistics.median(samples.block_us)
        return replace(samples, settings=torch_settings.describe_torch_settings())

    def measure_rotation(self, block_us: float) -> Rotation:
        """Times calls on constant inputs, and calls before each of which the inputs change (see `rotation`). Raises
        TimedWrongError if such a call returns an old result."""
        torch_device, call_us = self._prover.device.torch_device, self._median_us or block_us
        stale: list[str] | None = None if written_in_place(self._prepared, self._prover.workload) else []
        rotation = measure_rotation(self._prepared, torch_device, block_us, call_us, stale)
        if stale:
            raise TimedWrongError(CheckReport(problems=tuple(f"{INSIDE}: {text}" for text in stale)))
        return rotation

    def prepare_turns(self, block_us: float, asked: str) -> TurnPlan:
        """Prepares the case for `measure_turn` at several places in memory, kept until `close`; returns the plan."""
        timer = self._timer_for(block_us, asked)
        self._places.close()
        self._places = places = _Places(timer)
        self._turns, self._hidden_turn = 0, random.SystemRandom().randrange(HIDDEN_TURNS)
        if isinstance(timer, GraphTimer):
            limit_bytes = self._prover.device.memory_bytes // placements.MEMORY_SHARE
            count = placements.count_places_for_turns(timer.call_us, self.call_bytes, limit_bytes)
            self._add_twins(places, timer, count - 1)
        call_us = timer.call_us if isinstance(timer, ReplayTimer) else measure_pairs(timer, 1)[0]
        return TurnPlan(
            timer=timer.name,
            cache_state=timer.cache_state,
            places=len(places.timers),
            call_us=call_us,
            calls_per_block=timer.calls_per_block,
            note=timer.note,
            settings=torch_settings.describe_torch_settings(),
        )

    def measure_turn(self, place: int) -> Turn:
        """Runs an unmeasured and a measured block at a place (from 0); returns us per call and the clock in MHz.
        Raises CaseFailedError before `prepare_turns`, and for a place that it did not make."""
        timers = self._places.timers
        if not timers:
            raise CaseFailedError(f"{self._prover.case} is not ready for measure_turn(): call prepare_turns() first")
        if not 0 <= place < len(timers):
            raise CaseFailedError(
                f"{self._prover.case} has no place {place}: prepare_turns() made {len(timers)}, counted from 0"
            )
        hidden = self._hidden_check(timers[place], 1) if self._turns == self._hidden_turn else None
        self._turns += 1
        samples = self._sample_with_check(timers[place], StoppingRule(1, 1), hidden)
        return Turn(samples.block_us[0], samples.clock_mhz[0] if samples.clock_mhz else None)

    def run_once(self, *, poisoned: bool = True) -> Any:
        """Runs what is timed once, as `Timer.run_once`. Raises CaseFailedError if it loses the call's result, which
        a call that writes in place need not have."""
        assert self.timer is not None, "measure_blocks() or prepare_turns() comes first"
        raw = self.timer.run_once(poisoned=poisoned)
        if has_results(raw) or written_in_place(self._prepared, self._prover.workload):
            return raw
        if has_results(self._prepared.run()):
            raise CaseFailedError(
                f"{find_class_place(type(self.timer))}: timer {self.timer.name!r}: run_once() returned "
                f"{type(raw).__name__}, but the backend's call returns tensors; return the result of its last call"
            )
        return raw

    def close(self) -> None:
        """Drops every graph and every copy of the inputs."""
        self._places.close()
        if self.timer is not None:
            self.timer.close()
        self.timer = None
        self._copies = Copies(())

    def _measure_samples(self, timer: Timer, max_blocks: int, budget_us: float) -> Samples:
        if isinstance(timer, GraphTimer):
            return self._measure_places(timer, placements.make_placement_plan(timer.call_us, max_blocks))
        if isinstance(timer, GraphColdTimer):
            max_blocks = min(max_blocks, COLD_BLOCKS_MOST)
            time.sleep(placements.REST_SECONDS)
        rule = StoppingRule(min(MIN_BLOCKS, max_blocks), max_blocks, budget_us)
        return self._sample_with_check(timer, rule, self._hidden_check(timer, rule.min_blocks))

    def _sample_with_check(self, timer: Timer, rule: StoppingRule, hidden: HiddenCheck | None) -> Samples:
        """Measures blocks, and one more whose result `hidden` checks. Raises TimedWrongError if that is wrong."""
        with CompileWatch() as watch:
            samples = sample_blocks(timer, rule, watch, hidden)
        if hidden is not None and hidden.report is not None:
            if not hidden.report.right:
                raise TimedWrongError(hidden.report)
            self._prover.note_cost(hidden.report)
        require_reachable(samples, self._direct_us)
        return samples

    def _hidden_check(self, timer: Timer, blocks: int) -> HiddenCheck | None:
        """Makes a check of a random one of the first `blocks` blocks; None for a timer that replays or profiles."""
        if not isinstance(timer, (HostTimer, EventTimer)):
            return None
        return HiddenCheck(
            self._judge,
            self._prover.seeds.check,
            lambda: timer.last,
            random.SystemRandom().randrange(blocks),
            restore=lambda: self._prover.load_timed_inputs(self._prepared),
            loaded=lambda: self._copies.load_from(self._prepared),
        )

    def _measure_places(self, timer: GraphTimer, plan: placements.PlacementPlan) -> Samples:
        """Measures blocks at several places in memory, each with its own graph that is proven right first."""
        places = _Places(timer)
        try:
            twins = self._add_twins(places, timer, plan.places - 1)
            return placements.measure_places([timer, *twins], plan.blocks)
        finally:
            places.close()

    def _add_twins(self, places: _Places, timer: GraphTimer, count: int) -> list[GraphTimer]:
        twins, made = Twins(self._prover, self._prepared, timer), []
        for _ in range(count):
            prepared, twin = twins.make_twin()
            places.kept.append(prepared)
            places.timers.append(twin)
            made.append(twin)
        return made

    def _timer_for(self, block_us: float, asked: str, split: int = 1) -> Timer:
        """Returns the case's timer (see `choose_timer`), prepared once per block length and proven if it replays."""
        if self.timer is not None and (self._block_us, self.asked) == (block_us / split, asked):
            return self.timer
        self.close()
        run, torch_device = self._prepared.run, self._prover.device.torch_device
        if torch_device != "cpu":
            stamps_of(torch_device)  # made before warming: a GPU cools while they are compiled
        warm_device(torch_device)
        fastest_us = warm_up(run, torch_device)
        cache_state = self._prover.workload.cache_state
        try:
            parts = _parts_of(self._prepared, torch_device)
            self.timer = timer = choose_timer(
                torch_device, run, block_us, cache_state, asked, self._make_copies, parts, split
            )
            self._prove_timer(timer)
        except BaseException:
            self.close()
            raise
        self._block_us, self.asked = block_us / split, asked
        self._direct_us = fastest_us if getattr(timer, "on_cpu", False) and parts is None else 0.0
        return timer

    def _make_copies(self) -> Copies:
        self._copies = make_copies(self._prepared, cold_size(self._prover.device), self._prover.case)
        return self._copies

    def _prove_timer(self, timer: Timer) -> None:
        """Proves a timer's replay right and inspects its graph; does nothing for a timer that makes real calls.
        Old results stay in memory instead of NaN, which reveals a kernel that looks for NaN."""
        if not timer.replays:
            return
        run = functools.partial(self.run_once, poisoned=False)
        self._prover.prove_replay(self._judge, run, poisoned=False)
        if isinstance(timer, GraphColdTimer):
            self._prove_first_copy(timer)
        self._prover.load_timed_inputs(self._prepared)
        self._copies.load_from(self._prepared)
        if isinstance(timer, ReplayTimer):
            self._inspect(timer)

    def _prove_first_copy(self, timer: GraphColdTimer) -> None:
        """Checks the result of a round's first call, on the first copy; the last call reads the case's own inputs.

        All copies hold the same inputs meanwhile, because a backend may write every result to one buffer of its own.
        """
        first = self._copies.others[0]

        def run() -> Any:
            self._copies.load_from(first)
            copy_inputs(first, self._prepared)
            return timer.run_first(poisoned=True)

        self._prover.prove_replay(self._prover.make_judge(first), run, poisoned=True)


@functools.cache
def _throttle_counters(kind: str, device_id: str) -> Callable[[], ThrottleReading] | None:
    """Opens the driver's counters once per process and device: that takes tens of milliseconds."""
    return open_throttle_counters(kind, device_id)


def _parts_of(prepared: Prepared, torch_device: str) -> CallParts | None:
    """Returns the parts of a call if only a part of it is timed, or if it waits for the device; else None."""
    waits = prepared.declares.host_sync and torch_device != "cpu"
    if prepared.setup is None and not waits:
        return None
    return CallParts(prepared.prepare_arguments, prepared.call, waits)


class _Places:
    """Timers of one case at several places in memory: its own first, then its twins.

    A graph reads its inputs where they were when it was captured; `kept` holds the copies as long as the graphs.
    """

    def __init__(self, *own: Timer) -> None:
        self.timers: list[Timer] = [*own]
        self.kept: list[Prepared] = []

    def close(self) -> None:
        """Frees the timers of further places in memory and their inputs, but not the case's own timer."""
        for twin in self.timers[1:]:
            twin.close()
        self.timers, self.kept = [], []


class HiddenCheck:
    """Judges the last result of one block.

    judge    of the timed case
    seed     of its inputs
    last     returns the result of the last block's last call
    after    number of blocks that are measured before
    loaded   called when the inputs have changed, and when the timed ones are restored
    restore  restores the timed inputs
    report   the result; None before the check
    """

    def __init__(
        self,
        judge: Judge,
        seed: int,
        last: Callable[[], Any],
        after: int,
        *,
        restore: Callable[[], None],
        loaded: Callable[[], None] = lambda: None,
    ) -> None:
        self._judge = judge
        self._seed = seed
        self._last = last
        self._after = after
        self._restore = restore
        self._loaded = loaded
        self._checking: Checking | None = None
        self.report: CheckReport | None = None

    def begin(self, blocks: int) -> bool:
        """Loads the check's inputs and returns True if the next block is to be judged; else returns False.

        blocks   number of blocks that were measured before
        """
        if self.report is not None or blocks < self._after:
            return False
        self._checking = self._judge.begin_check(INSIDE, seed=self._seed, planted=False, poisoned=False)
        self.report = advance(self._checking)
        self._loaded()
        return self.report is None

    def end(self) -> None:
        """Stores the report on the last call of the block after `begin`, and restores the timed inputs."""
        assert self._checking is not None, "begin() comes first"
        self.report = advance(self._checking, self._last())
        assert self.report is not None, "a case that has passed its check needs one call"
        self._restore()
        self._loaded()
