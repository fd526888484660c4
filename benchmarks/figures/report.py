"""Prints every figure of the file that `collect.py` fills, and whether each reaches its target.

    python benchmarks/figures/report.py benchmarks/figures/h200.jsonl [--plot curve.svg]

Reads the file and nothing else; decisions are those of the gate itself (gate.decide, gate.interleaved), with noise
alone as the limit and, beside it, with the default tolerance. A rate that was reached, but that the independent
units collected so far do not prove, is OPEN. Exits 1 when a figure is missed.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from figures_bounds import sets_needed
from figures_curve import save_plot, text_plot
from figures_rates import (
    ACROSS,
    BASE,
    FIRST,
    MIXED,
    NOISE_ONLY,
    PAIRS,
    SECOND,
    WITHIN,
    InterleavedGate,
    Rate,
    StoredGate,
    detection,
    false_alarms,
    mean_sizes,
    pair_units,
    process_units,
)
from figures_records import Collection, Pass, read
from figures_spread import PairSpread, Spread, pair_spreads, spreads
from tabulate import tabulate

from pytest_attnperf.gate.policy import Policy

METHODS = ("attnperf", "do_bench", "pytest_benchmark")
SD_MAX, ALARMS_MOST = 0.004, 0.01
LEAST_UNITS, LEAST_RUNS, LEAST_CARDS = 40, 3, 2
STORED_CURVE = (0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05)
PAIRED_CURVE = (0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.02)
POLICIES = {"noise only": NOISE_ONLY, "default 2 %, 0.5 us": Policy()}


@dataclass(frozen=True)
class Figure:
    """One figure: what was reached, what was wanted, and whether it is; `note` says what else must be known.

    proven   whether the bound over independent units is within what is wanted, too; a rate that is reached in what was
             measured, and not proven by it, is OPEN
    """

    name: str
    reached: str
    wanted: str
    met: bool
    note: str = ""
    proven: bool = True

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        mark = "MISSED" if not self.met else "PASS  " if self.proven else "OPEN  "
        return f"{mark}  {self.name}: {self.reached}, wanted {self.wanted}{note}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--trials", type=int, default=300, help="resampled suite runs behind each rate")
    parser.add_argument("--plot", type=Path, help="also write the detection curves to this .svg or .png")
    options = parser.parse_args(arguments)
    data = read(options.file)
    figures = [*collected(data), *spread(data), *paired(data)]
    print_sizes(data)
    stored_figures, stored_curve = stored(data, options.trials)
    pair_figures, pair_curve = interleaved(data, options.trials)
    curves = {"stored baseline, two looks": stored_curve, f"interleaved, {PAIRS} pairs": pair_curve}
    print(f"\n{text_plot(curves)}")
    if options.plot:
        print(save_plot(curves, options.plot))
    figures += [*stored_figures, *pair_figures]
    print("\nFigures\n" + "\n".join(map(str, figures)))
    return 0 if all(figure.met for figure in figures) else 1


def collected(data: Collection) -> list[Figure]:
    """What the file holds: runs, cards, units, wall time, and the share of it outside measured kernels."""
    rows = []
    for (run, kind), passes in by_run(data).items():
        wall_s, units = sum(one.wall_s for one in passes), sum(one.units for one in passes)
        outside = 1 - measured_seconds(data, run, kind) / wall_s
        first = passes[0]
        rows.append((run, kind, first.date, first.product, first.gpu, units, f"{wall_s:.0f}", f"{100 * outside:.0f} %"))
    headers = ["run", "pass", "date", "product", "card", "units", "wall s", "outside measured kernels"]
    print("Collected\n" + tabulate(rows, headers))
    for one in data.passes:
        print("".join(f"  {one.run} gave no number: {line}\n" for line in one.failed), end="")
    return [_collected(data, kind) for kind in ("processes", "pairs", "peers")]


def by_run(data: Collection) -> dict[tuple[str, str], list[Pass]]:
    """(run, kind) -> its commands: a run may be made of several."""
    found: dict[tuple[str, str], list[Pass]] = defaultdict(list)
    for one in data.passes:
        found[one.run, one.kind].append(one)
    return found


def measured_seconds(data: Collection, run: str, kind: str) -> float:
    """Seconds of a run's pass in which the device was held by what is measured."""
    if kind == "pairs":
        return sum(pair.seconds for pair in data.pairs if pair.run == run)
    ours = kind == "processes"
    return sum(p.device_s for p in data.processes if p.run == run and (p.method == "attnperf") == ours)


