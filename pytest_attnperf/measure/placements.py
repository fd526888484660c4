"""Times one case at several places in memory and from many cache states: each changes kernels by up to 6 %.

Within a process the time at a place repeats to 0.2 %, but each process gets other places (`benchmarks/noise_sources.py`
shows both). So more blocks at one place only make the same bias look certain. A process therefore measures copies of
the inputs at other addresses, each with its own proven graph, and reports the mean over them. Kernels of a millisecond
touch enough memory to average by themselves.

What a hot call finds in the last-level cache is random, too: which lines of a working set that fits it lie in which
half. A repeated call keeps its first cache state, up to 5 % from another process's. A kernel that writes enough memory
creates a new state (`benchmarks/l2_draws.py`). So FILL_BYTES are written before each pair of blocks, the unmeasured
block brings the inputs back, and the mean covers states and places. In real use, too, other kernels write inputs.

A power-capped GPU lowers its clock under load, in steps and after a time that differs between processes. So the device
idles before each pair: the clock stays near its highest, and the remaining changes average out.

A full proof makes new inputs and compares with the reference; for forty places that would take longer than the blocks.
Only the case's own graph gets it. A twin is right, too, if it gives the same bits on the same inputs, which differ from
those it was captured on: in its results, and in inputs that it writes in place. If the bits differ, as for sums in
changing order, the twin gets the full proof.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_attnperf.backends import Prepared
from pytest_attnperf.correctness import poison
from pytest_attnperf.correctness.own_inputs import written_in_place
from pytest_attnperf.measure.copies import copy_inputs, copy_prepared
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.sampling import sample_blocks
from pytest_attnperf.measure.stopping import StoppingRule
from pytest_attnperf.measure.timers.stream import idle_stream
from pytest_attnperf.records import Samples

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Prepared
    from pytest_attnperf.measure.proving import Prover
    from pytest_attnperf.measure.timers.graph import GraphTimer

MOST = 15
LEAST = 2
AVERAGING_US = 1500.0
"""A call this long averages over enough memory; a shorter one is measured at AVERAGING_US / its time places."""

SPLIT = 3
"""Blocks here are this many times shorter than those of other timers, and this many times as many: one state each."""

BLOCKS_LEAST = 3
BLOCKS_MOST = 6
LONG_US, BLOCKS_OF_LONG = 1500.0, 4
"""Blocks at one place, and of calls that fill a long block by themselves."""

FILL_BYTES = 256 << 20
"""The size of the largest last-level cache of a GPU (MI300). 32 MiB sufficed on an H100, 2 MiB did not."""

GAP_SHARE, GAP_MOST_US = 5.0, 20_000.0
"""The device idles this many times as long as a pair of blocks takes, up to a maximum. With 60 states on an H100
processes agreed to 0.1 to 0.4 % after gaps of 3 ms (5 times the pair), to 0.2 to 0.5 % after 1 ms.
"""

TURN_PLACES_MOST = 40
"""The inputs of `triton.flash` at (4, 512, 8, 256) nearly fill an H200's last-level cache: it differs by 2.3 %
(standard deviation) between places, and by 0.2 % between blocks at one place.
"""

TURN_PLACES_US = 48_000.0
"""Approximate total of all places' blocks, an unmeasured and a measured one of TURN_CALL_US or more at each place."""

TURN_CALL_US = 600.0
MEMORY_SHARE = 32
"""All places of a case that takes turns may hold this part of device memory, with inputs, results and workspaces."""

REST_SECONDS = 0.1
"""The first blocks follow proofs and captures, which have heated the device."""


@dataclass(frozen=True)
class PlacementPlan:
    """The number of places to measure at, and of blocks at each."""

    places: int
    blocks: int


