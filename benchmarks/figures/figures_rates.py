"""How often the gate's own decisions are wrong, from whole processes and whole pairs drawn without replacement.

One trial is one suite run: the same processes (or pairs) for every case, because the cases of a run share them, and
none on two sides of a decision. Trials reuse the same few units, so their number proves nothing: the bound comes from
sets of units that share none (`Rate.sets`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from figures_bounds import lower_bound, upper_bound
from figures_records import Pair, Process, TrueSize

from pytest_attnperf.gate.decide import first_look, second_look
from pytest_attnperf.gate.interleaved import interleaved_look
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CheckReport, ErrorFigures, Measurement, ProcessSummary, Verdict
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.stats.noise import NoiseModel
from pytest_attnperf.stats.pair_ratios import pair_noise

BASE, FIRST, SECOND = 7, 1, 3
PAIRS = 8
PLAIN = "plain"

NOISE_ONLY = Policy(threshold_percent=0, floor_us=0)
"""No tolerance of the user's: what noise alone allows."""

PROVEN = CheckReport((ErrorFigures("timed", "out", 0.0, 1.0, 0.0, 1.0),))


class Recorded(Protocol):
    """What process and pair records share."""

    @property
    def run(self) -> str: ...  # noqa: D102
    @property
    def case(self) -> str: ...  # noqa: D102
    @property
    def label(self) -> str: ...  # noqa: D102
    @property
    def unit(self) -> int: ...  # noqa: D102


T = TypeVar("T")
R = TypeVar("R", bound=Recorded)
Unit = Mapping[tuple[str, str], T]
"""One process or pair: (case, label) -> what it measured."""