def _collected(data: Collection, kind: str) -> Figure:
    passes = [one for one in data.passes if one.kind == kind]
    units, runs, cards = sum(one.units for one in passes), {one.run for one in passes}, {one.gpu for one in passes}
    met = units >= LEAST_UNITS and len(runs) >= LEAST_RUNS and len(cards) >= LEAST_CARDS
    wanted = f"at least {LEAST_UNITS} in {LEAST_RUNS} runs on {LEAST_CARDS}"
    return Figure(f"{kind} collected", f"{units} in {len(runs)} runs on {len(cards)} cards", wanted, met)


def spread(data: Collection) -> list[Figure]:
    """Standard deviation per process, method by method, and where it comes from."""
    found = spreads(data.processes)
    cases = list(dict.fromkeys(case for case, method in found if method == "attnperf"))
    rows = []
    for case in cases:
        own = found[case, "attnperf"]
        peers = [found.get((case, method)) for method in METHODS[1:]]
        beside = [cell for peer in peers for cell in (_percent(peer.sd if peer else None), _ms(peer))]
        parts = [_percent(sd) for sd in (own.sd, own.sd_all, own.sd_runs, own.sd_block, own.sd_cycles)]
        rows.append((case, f"{own.us:.4g}", own.processes, own.runs, *parts, _ms(own), *beside))
    headers = ["case", "us", "processes", "runs", "sd %", "all runs", "of runs", "of blocks", "in cycles", "ms",
               "do_bench sd %", "ms", "pytest-benchmark sd %", "ms"]  # fmt: skip
    print("\nStandard deviation per process (relative; ms = how long one process's timing held the device)")
    print(tabulate(rows, headers, disable_numparse=True))
    for own in (found[case, "attnperf"] for case in cases):
        if own.sd > SD_MAX:
            print(own.explanation())
    own_spreads = [found[case, "attnperf"] for case in cases]
    worst = max(own_spreads, key=lambda one: one.sd, default=None)
    slowest = [
        (own.device_s / peer.device_s, own.case)
        for own in own_spreads
        if (peer := found.get((own.case, "do_bench"))) is not None
    ]
    costliest = max(slowest, default=None)
    return [
        Figure(
            "standard deviation per process",
            f"worst {_percent(worst.sd)} % ({worst.case})" if worst else "no case with two processes in a run",
            "at most 0.4 % on every case",
            worst is not None and worst.sd <= SD_MAX,
            f"{sum(one.sd > SD_MAX for one in own_spreads)} of {len(cases)} cases beyond",
        ),
        Figure(
            "device time against do_bench",
            f"worst {costliest[0]:.2f} of it ({costliest[1]})" if costliest else "no do_bench beside",
            "at most 0.5 on every case",
            costliest is not None and costliest[0] <= 0.5,
        ),
    ]


