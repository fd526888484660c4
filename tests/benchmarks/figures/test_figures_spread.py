"""benchmarks/figures/figures_spread.py: standard deviations per process and pair, and where they come from."""

from __future__ import annotations

import statistics

import figures_spread
import pytest
from figures_records import Pair, Process

TIMES = {"r1": (99.0, 100.0, 101.0), "r2": (109.0, 110.0, 111.0)}


def processes(clock_mhz: float | None = None) -> list[Process]:
    """Two runs a tenth apart."""
    return [
        Process(run, "attnperf", "a", "plain", unit, us, 0.05, clock_mhz=clock_mhz and 1e5 / us)
        for run, times in TIMES.items()
        for unit, us in enumerate(times)
    ]


def test_spread_of_a_process_is_within_its_run() -> None:
    """Runs that lie apart do not widen it; what lies between them stands beside it."""
    spread = figures_spread.spreads(processes())["a", "attnperf"]
    assert spread.sd == pytest.approx(((0.01**2 + (1 / 110) ** 2) / 2) ** 0.5)
    everything = [us for times in TIMES.values() for us in times]
    assert spread.sd_all == pytest.approx(statistics.stdev(everything) / statistics.mean(everything))
    assert spread.sd_runs == pytest.approx(statistics.stdev([100, 110]) / 105)
    assert (spread.processes, spread.runs, spread.sd_cycles) == (6, 2, None)


def test_spread_in_cycles_shows_what_the_clock_made() -> None:
    """Where time and clock move against each other, cycles agree, and the explanation says so."""
    spread = figures_spread.spreads(processes(1.0))["a", "attnperf"]
    assert spread.sd_cycles == pytest.approx(0, abs=1e-12)
    assert "in cycles processes scatter 0.00 %, the rest is the clock" in spread.explanation()
    assert "runs lie 6.73 % apart" in spread.explanation()


def test_blocks_are_compared_within_a_place() -> None:
    """Two places a tenth apart whose blocks agree have no spread of blocks."""
    blocks = (100.0, 100.0, 110.0, 110.0)
    group = [Process("r", "attnperf", "a", "plain", unit, 105.0 + unit, 0.05, "graph", blocks, 5, 2) for unit in (0, 1)]
    assert figures_spread.spreads(group)["a", "attnperf"].sd_block == 0
    thinned = [Process("r", "attnperf", "a", "plain", u, 105.0 + u, 0.05, "graph", blocks[:3], 5, 2) for u in (0, 1)]
    assert figures_spread.spreads(thinned)["a", "attnperf"].sd_block is None


def test_slowed_processes_and_single_ones_say_nothing() -> None:
    """Only the plain label counts, and one process has no spread."""
    alone = Process("r", "attnperf", "a", "plain", 0, 100.0, 0.05)
    slowed = Process("r", "attnperf", "a", "slow3", 1, 103.0, 0.05)
    assert figures_spread.spreads([alone, slowed]) == {}


def test_pairs_of_unchanged_code() -> None:
    """Their median ratio less one, their spread within runs, and what a pair takes; slowed pairs are left out."""
    ratios = (0.999, 1.0, 1.002)
    pairs = [Pair("r", "a", "plain", unit, ratio, 10, 10, 30, "graph", 0.5) for unit, ratio in enumerate(ratios)]
    slowed = Pair("r", "a", "slow1", 0, 1.01, 10, 10.1, 30, "graph", 9.0)
    found = figures_spread.pair_spreads([*pairs, slowed])["a"]
    assert (found.pairs, found.median_shift, found.seconds) == (3, 0.0, 0.5)
    assert found.sd == pytest.approx(statistics.stdev(ratios) / statistics.mean(ratios))