def units_by_run(records: Iterable[R], summary: Callable[[R], T]) -> dict[str, list[Unit[T]]]:
    """Run -> its units in order, each with all its cases."""
    found: dict[str, dict[int, dict[tuple[str, str], T]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        found[record.run][record.unit][record.case, record.label] = summary(record)
    return {run: [units[number] for number in sorted(units)] for run, units in found.items()}


def process_units(records: Iterable[Process]) -> dict[str, list[Unit[ProcessSummary]]]:
    """Of this gate's own method."""
    return units_by_run((r for r in records if r.method == "attnperf"), Process.summary)


def pair_units(records: Iterable[Pair]) -> dict[str, list[Unit[PairSummary]]]:
    """Run -> its pairs."""
    return units_by_run(records, Pair.summary)


def mean_sizes(sizes: Iterable[TrueSize]) -> dict[tuple[str, str], float]:
    """(case, label) -> the injection's size, the mean over runs that measured it."""
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for size in sizes:
        found[size.case, size.label][size.run] = size.size
    return {key: sum(by_run.values()) / len(by_run) for key, by_run in found.items()}


@dataclass(frozen=True)
class Rate:
    """A share over trials, and the count over sets of units that share none.

    worst       the worst case, and its own share
    per_case    share of single decisions, where `hits` counts whole suite runs
    """

    hits: int
    trials: int
    set_hits: int
    sets: int
    worst: tuple[str, float] = ("", 0.0)
    per_case: float = 0.0

    @property
    def share(self) -> float:
        """Of the trials."""
        return self.hits / self.trials if self.trials else float("nan")

    @property
    def at_most(self) -> float:
        """95 % upper bound from the independent sets."""
        return upper_bound(self.set_hits, self.sets)

    @property
    def at_least(self) -> float:
        """95 % lower bound from the independent sets."""
        return lower_bound(self.set_hits, self.sets)


@dataclass(frozen=True)
class Draw(Generic[T]):
    """The units of one decision: of one side (pairs), or base, first and second look (processes)."""

    base: Sequence[Unit[T]]
    first: Sequence[Unit[T]] = ()
    second: Sequence[Unit[T]] = ()


Runs = Mapping[str, Sequence[Unit[T]]]
Sizes = tuple[int, int, int]


def within(runs: Runs[T], sizes: Sizes, rng: random.Random) -> Draw[T] | None:
    """All units from one run, chosen among those that have enough; None where none has."""
    able = [units for units in runs.values() if len(units) >= sum(sizes)]
    if not able:
        return None
    return _cut(rng.sample(list(rng.choice(able)), sum(sizes)), sizes)


def sets_within(runs: Runs[T], sizes: Sizes) -> Iterator[Draw[T]]:
    """Sets that share no unit, each of one run, in measured order."""
    for units in runs.values():
        yield from _chunks(units, sizes)


def across(runs: Runs[T], sizes: Sizes, rng: random.Random) -> Draw[T] | None:
    """The base from one run and both looks from another: another hour, and where the file has one another card."""
    looks = sizes[1] + sizes[2]
    choices = [
        (base, new)
        for base, stored in runs.items()
        for new, fresh in runs.items()
        if base != new and len(stored) >= sizes[0] and len(fresh) >= looks
    ]
    if not choices:
        return None
    base, new = rng.choice(choices)
    drawn = rng.sample(list(runs[new]), looks)
    return _cut([*rng.sample(list(runs[base]), sizes[0]), *drawn], sizes)


def sets_across(runs: Runs[T], sizes: Sizes) -> Iterator[Draw[T]]:
    """One set for each run that has enough: its first units as the base, and the next run's later ones as the looks."""
    able = [units for units in runs.values() if len(units) >= sum(sizes)]
    for index, units in enumerate(able) if len(able) > 1 else ():
        following = able[(index + 1) % len(able)]
        yield _cut([*units[: sizes[0]], *following[sizes[0] : sum(sizes)]], sizes)


def mixed(runs: Runs[T], sizes: Sizes, rng: random.Random) -> Draw[T] | None:
    """Units of all runs together: for pairs, whose two sides share their card and their minute anyway."""
    units = _together(runs)
    return _cut(rng.sample(units, sum(sizes)), sizes) if len(units) >= sum(sizes) else None


def sets_mixed(runs: Runs[T], sizes: Sizes) -> Iterator[Draw[T]]:
    """Sets that share no unit, cut from all runs one after the other."""
    yield from _chunks(_together(runs), sizes)


@dataclass(frozen=True)
class Drawing:
    """How units are drawn for a trial, and which sets of them share none."""

    name: str
    draw: Callable[..., Draw[Any] | None]
    sets: Callable[..., Iterator[Draw[Any]]]


WITHIN = Drawing("within a run", within, sets_within)
ACROSS = Drawing("across runs", across, sets_across)
MIXED = Drawing("over all runs", mixed, sets_mixed)


def _together(runs: Runs[T]) -> list[Unit[T]]:
    return [unit for units in runs.values() for unit in units]


def _chunks(units: Sequence[Unit[T]], sizes: Sizes) -> Iterator[Draw[T]]:
    for start in range(0, len(units) - sum(sizes) + 1, sum(sizes)):
        yield _cut(units[start : start + sum(sizes)], sizes)


def _cut(units: Sequence[Unit[T]], sizes: Sizes) -> Draw[T]:
    one, two = sizes[0], sizes[0] + sizes[1]
    return Draw(units[:one], units[one:two], units[two:])


@dataclass
class StoredGate:
    """The stored baseline's screen and second look, on drawn processes. `cases` share the suite's rate."""

    policy: Policy
    cases: Sequence[str]
    sizes: Sizes = (BASE, FIRST, SECOND)

    def slower(self, draw: Draw[ProcessSummary], label: str, factors: Mapping[str, float]) -> dict[str, bool]:
        """Case -> whether its verdict is SLOWER, the new side under `label` and its times multiplied by a factor.

        A case that some unit of the draw lacks is left out.
        """
        base = {case: taken(draw.base, case, PLAIN) for case in self.cases}
        model = NoiseModel.from_processes({case: found for case, found in base.items() if found})
        return {
            case: self._slower(model, case, found, draw, label, factors[case])
            for case, found in base.items()
            if found and case in factors and taken([*draw.first, *draw.second], case, label)
        }

    def _slower(
        self, model: NoiseModel, case: str, base: Sequence[ProcessSummary], draw: Draw[ProcessSummary], label: str,
        factor: float,
    ) -> bool:  # fmt: skip
        first, second = (
            _measurement([replace(p, median_us=p.median_us * factor) for p in taken(side, case, label)])
            for side in (draw.first, draw.second)
        )
        stored = _measurement(base)
        noise = model.estimate_noise(case, stored.medians_us[0], base[0].timer)
        decision = first_look(stored, first, noise, self.policy, len(self.cases))
        if not decision.needs_second_look:
            return False
        decision = second_look(stored, first, second, noise, self.policy, len(self.cases))
        return decision.verdict is Verdict.SLOWER


@dataclass
class InterleavedGate:
    """The interleaved look, on drawn pairs; the noise is that of the draw, as it is of one run's pairs."""

    policy: Policy
    cases: Sequence[str]
    sizes: Sizes = (PAIRS, 0, 0)

    def slower(self, draw: Draw[PairSummary], label: str, factors: Mapping[str, float]) -> dict[str, bool]:
        """As `StoredGate.slower`; the other cases of the run are plain."""
        plain = {case: taken(draw.base, case, PLAIN) for case in self.cases}
        model = pair_noise({case: found for case, found in plain.items() if found}) if label == PLAIN else None
        verdicts = {}
        for case, factor in factors.items():
            drawn = taken(draw.base, case, label)
            if not drawn:
                continue
            known = model or pair_noise({**{c: found for c, found in plain.items() if found}, case: drawn})
            noise = known.estimate_noise(case, drawn[0].base_us, drawn[0].timer)
            moved = [replace(p, ratio=p.ratio * factor, new_us=p.new_us * factor) for p in drawn]
            decision = interleaved_look(moved, noise, self.policy, len(self.cases))
            verdicts[case] = decision.verdict is Verdict.SLOWER
        return verdicts


class Gate(Protocol[T]):
    """Either gate."""

    @property
    def cases(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def sizes(self) -> Sizes: ...  # noqa: D102

    def slower(self, draw: Draw[T], label: str, factors: Mapping[str, float]) -> dict[str, bool]: ...  # noqa: D102


def taken(units: Sequence[Unit[T]], case: str, label: str) -> list[T]:
    """What each unit measured of a case; empty where one of them did not."""
    found = [unit[case, label] for unit in units if (case, label) in unit]
    return found if len(found) == len(units) else []


def false_alarms(gate: Gate[T], runs: Runs[T], drawing: Drawing, trials: int, seed: int = 1) -> Rate:
    """Suite runs over unchanged code with any SLOWER."""
    same = dict.fromkeys(gate.cases, 1.0)
    found = list(_trials(gate, runs, drawing, trials, PLAIN, same, seed))
    shares = _shares(found)
    worst = max(shares, key=lambda case: shares[case], default="")
    verdicts = [slower for one in found for slower in one.values()]
    sets = [any(gate.slower(one, PLAIN, same).values()) for one in drawing.sets(runs, gate.sizes)]
    return Rate(
        hits=sum(any(one.values()) for one in found),
        trials=len(found),
        set_hits=sum(sets),
        sets=len(sets),
        worst=(worst, shares.get(worst, 0.0)),
        per_case=sum(verdicts) / max(1, len(verdicts)),
    )


def detection(
    gate: Gate[T],
    runs: Runs[T],
    drawing: Drawing,
    trials: int,
    size: float,
    *,
    label: str = PLAIN,
    true: Mapping[tuple[str, str], float] | None = None,
    seed: int = 1,
) -> Rate:
    """Decisions that call a slowdown of `size` SLOWER, over all cases.

    With the plain label same-code units are multiplied by 1 + size; with another, units measured under the injection
    are brought from its true size to `size`: the noise is then that of really slowed kernels. Cases whose injection
    has no known size, or less than half or more than twice of it, are left out. A set of units counts as a hit when
    every case was caught.
    """
    known = {case: 0.0 if label == PLAIN else (true or {}).get((case, label)) for case in gate.cases}
    factors = {
        case: (1 + size) / (1 + own)
        for case, own in known.items()
        if own is not None and (label == PLAIN or size / 2 <= own <= 2 * size)
    }
    found = list(_trials(gate, runs, drawing, trials, label, factors, seed))
    shares = _shares(found)
    worst = min(shares, key=lambda case: shares[case], default="")
    verdicts = [slower for one in found for slower in one.values()]
    share = sum(verdicts) / max(1, len(verdicts))
    counted = [gate.slower(one, label, factors) for one in drawing.sets(runs, gate.sizes)]
    sets = [all(one.values()) for one in counted if one]
    return Rate(sum(verdicts), len(verdicts), sum(sets), len(sets), (worst, shares.get(worst, 0.0)), share)


def _trials(
    gate: Gate[T], runs: Runs[T], drawing: Drawing, trials: int, label: str, factors: Mapping[str, float], seed: int
) -> Iterator[dict[str, bool]]:
    """Case -> whether it was called slower, trial by trial; nothing where no run has units enough."""
    rng = random.Random(seed)
    for _ in range(trials):
        drawn = drawing.draw(runs, gate.sizes, rng)
        verdicts = gate.slower(drawn, label, factors) if drawn is not None else {}
        if verdicts:
            yield verdicts


def _shares(found: Sequence[Mapping[str, bool]]) -> dict[str, float]:
    """Case -> the share of trials in which it was called slower."""
    by_case: dict[str, list[bool]] = defaultdict(list)
    for one in found:
        for case, slower in one.items():
            by_case[case].append(slower)
    return {case: sum(verdicts) / len(verdicts) for case, verdicts in by_case.items()}


def _measurement(processes: Sequence[ProcessSummary]) -> Measurement:
    """The processes of a case whose results were proven when they were collected: others have no record."""
    return Measurement(tuple(processes), (PROVEN,) * len(processes))