def paired(data: Collection) -> list[Figure]:
    """Same-code pairs: how far their median is from 1, how far they scatter, and what they cost."""
    found = list(pair_spreads(data.pairs).values())
    rows = [
        (one.case, one.pairs, one.runs, f"{100 * one.median_shift:+.3f}", _percent(one.sd), _percent(one.side_sd),
         f"{one.seconds:.2f}", f"{PAIRS * one.seconds:.1f}")
        for one in found
    ]  # fmt: skip
    headers = [
        "case",
        "pairs",
        "runs",
        "median ratio - 1, %",
        "sd %",
        "sd of sides %",
        "s a pair",
        f"s for {PAIRS} pairs",
    ]
    print("\nSame-code pairs\n" + tabulate(rows, headers, disable_numparse=True))
    for (run, kind), passes in by_run(data).items():
        if kind == "pairs":
            wall_s, pairs = sum(one.wall_s for one in passes), sum(one.units for one in passes)
            print(f"whole interleaved look, run {run}: {wall_s:.0f} s wall for {pairs} pairs of every case and label, "
                  f"about {wall_s / pairs * PAIRS:.0f} s for {PAIRS}")  # fmt: skip
    furthest = max(found, key=lambda one: abs(one.median_shift), default=None)
    costliest = max(found, key=lambda one: one.seconds, default=None)
    return [
        Figure(
            "median same-code ratio over pairs",
            f"furthest {100 * furthest.median_shift:+.3f} % ({furthest.case})" if furthest else "no pairs",
            "within 0.1 % of 1 on every case",
            furthest is not None and abs(furthest.median_shift) <= 0.001,
        ),
        _pair_cost(costliest),
    ]


def _pair_cost(costliest: PairSpread | None) -> Figure:
    seconds = PAIRS * costliest.seconds if costliest else 0.0
    reached = f"{seconds:.1f} s ({costliest.case})" if costliest else "no pairs"
    return Figure(
        f"time of {PAIRS} pairs of a case", reached, "at most 5 s", costliest is not None and seconds <= 5,
        "wall time of the turns, an upper bound of device time",
    )  # fmt: skip


def print_sizes(data: Collection) -> None:
    """The injected slowdowns: nominal, true, and how they are made."""
    latest = {(size.case, size.label): size for size in data.sizes}
    rows = [
        (size.case, size.label, f"{100 * size.nominal:g}", _percent(size.true), _percent(size.true_sd), size.how)
        for size in latest.values()
    ]
    headers = ["case", "label", "nominal %", "true %", "sd over places %", "how"]
    print("\nInjected slowdowns\n" + tabulate(rows, headers, disable_numparse=True))


