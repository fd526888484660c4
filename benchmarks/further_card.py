"""Asks whether unchanged code would be red on a card that recorded nothing, from baselines stored from several cards.

    python benchmarks/further_card.py baselines/sm_90/h200/*.json [--stored 1] [--assumed-percent 0.5]

Every choice of `--stored` cards stands for the baseline, and each other card for the run that is gated: all cases that
these cards ran, by the default policy, as a second look, with the canaries that the files hold (--no-canary leaves them
out). All differences between these cards are real. What is stored of few processes a card is repeated up to the 7 that
a baseline has, or a canary of two could explain nothing. Prints how far cards lie apart, and the red runs with their
cases. Exits with 1 if a run is red.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from pytest_attnperf.baselines.schema import Entry, decode_baseline
from pytest_attnperf.gate.canary_drift import compare_canaries
from pytest_attnperf.gate.comparable import BASELINE_PROCESSES_MIN
from pytest_attnperf.gate.decide import second_look
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Measurement, ProcessSummary, Verdict
from pytest_attnperf.stats import card_components
from pytest_attnperf.stats.card_components import group_by_card
from pytest_attnperf.stats.noise import NoiseModel

LEAST_US = 15.0
"""Shorter cases have a spread between cards of their own, in microseconds."""

Canaries = Mapping[str, tuple[ProcessSummary, ...]]


@dataclass(frozen=True)
class StoredCase:
    """A stored entry with the processes of its canaries; none where they are left out."""

    entry: Entry
    canaries: Canaries


Cases = Mapping[str, StoredCase]


@dataclass(frozen=True)
class Run:
    """One run on `card` against entries of the `stored` cards: its number of decisions, and the cases that are red."""

    stored: tuple[str, ...]
    card: str
    decisions: int
    red: tuple[str, ...]


def read_cases(paths: Sequence[Path], *, canary: bool = True) -> dict[str, StoredCase]:
    """Returns 'suite/case' -> case of baseline files. Raises BaselineError for an invalid one."""
    return {
        f"{file.suite}/{key}": StoredCase(entry, file.canaries.get(entry.canary, {}) if canary else {})
        for file in (decode_baseline(path.read_bytes(), str(path)) for path in paths)
        for key, entry in file.entries.items()
    }


def list_cards(cases: Cases) -> list[str]:
    """Returns the cards that measured all of the cases, sorted."""
    held = [{process.device_id for process in case.entry.processes} for case in cases.values()]
    return sorted(set.intersection(*held)) if held else []


def gate_runs(cases: Cases, stored: int) -> Iterator[Run]:
    """Yields a run for every choice of so many cards that stored, and every other card."""
    cards = list_cards(cases)
    for chosen in itertools.combinations(cards, stored):
        bases = {name: _measured_on(case.entry, chosen, least=BASELINE_PROCESSES_MIN) for name, case in cases.items()}
        model = NoiseModel.from_processes({name: base.processes for name, base in bases.items()})
        for card in cards:
            if card not in chosen:
                yield _gate_run(cases, bases, model, chosen, card)


def _gate_run(
    cases: Cases, bases: Mapping[str, Measurement], model: NoiseModel, stored: tuple[str, ...], card: str
) -> Run:
    red = []
    for name, base in bases.items():
        entry, new = cases[name].entry, _measured_on(cases[name].entry, (card,))
        noise = model.estimate_noise(name, base.processes[0].median_us, base.processes[0].timer)
        canaries = cases[name].canaries
        then = {key: _of_cards(held, stored, least=BASELINE_PROCESSES_MIN) for key, held in canaries.items()}
        canary = compare_canaries({key: _of_cards(held, (card,)) for key, held in canaries.items()}, then)
        decided = second_look(base, new, new, noise, Policy(), len(bases), canary=canary, bound=entry.bound)
        if decided.verdict is Verdict.SLOWER:
            red.append(name)
    return Run(stored, card, len(bases), tuple(red))


def _measured_on(entry: Entry, cards: Collection[str], *, least: int = 1) -> Measurement:
    processes = _of_cards(entry.processes, cards, least=least)
    return Measurement(processes, entry.to_measurement().proof[:1] * len(processes))


def _of_cards(
    processes: Sequence[ProcessSummary], cards: Collection[str], *, least: int = 1
) -> tuple[ProcessSummary, ...]:
    """Returns the processes of these cards, all of them repeated until there are `least`."""
    found = tuple(process for process in processes if process.device_id in cards)
    return found * math.ceil(least / len(found)) if found else ()


def card_spreads(cases: Cases, least_us: float = LEAST_US) -> dict[str, list[float]]:
    """Returns timer -> relative standard deviations between the cards' mean log times, of cases of `least_us` or more,
    smallest first."""
    found: dict[str, list[float]] = {}
    for entry in (case.entry for case in cases.values()):
        if statistics.median(process.median_us for process in entry.processes) >= least_us:
            means = [statistics.fmean(logs) for logs in group_by_card(entry.processes).values()]
            found.setdefault(entry.processes[0].timer, []).append(statistics.stdev(means))
    return {timer: sorted(spreads) for timer, spreads in found.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print spreads and runs; 1 if one of them is red, 2 where fewer cards are stored than are needed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baselines", type=Path, nargs="+")
    parser.add_argument("--stored", type=int, default=1, help="cards that the baseline is of (default: %(default)s)")
    parser.add_argument("--no-canary", action="store_true", help="let no canary explain a slowdown")
    parser.add_argument(
        "--assumed-percent",
        type=float,
        default=100 * card_components.PRIOR_SD,
        help="spread between cards that the gate assumes (default: %(default)g)",
    )
    options = parser.parse_args(arguments)
    card_components.PRIOR_SD = options.assumed_percent / 100
    cases = read_cases(options.baselines, canary=not options.no_canary)
    cards = list_cards(cases)
    if not 0 < options.stored < len(cards):
        parser.error(f"--stored={options.stored}, and {len(cards)} cards ran all cases; one must be left to gate")
    rows = [
        (timer, len(found), *(f"{100 * value:.2f}" for value in (statistics.median(found), _rms(found), found[-1])))
        for timer, found in sorted(card_spreads(cases).items())
    ]
    print(f"{len(cases)} cases of {len(cards)} cards; of those of {LEAST_US:g} us and more, per cent between cards:")
    print(tabulate(rows, ["timer", "cases", "median sd", "rms sd", "worst sd"], disable_numparse=True))
    runs = list(gate_runs(cases, options.stored))
    red = Counter(name for run in runs for name in run.red)
    print(f"\n{sum(bool(run.red) for run in runs)} of {len(runs)} runs red, ", end="")
    print(f"{red.total()} of {sum(run.decisions for run in runs)} decisions")
    print("\n".join(f"  {count} x {name}" for name, count in red.most_common()))
    return 1 if red else 0


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(value**2 for value in values))


if __name__ == "__main__":
    sys.exit(main())
