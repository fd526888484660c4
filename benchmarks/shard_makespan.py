"""How much longer a sharded run takes than an ideal one, on nodes whose speed differs and is not known beforehand.

    python benchmarks/shard_makespan.py [--cases 2000] [--nodes 64] [--draws 20] [--spread 1.5] [--start-s 0]

Cases are drawn in groups of one workload; `--attnperf-shard` divides them by stored seconds (`partition.py`), which
differ from those of the run by `--noise`. Each node has a speed between 1 and `--spread`. A queue, as an array or a
matrix of a CI system has one, gives a free node the next shard. The ideal time is all work over the sum of all speeds:
no division, however well informed, is faster.

With as many shards as nodes each node gets one, and the slowest one ends last: where speeds are not known, the ratio
is the mean speed over the smallest one, whatever the division. Known speeds (ATTNPERF_SHARD_SPEEDS) give slow nodes
less; more shards than nodes let fast nodes take more of them. Printed are the worst and the mean ratio of all draws; a
start of `--start-s` seconds per shard is in the run's time and not in the ideal one. Exit status 1 if the worst ratio
of known speeds, or that of the most shards per node, is above 1.15.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pytest_attnperf.plugin.features.sharding.partition import WeighedCase, divide_cases

MOST_RATIO = 1.15
SHARDS_PER_NODE = (1, 2, 4, 8)
BACKENDS = 5
"""Backends of each workload."""

MEDIAN_S, SPREAD_OF_CASES = 5.0, 0.8
"""Seconds of a case, lognormal: 95 % of the workloads lie within a factor of 5 of the median."""


@dataclass(frozen=True)
class Drawn:
    """A drawn run: cases with their stored times, the seconds that they take now at speed 1, and the nodes' speeds."""

    cases: tuple[WeighedCase, ...]
    seconds: dict[str, float]
    speeds: tuple[float, ...]


def draw_run(cases: int, nodes: int, spread: float, noise: float, seed: int) -> Drawn:
    """Returns a run of this many cases and nodes, equal for equal arguments."""
    draw = random.Random(seed)
    made: list[WeighedCase] = []
    seconds: dict[str, float] = {}
    for number in range(cases):
        if number % BACKENDS == 0:
            of_workload = draw.lognormvariate(0.0, SPREAD_OF_CASES) * MEDIAN_S
        stored = of_workload * draw.uniform(0.5, 1.5)
        name = f"suite/backend{number % BACKENDS}/prefill-{number // BACKENDS}"
        made.append(WeighedCase(name, f"prefill-{number // BACKENDS}", round(1000 * stored)))
        seconds[name] = stored * draw.lognormvariate(0.0, noise)
    return Drawn(tuple(made), seconds, tuple(draw.uniform(1.0, spread) for _ in range(nodes)))


def measure_ratio(run: Drawn, shards: int, start_s: float = 0.0, *, known: bool = False) -> float:
    """Returns the time of the run with this many shards over the ideal time. With `known` there is a shard per node,
    divided by the nodes' speeds."""
    free = [(0.0, node) for node in range(len(run.speeds))]
    ended = 0.0
    for part in divide_cases(run.cases, shards, run.speeds if known else ()):
        at, node = heapq.heappop(free)
        at += start_s + sum(run.seconds[name] for name in part) / run.speeds[node]
        heapq.heappush(free, (at, node))
        ended = max(ended, at)
    return ended / (sum(run.seconds.values()) / sum(run.speeds))


def measure_ratios(options: argparse.Namespace, shards_per_node: int, *, known: bool = False) -> list[float]:
    """Returns the ratio of every draw."""
    runs = (
        draw_run(options.cases, options.nodes, options.spread, options.noise, seed) for seed in range(options.draws)
    )
    return [measure_ratio(run, shards_per_node * options.nodes, options.start_s, known=known) for run in runs]


def main(words: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 if known speeds or the most shards per node are not within MOST_RATIO."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000, metavar="N")
    parser.add_argument("--nodes", type=int, default=64, metavar="N")
    parser.add_argument("--draws", type=int, default=20, metavar="N")
    parser.add_argument("--spread", type=float, default=1.5, metavar="X", help="speed of the fastest / slowest node")
    parser.add_argument("--noise", type=float, default=0.1, metavar="SD", help="of stored seconds, as a fraction")
    parser.add_argument("--start-s", type=float, default=0.0, metavar="S", help="seconds before a shard's first case")
    options = parser.parse_args(words)
    rows = []
    for per_node, known in ((1, True), *((number, False) for number in SHARDS_PER_NODE)):
        ratios = measure_ratios(options, per_node, known=known)
        speeds = "known" if known else "unknown"
        rows.append((speeds, per_node, per_node * options.nodes, statistics.mean(ratios), max(ratios)))
    print(f"{options.cases} cases on {options.nodes} nodes of speed 1 to {options.spread:g}, {options.draws} draws")
    headers = ("speeds", "shards per node", "shards", "mean time / ideal", "worst")
    print(tabulate(rows, headers, "simple", floatfmt=".3f"))
    return 1 if max(rows[0][-1], rows[-1][-1]) > MOST_RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
