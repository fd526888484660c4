"""One case at several places in memory: short kernels differ by up to 5 % with where their inputs happen to lie.

Within a process the difference repeats to 0.1 %, between processes it is drawn anew (`benchmarks/noise_sources.py`
shows both), so that more blocks at one place only make the same bias look certain. A process therefore measures copies
of the inputs at other addresses, each with a graph of its own that is proven right like the first, and reports the
mean over them. Kernels of a millisecond touch enough memory to average by themselves.

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
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.records import Samples

MOST = 10
LEAST = 2
AVERAGING_US = 1000.0
"""A call of this length averages over enough memory; a shorter one is measured at AVERAGING_US / its time places."""

BLOCKS_LEAST = 3
BLOCKS_MOST = 4
"""Blocks at one place: within a process they agree to 0.1 %, so a few tell a disturbed one."""

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


def elsewhere(prepared: Prepared) -> Prepared:
    """The same preparation with its inputs copied to other addresses, in the same layout.

    `Prepared.call` takes every input as an argument, so that nothing is built or compiled again.
    """
    return replace(prepared, tensors=tuple(tensor.clone() for tensor in prepared.tensors))


def measure(timers: Sequence[GraphTimer], blocks: int, rest: Callable[[float], None] = time.sleep) -> Samples:
    """`blocks` blocks at each place, after one rest; `Samples.block_us` holds the places one after the other."""
    rest(REST_SECONDS)
    with CompileWatch() as watch:
        parts = [sample(timer, StoppingRule(blocks, blocks), watch) for timer in timers]
    return replace(
        parts[0],
        block_us=tuple(block for part in parts for block in part.block_us),
        placements=len(parts),
        rejected_blocks=sum(part.rejected_blocks for part in parts),
    )
