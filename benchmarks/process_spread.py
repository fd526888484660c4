"""Prints how far fresh processes lie apart, case by case, from a stored baseline: worst last.

    python benchmarks/process_spread.py baselines/sm_90/h200/prefill.json
    python benchmarks/process_spread.py baselines/sm_90/h100-80gb-hbm3/*.json --timer graph --goal-percent 0.3

The spread is the standard deviation (n - 1) of the processes' medians over their mean; with `--within-cards` around the
mean of their own card (n - cards), so that how cards differ does not count. Cases shorter than `--least-us` are listed
and not held to the limit. Exits 1 when a case is beyond `--limit-percent`.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path

from tabulate import tabulate

from pytest_attnperf.baselines.schema import BaselineFile, decode_baseline


def spreads(file: BaselineFile, timer: str = "", *, within_cards: bool = False) -> list[tuple[str, int, float, float]]:
    """(entry, processes, mean of the medians in us, relative sd in percent), smallest spread first.

    timer          only entries of this one; '' for all
    within_cards   around the mean of each card; entries without two processes on one card are left out
    """
    rows = []
    for key, entry in file.entries.items():
        if timer and entry.processes[0].timer != timer:
            continue
        cards: dict[str, list[float]] = {}
        for process in entry.processes:
            cards.setdefault(process.device_id if within_cards else "", []).append(process.median_us)
        medians = [process.median_us for process in entry.processes]
        mean, degrees = statistics.mean(medians), len(medians) - len(cards)
        if degrees:
            squares = sum((us - statistics.mean(card)) ** 2 for card in cards.values() for us in card)
            rows.append((key, len(medians), mean, 100 * math.sqrt(squares / degrees) / mean))
    return sorted(rows, key=lambda row: row[3])


def main() -> int:
    """Print the table and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baseline", type=Path, nargs="+")
    parser.add_argument("--timer", default="", help="only cases of this timer")
    parser.add_argument("--goal-percent", type=float, help="also count the cases within this")
    parser.add_argument("--least-us", type=float, default=15.0)
    parser.add_argument("--limit-percent", type=float, default=0.6)
    parser.add_argument("--within-cards", action="store_true", help="leave out how cards differ")
    options = parser.parse_args()
    files = [decode_baseline(path.read_bytes(), str(path)) for path in options.baseline]
    found = (spreads(file, options.timer, within_cards=options.within_cards) for file in files)
    rows = sorted((row for each in found for row in each), key=lambda row: row[3])
    print(tabulate(rows, ["case", "processes", "us per call", "sd %"], floatfmt=("", "", ".5g", ".3f")))
    held = [row for row in rows if row[2] >= options.least_us]
    beyond = [row for row in held if row[3] > options.limit_percent]
    if held:
        middle = statistics.median(row[3] for row in held)
        print(f"\n{len(held)} cases of at least {options.least_us:g} us: median sd {middle:.3f} %", end=", ")
        print(f"worst {held[-1][3]:.3f} % ({held[-1][0]})")
    if options.goal_percent is not None:
        print(f"{sum(row[3] <= options.goal_percent for row in held)} of them within {options.goal_percent:g} %")
    print(f"{len(beyond)} of them beyond {options.limit_percent:g} %")
    return 1 if beyond else 0


if __name__ == "__main__":
    raise SystemExit(main())
