"""Frozen data of two sides measured in turns. Standard library only: the worker's server side imports this file.

Independence is a type here, too: turns of one pair of processes share both processes' biases, so only a `PairSummary`
is a unit over which an interval may be computed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TurnPlan:
    """How a side measures its turns: decided once, when the case is prepared for them.

    places            number of places in memory of its inputs; a turn names one of them, from 0
    call_us           microseconds per call, estimated
    calls_per_block   calls timed as one
    settings          of torch, as in `Samples`
    """

    timer: str
    cache_state: str
    places: int
    call_us: float
    calls_per_block: int
    note: str = ""
    settings: str = ""


@dataclass(frozen=True)
class Turn:
    """One side's measured block, after an unmeasured one: microseconds per call, and the mean clock over both."""

    us: float
    clock_mhz: float | None = None


@dataclass(frozen=True)
class PairSummary:
    """One base process with one candidate process, measured in turns (A B B A): the unit of an interleaved look.

    ratio          candidate / base, above 1 is slower: a robust centre of the ratios of quads, see `stats.pair_ratios`
    quad_ratios    of single quads in measured order, for display; thinned like the blocks of a process
    base_us        median microseconds per call of the base side's blocks, and `new_us` of the candidate's
    quads          number of measured quads
    seconds        wall time of the turns, without preparing and checking either side
    """

    ratio: float
    base_us: float
    new_us: float
    quads: int
    timer: str
    quad_ratios: tuple[float, ...] = ()
    base_process: str = ""
    new_process: str = ""
    device_id: str = ""
    base_clock_mhz: float | None = None
    new_clock_mhz: float | None = None
    seconds: float = 0.0
