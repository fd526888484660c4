"""One case at several places in memory: kernels differ by up to 6 % with where their inputs happen to lie.

Within a process the difference repeats to 0.2 %, between processes it is drawn anew (`benchmarks/noise_sources.py`
shows both), so that more blocks at one place only make the same bias look certain. A process therefore measures copies
of the inputs at other addresses, each with a graph of its own that is proven right like the first, and reports the
mean over them. Kernels of a millisecond touch enough memory to average by themselves.

Several blocks follow each other at a place without a gap. Forty places of one block each were tried: the first
block after a gap is slower for some kernels, in spite of the unmeasured one (cuDNN at (4, 512, 8, 256) on an H200:
19.8 us instead of 18.9), so that processes agreed no better and with another time. Sides that take turns
have the gap anyway, both of them, and gain from places: there they are many.

A power-capped GPU holds its full clock for some 20 ms after a rest and then throttles in steps of several per cent.
The blocks of a case therefore follow a rest, and are few enough to end before that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.backends import Prepared
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.sampling import sample
from pytest_attnperf.measure.stopping import StoppingRule
from pytest_attnperf.measure.timers.base import Timer
from pytest_attnperf.records import Samples
from pytest_attnperf.workloads.input_memory import copied

MOST = 10
LEAST = 2
AVERAGING_US = 1000.0
"""A call of this length averages over enough memory; a shorter one is measured at AVERAGING_US / its time places."""

BLOCKS_LEAST = 3
BLOCKS_MOST = 4
"""Blocks at one place: within a process they agree to 0.1 %, so a few tell a disturbed one."""

TURN_PLACES_MOST = 40
"""`triton.flash` at (4, 512, 8, 256), whose inputs nearly fill the last-level cache of an H200, differs by 2.3 %
(standard deviation) from place to place, and by 0.2 % from block to block at one place."""

TURN_PLACES_US = 48_000.0
"""Calls, an unmeasured and a measured one of TURN_CALL_US or more at each place, take about this long together."""

TURN_CALL_US = 600.0
MEMORY_SHARE = 32
"""All places of a case that takes turns may hold this part of the device's memory: each has inputs, results and
workspace of its own."""

REST_SECONDS = 0.1


@dataclass(frozen=True)
class Plan:
    """At how many places to measure, and how many blocks at each."""

    places: int
    blocks: int


def plan_for(call_us: float, max_blocks: int) -> Plan | None:
    """The plan for calls of `call_us` and at most `max_blocks` blocks; None when these are too few for two places."""
    affordable = max_blocks // BLOCKS_LEAST
    if affordable < LEAST:
        return None
    places = max(LEAST, min(MOST, affordable, round(AVERAGING_US / max(call_us, 1e-3))))
    return Plan(places, min(BLOCKS_MOST, max_blocks // places))


def places_for_turns(call_us: float, call_bytes: int, limit_bytes: int) -> int:
    """At how many places a case takes turns.

    call_bytes    memory that a call takes, with its inputs; 0 where that is not known
    limit_bytes   what all places may take together; two places are always taken
    """
    most = min(TURN_PLACES_MOST, int(TURN_PLACES_US / (2 * max(call_us, TURN_CALL_US))))
    if call_bytes and limit_bytes:
        most = min(most, limit_bytes // call_bytes)
    return max(LEAST, most)


def elsewhere(prepared: Prepared) -> Prepared:
    """The same preparation with its inputs copied to other addresses, in the same layout (see `input_memory`).

    `Prepared.call` takes every input as an argument, so that nothing is built or compiled again.
    """
    return replace(prepared, tensors=copied(prepared.tensors), beside=())


def measure(timers: Sequence[Timer], blocks: int, rest: Callable[[float], None] = time.sleep) -> Samples:
    """`blocks` blocks at each place, after one rest; `Samples.block_us` holds the places one after the other."""
    rest(REST_SECONDS)
    with CompileWatch() as watch:
        parts = [sample(timer, StoppingRule(blocks, blocks), watch) for timer in timers]
    return replace(
        parts[0],
        block_us=tuple(block for part in parts for block in part.block_us),
        placements=len(parts),
        rejected_blocks=sum(part.rejected_blocks for part in parts),
        clock_mhz=tuple(mhz for part in parts for mhz in part.clock_mhz) if all(p.clock_mhz for p in parts) else (),
    )
