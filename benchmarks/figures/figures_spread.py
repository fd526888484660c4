"""How far apart same-code processes and pairs lie, case by case, and which part of it comes from where."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from figures_records import Pair, Process


@dataclass(frozen=True)
class Spread:
    """One case under one method. Standard deviations are relative to the mean, as fractions.

    sd          of a process within its run (one card, one hour), pooled over the runs by degrees of freedom
    sd_all      of all processes of all runs and cards together
    sd_runs     of the runs' means; None for one run
    sd_block    of a block within its process and place: what more blocks would average away; None without blocks
    sd_cycles   as `sd`, of time x clock; None where a process does not know its clock
    device_s    median seconds that one process's timing held the device
    """

    case: str
    method: str
    us: float
    processes: int
    runs: int
    sd: float
    sd_all: float
    sd_runs: float | None
    sd_block: float | None
    device_s: float
    sd_cycles: float | None = None

    def explanation(self) -> str:
        """Where the spread comes from, as far as the figures tell."""
        said = []
        if self.sd_block is not None:
            said.append(f"single blocks of a process scatter {100 * self.sd_block:.2f} %")
        if self.sd_cycles is not None:
            said.append(f"in cycles processes scatter {100 * self.sd_cycles:.2f} %, the rest is the clock")
        if self.sd_runs is not None:
            said.append(f"runs lie {100 * self.sd_runs:.2f} % apart")
        what = "; ".join(said) or "nothing else is known"
        return f"{self.case}: {100 * self.sd:.2f} % over {self.processes} processes: {what}"


def spreads(processes: Iterable[Process]) -> dict[tuple[str, str], Spread]:
    """(case, method) -> spread of the plain case, for those with at least two processes in one run."""
    groups: dict[tuple[str, str], list[Process]] = defaultdict(list)
    for process in processes:
        if process.label == "plain":
            groups[process.case, process.method].append(process)
    found = {key: _spread(*key, group) for key, group in groups.items()}
    return {key: spread for key, spread in found.items() if spread is not None}


def _spread(case: str, method: str, group: Sequence[Process]) -> Spread | None:
    runs: dict[str, list[float]] = defaultdict(list)
    for process in group:
        runs[process.run].append(process.us)
    pooled = pooled_sd(runs.values())
    if pooled is None:
        return None
    cycles: dict[str, list[float]] = defaultdict(list)
    for process in group:
        if process.clock_mhz is not None:
            cycles[process.run].append(process.us * process.clock_mhz)
    known = sum(map(len, cycles.values())) == len(group)
    means = [statistics.fmean(times) for times in runs.values()]
    everything = [process.us for process in group]
    return Spread(
        case=case,
        method=method,
        us=statistics.median(everything),
        processes=len(everything),
        runs=len(runs),
        sd=pooled,
        sd_all=math.sqrt(relative_variance(everything)),
        sd_runs=math.sqrt(relative_variance(means)) if len(means) > 1 else None,
        sd_block=_block_sd(group),
        device_s=statistics.median(process.device_s for process in group),
        sd_cycles=pooled_sd(cycles.values()) if known else None,
    )


def pooled_sd(runs: Iterable[Sequence[float]]) -> float | None:
    """Relative standard deviation within runs, pooled by degrees of freedom; None where no run has two values."""
    groups = [values for values in runs if len(values) > 1]
    degrees = sum(len(values) - 1 for values in groups)
    if not degrees:
        return None
    return math.sqrt(sum(relative_variance(values) * (len(values) - 1) for values in groups) / degrees)


def relative_variance(values: Sequence[float]) -> float:
    """Variance (n - 1) over the squared mean; 0 for a single value."""
    return statistics.variance(values) / statistics.fmean(values) ** 2 if len(values) > 1 else 0.0


def _block_sd(group: Sequence[Process]) -> float | None:
    """Within a process and a place: places differ by more, and are drawn anew in every process."""
    variances = [
        relative_variance(blocks)
        for process in group
        for blocks in _by_place(process)
        if len(blocks) > 1
    ]  # fmt: skip
    return math.sqrt(statistics.fmean(variances)) if variances else None


def _by_place(process: Process) -> list[tuple[float, ...]]:
    each = len(process.blocks) // process.placements
    if each * process.placements != len(process.blocks):
        return []  # thinned: the borders between places are lost
    return [process.blocks[index * each : (index + 1) * each] for index in range(process.placements)]


@dataclass(frozen=True)
class PairSpread:
    """One case's same-code pairs: median ratio - 1, its standard deviation (fractions), and seconds of turns a pair.

    side_sd   of the sides' own times, the standard deviation over all processes of a run (fraction)
    """

    case: str
    pairs: int
    runs: int
    median_shift: float
    sd: float
    seconds: float
    side_sd: float = 0.0


def pair_spreads(pairs: Iterable[Pair]) -> dict[str, PairSpread]:
    """Case -> its plain pairs; the spread is within runs, pooled as that of processes, 0 where it cannot be known."""
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        if pair.label == "plain":
            groups[pair.case].append(pair)
    found = {}
    for case, group in groups.items():
        runs: dict[str, list[float]] = defaultdict(list)
        sides: dict[str, list[float]] = defaultdict(list)
        for pair in group:
            runs[pair.run].append(pair.ratio)
            sides[pair.run] += [pair.base_us, pair.new_us]
        found[case] = PairSpread(
            case,
            len(group),
            len(runs),
            statistics.median(pair.ratio for pair in group) - 1,
            pooled_sd(runs.values()) or 0.0,
            statistics.median(pair.seconds for pair in group),
            pooled_sd(sides.values()) or 0.0,
        )
    return found