def make_placement_plan(call_us: float, max_blocks: int) -> PlacementPlan:
    """Returns at how many places in memory (2 to 15) to time calls of `call_us`, and how many blocks at each.
    Longer calls get fewer places. All places together get at most 3 * `max_blocks` blocks, but at least one each."""
    blocks = SPLIT * max_blocks
    places = max(LEAST, min(MOST, blocks // BLOCKS_LEAST, round(AVERAGING_US / max(call_us, 1e-3))))
    each = BLOCKS_OF_LONG if call_us >= LONG_US else BLOCKS_MOST
    return PlacementPlan(places, max(1, min(each, blocks // places)))


def count_places_for_turns(call_us: float, call_bytes: int, limit_bytes: int) -> int:
    """Returns at how many places in memory to measure a case that takes turns with another process, from 2 to 40.

    call_bytes    memory of a call with its inputs; 0 if unknown
    limit_bytes   limit for all places together; there are always at least two places
    """
    most = min(TURN_PLACES_MOST, int(TURN_PLACES_US / (2 * max(call_us, TURN_CALL_US))))
    if call_bytes and limit_bytes:
        most = min(most, limit_bytes // call_bytes)
    return max(LEAST, most)


def measure_places(timers: Sequence[GraphTimer], blocks: int, rest: Callable[[float], None] = time.sleep) -> Samples:
    """Measures `blocks` blocks with each timer, whose graphs read their inputs at different places in memory.
    It rests once before. `Samples.block_us` holds the blocks of one place after those of the other."""
    fill = _allocate_fill()

    def draw() -> None:
        idle_stream(gap_us)
        fill.zero_()

    gap_us = min(GAP_MOST_US, GAP_SHARE * 2 * timers[0].call_us * timers[0].calls_per_block)
    rest(REST_SECONDS)
    with CompileWatch() as watch:
        parts = [_sample_drawn(timer, StoppingRule(blocks, blocks), watch, draw) for timer in timers]
    return replace(
        parts[0],
        block_us=tuple(block for part in parts for block in part.block_us),
        placements=len(parts),
        rejected_blocks=sum(part.rejected_blocks for part in parts),
        clock_mhz=tuple(mhz for part in parts for mhz in part.clock_mhz) if all(p.clock_mhz for p in parts) else (),
    )


def _sample_drawn(timer: GraphTimer, rule: StoppingRule, watch: CompileWatch, draw: Callable[[], None]) -> Samples:
    timer.before_pair = draw
    try:
        return sample_blocks(timer, rule, watch)
    finally:
        timer.before_pair = None


def _allocate_fill() -> torch.Tensor:
    import torch

    return torch.empty(FILL_BYTES, dtype=torch.uint8, device="cuda")


class Twins:
    """Makes and proves further graphs of a proven timer, each on a copy of the inputs at other addresses (a twin).

    Between calls `prepared` holds the timed inputs.
    prepared   the case's own preparation, which `timer` replays
    """

    def __init__(self, prover: Prover, prepared: Prepared, timer: GraphTimer) -> None:
        self._prover = prover
        self._prepared = prepared
        self._timer = timer
        self._checked = copy_prepared(prepared)
        prover.load_check_inputs(self._checked)
        self._expected = self._replay_proven()

    def make_twin(self) -> tuple[Prepared, GraphTimer]:
        """Returns (a copy of the case with the timed inputs at other addresses, a timer with its own checked graph on
        it). Raises TimedWrongError if the new graph's result is wrong."""
        prepared = copy_prepared(self._prepared)
        twin = self._timer.make_twin(prepared.run)
        copy_inputs(self._checked, prepared)
        if not self._has_same_bits(self._replay_results(prepared, twin)):
            run = functools.partial(twin.run_once, poisoned=True)
            try:
                self._prover.prove_replay(self._prover.make_judge(prepared), run, poisoned=True)
            except BaseException:
                twin.close()
                raise
        copy_inputs(self._prepared, prepared)
        return prepared, twin

    def _replay_proven(self) -> list[torch.Tensor]:
        """Replays the proven graph on the check's inputs, returns copies of its results, reloads the timed inputs."""
        copy_inputs(self._checked, self._prepared)
        try:
            return [tensor.clone() for tensor in self._replay_results(self._prepared, self._timer)]
        finally:
            self._prover.load_timed_inputs(self._prepared)

    def _replay_results(self, prepared: Prepared, timer: GraphTimer) -> list[torch.Tensor]:
        """Replays the timer's graph once and returns its result's tensors and the inputs that it writes in place."""
        written = written_in_place(prepared, self._prover.workload)
        with poison.spare_memory(written):
            return [*poison.tensors_in(timer.run_once(poisoned=True)), *written]

    def _has_same_bits(self, got: list[torch.Tensor]) -> bool:
        return len(got) == len(self._expected) and all(map(poison.is_bit_equal, got, self._expected))