def stored(data: Collection, trials: int) -> tuple[list[Figure], list[tuple[float, float]]]:
    """Rates of the stored baseline's screen and second look."""
    runs, sizes = process_units(data.processes), mean_sizes(data.sizes)
    cases = sorted({process.case for process in data.processes if process.method == "attnperf"})
    units = sum(map(len, runs.values()))
    print(f"\nStored baseline: {BASE} stored, {FIRST} screening, {SECOND} second-look processes; {units} independent "
          f"processes, {len(cases)} cases")  # fmt: skip
    gates = {name: StoredGate(policy, cases) for name, policy in POLICIES.items()}
    rates = {
        (name, drawing.name): false_alarms(gate, runs, drawing, trials)
        for name, gate in gates.items()
        for drawing in (WITHIN, ACROSS)
    }
    print_rates(rates)
    gate, figures = gates["noise only"], []
    figures.append(alarm_figure("stored: same-code suite runs red, within a run", rates["noise only", "within a run"]))
    if len(runs) > 1:
        figures.append(
            alarm_figure("stored: same-code suite runs red, across runs", rates["noise only", "across runs"])
        )
    for size, label, wanted in ((0.03, "slow3", 0.99), (0.05, "slow5", 0.999)):
        scaled = detection(gate, runs, WITHIN, trials, size)
        injected = detection(gate, runs, WITHIN, trials, size, label=label, true=sizes)
        figures.append(detection_figure("stored", size, wanted, scaled, injected))
    rates_by_size = [(size, detection(gate, runs, WITHIN, max(20, trials // 4), size)) for size in STORED_CURVE]
    return figures, curve_of(rates_by_size)


def interleaved(data: Collection, trials: int) -> tuple[list[Figure], list[tuple[float, float]]]:
    """Rates of the interleaved look."""
    runs, sizes = pair_units(data.pairs), mean_sizes(data.sizes)
    cases = sorted({pair.case for pair in data.pairs})
    units = sum(map(len, runs.values()))
    print(f"\nInterleaved: {PAIRS} pairs a decision; {units} independent pairs, {len(cases)} cases")
    gates = {name: InterleavedGate(policy, cases) for name, policy in POLICIES.items()}
    rates = {
        (name, drawing.name): false_alarms(gate, runs, drawing, trials)
        for name, gate in gates.items()
        for drawing in (WITHIN, MIXED)
    }
    print_rates(rates)
    gate = gates["noise only"]
    figures = [
        alarm_figure(f"interleaved: same-code suite runs red, {drawing.name}", rates["noise only", drawing.name])
        for drawing in (WITHIN, MIXED)
    ]
    for size, label, wanted in ((0.01, "slow1", 0.99), (0.005, "slow05", 0.8)):
        scaled = detection(gate, runs, WITHIN, trials, size)
        injected = detection(gate, runs, WITHIN, trials, size, label=label, true=sizes)
        figures.append(detection_figure("interleaved", size, wanted, scaled, injected))
    rates_by_size = [(size, detection(gate, runs, WITHIN, max(20, trials // 4), size)) for size in PAIRED_CURVE]
    return figures, curve_of(rates_by_size)


def curve_of(rates: Sequence[tuple[float, Rate]]) -> list[tuple[float, float]]:
    """(size, share caught), without sizes that no decision was made about."""
    return [(size, rate.share) for size, rate in rates if rate.trials]


def print_rates(rates: dict[tuple[str, str], Rate]) -> None:
    """False alarms by policy and by where units were drawn from."""
    rows = [
        (policy, where, rate.trials, _share(rate.share), _share(rate.per_case),
         f"{rate.worst[0]} {_share(rate.worst[1])}", f"{rate.set_hits} of {rate.sets}", _share(rate.at_most))
        for (policy, where), rate in rates.items()
    ]  # fmt: skip
    headers = [
        "limit",
        "units drawn",
        "trials",
        "red suite runs",
        "of decisions",
        "worst case",
        "red independent sets",
        "bound 95 %",
    ]
    print(tabulate(rows, headers, disable_numparse=True))


def alarm_figure(name: str, rate: Rate) -> Figure:
    """A share of red suite runs, with the bound that whole sets of units give."""
    if not rate.trials:
        return Figure(name, "not enough units", f"at most {_share(ALARMS_MOST)}", met=False)
    return Figure(
        name,
        f"{_share(rate.share)} of {rate.trials} resampled",
        f"at most {_share(ALARMS_MOST)}",
        rate.share <= ALARMS_MOST,
        f"bound reached: {_share(rate.at_most)} at 95 % from {rate.set_hits} red of {rate.sets} independent sets, "
        f"{sets_needed(ALARMS_MOST)} without any would prove it",
        proven=rate.at_most <= ALARMS_MOST,
    )


def detection_figure(gate: str, size: float, wanted: float, scaled: Rate, injected: Rate) -> Figure:
    """A detection rate: the smaller of that of scaled same-code units and that of really slowed ones."""
    name = f"{gate}: slowdowns of {100 * size:g} % caught"
    if not scaled.trials:
        return Figure(name, "not enough units", f"at least {_share(wanted)}", met=False)
    both = [rate for rate in (scaled, injected) if rate.trials]
    slowed = f"{_share(injected.share)} injected" if injected.trials else "nothing injected"
    rate = min(both, key=lambda one: one.share)
    return Figure(
        name,
        f"{slowed}, {_share(scaled.share)} scaled",
        f"at least {_share(wanted)}",
        rate.share >= wanted and injected.trials > 0,
        f"worst case {rate.worst[0]} {_share(rate.worst[1])}; all cases caught in {rate.set_hits} of {rate.sets} "
        f"independent sets, at least {_share(rate.at_least)} at 95 %",
        proven=rate.at_least >= wanted,
    )


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.3f}"


def _share(fraction: float) -> str:
    return "" if math.isnan(fraction) else f"{100 * fraction:.4g} %"


def _ms(one: Spread | None) -> str:
    return "" if one is None else f"{1e3 * one.device_s:.0f}"


if __name__ == "__main__":
    raise SystemExit(main())
