"""Decides from measured processes and pairs by each tool's own rule, and counts how often it is wrong. Pure.

Units are whole processes, or pairs of them. One decision takes processes that are on one side only; a decision about
unchanged code takes both sides from unchanged processes of one run, another one its base side from these, and its new
side from slowed ones. Shares are over decisions whose units are drawn anew from the few that there are: they estimate,
and prove nothing. Intervals are Clopper and Pearson's, over decisions that share no unit.
"""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from figures_bounds import lower_bound, upper_bound
from figures_records import Collection, Pair, Process, Record

from pytest_attnperf.gate.decide import first_look, second_look
from pytest_attnperf.gate.interleaved import interleaved_look
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CheckReport, ErrorFigures, Measurement, Verdict
from pytest_attnperf.stats.noise import NoiseModel
from pytest_attnperf.stats.pair_ratios import pair_noise

PLAIN = "plain"
LEVELS = {"slow1": 0.01, "slow2": 0.02, "slow3": 0.03, "slow5": 0.05}
"""Label -> the slowdown that is meant; what an edit really does is brought to it, see `factors`."""

SUITE = 100
"""Cases of the suite that false alarms are stated for; ours shares its accepted rate among so many."""

BASE, FIRST, SECOND, PAIRS = 7, 1, 3, 8
TRIALS = 400

PROVEN = CheckReport((ErrorFigures("timed", "out", 0.0, 1.0, 0.0, 1.0),))
"""Of cases whose results were proven right when they were measured: others have no line in the file."""

U = TypeVar("U", Process, Pair)
Unit = Mapping[str, U]
"""One process or one pair: case -> what it measured."""


@dataclass(frozen=True)
class Sides(Generic[U]):
    """The units of one decision. Pairs have both sides in one: they are `base`, and there is no other."""

    base: Sequence[Unit[U]]
    first: Sequence[Unit[U]] = ()
    second: Sequence[Unit[U]] = ()


@dataclass(frozen=True)
class Tool:
    """A way to time, and a rule that says of every case whether it has become slower.

    method   whose numbers it takes, or 'pairs'
    sizes    units of the base side, the first look and the second look
    """

    name: str
    method: str
    sizes: tuple[int, int, int]
    decide: Callable[..., dict[str, Verdict]]


def by_threshold(percent: float) -> Callable[[Sides[Process]], dict[str, Verdict]]:
    """Slower by more than so many per cent, as `--benchmark-compare-fail=median:5%` and own scripts say."""

    def decide(sides: Sides[Process]) -> dict[str, Verdict]:
        return {
            case: Verdict.SLOWER if new.us / base.us * 100 - 100 > percent else Verdict.SAME
            for case, base, new in _one_each(sides)
        }

    return decide


def by_nvbench(sides: Sides[Process]) -> dict[str, Verdict]:
    """nvbench_compare.py: SLOW where means differ by more than the smaller of both relative standard deviations.

    It also reports FAST as a failure; only SLOW is counted here, as all other rules are one-sided. Without any noise it
    says '????'.
    """
    found = {}
    for case, base, new in _one_each(sides):
        noise = min((one.noise for one in (base, new) if one.noise), default=None)
        slower = (new.us - base.us) / base.us
        found[case] = Verdict.UNDECIDED if noise is None else Verdict.SLOWER if slower > noise else Verdict.SAME
    return found


def by_store(policy: Policy) -> Callable[[Sides[Process]], dict[str, Verdict]]:
    """Ours: one process against seven stored ones, and what that leaves open by three more."""

    def decide(sides: Sides[Process]) -> dict[str, Verdict]:
        base = {case: [unit[case].summary() for unit in sides.base] for case in _common(sides)}
        model = NoiseModel.from_processes(base)
        found = {}
        for case, processes in base.items():
            first, second = (_measurement([unit[case] for unit in side]) for side in (sides.first, sides.second))
            stored = Measurement(tuple(processes), (PROVEN,) * len(processes))
            noise = model.estimate_noise(case, statistics.median(stored.medians_us), processes[0].timer)
            decision = first_look(stored, first, noise, policy, SUITE)
            if decision.needs_second_look:
                decision = second_look(stored, first, second, noise, policy, SUITE)
            found[case] = decision.verdict
        return found

    return decide


def by_pairs(policy: Policy) -> Callable[[Sides[Pair]], dict[str, Verdict]]:
    """Ours: fresh pairs of processes that take turns, A B B A."""

    def decide(sides: Sides[Pair]) -> dict[str, Verdict]:
        pairs = {case: [unit[case].summary() for unit in sides.base] for case in _common(sides)}
        model = pair_noise(pairs)
        found = {}
        for case, taken in pairs.items():
            noise = model.estimate_noise(case, statistics.median(pair.base_us for pair in taken), taken[0].timer)
            found[case] = interleaved_look(taken, noise, policy, SUITE).verdict
        return found

    return decide


ONE = (1, 1, 0)
NO_TOLERANCE = Policy(threshold_percent=0.0, floor_us=0.0)
FINE = Policy(threshold_percent=0.3, floor_us=0.0)

TOOLS = (
    Tool("do_bench, + 5 %", "do_bench", ONE, by_threshold(5)),
    Tool("do_bench, + 2 %", "do_bench", ONE, by_threshold(2)),
    Tool("pytest-benchmark, median:5%", "pytest_benchmark", ONE, by_threshold(5)),
    Tool("nvbench, nvbench_compare", "nvbench", ONE, by_nvbench),
    Tool("attnperf, stored, 2 % and 0.5 us", "attnperf", (BASE, FIRST, SECOND), by_store(Policy())),
    Tool("attnperf, stored, noise alone", "attnperf", (BASE, FIRST, SECOND), by_store(NO_TOLERANCE)),
    Tool("attnperf, A B B A, 2 % and 0.5 us", "pairs", (PAIRS, 0, 0), by_pairs(Policy())),
    Tool("attnperf, A B B A, 0.3 %", "pairs", (PAIRS, 0, 0), by_pairs(FINE)),
)


@dataclass(frozen=True)
class Rate:
    """How often a tool says SLOWER, over `decisions` with units drawn anew, and over those that share none.

    undecided   the share of decisions that were left UNDECIDED
    hits        SLOWER among `independent` decisions: one of every case for each of `sets` sets of units
    """

    share: float
    undecided: float
    decisions: int
    hits: int
    independent: int
    sets: int

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, Clopper and Pearson, over the independent decisions."""
        if not self.independent:
            return 0.0, 1.0
        return lower_bound(self.hits, self.independent, 0.975), upper_bound(self.hits, self.independent, 0.975)


def in_suite(rate: float) -> float:
    """The share of runs of SUITE cases with any alarm, if each alarms by itself."""
    return 1.0 - (1.0 - rate) ** SUITE


def rate_of(tool: Tool, label: str, collected: Collection, trials: int = TRIALS) -> Rate | None:
    """How often a tool calls cases SLOWER that are unchanged (PLAIN), or slower by a label's level.

    None where no run has units enough for one decision, and where no case's slowdown has a known size.
    """
    pools = _pools(tool, label, collected)
    if not pools:
        return None
    chance = random.Random(f"1 {tool.name} {label}")
    drawn = [tool.decide(_drawn(tool, *chance.choice(pools), chance)) for _ in range(trials)]
    verdicts = [verdict for one in drawn for verdict in one.values()]
    if not verdicts:
        return None
    sets = [tool.decide(sides) for pool in pools for sides in _disjoint(tool, *pool)]
    alone = [verdict for one in sets for verdict in one.values()]
    return Rate(
        verdicts.count(Verdict.SLOWER) / len(verdicts),
        verdicts.count(Verdict.UNDECIDED) / len(verdicts),
        len(verdicts),
        alone.count(Verdict.SLOWER),
        len(alone),
        len(sets),
    )


Pool = tuple[Sequence[Unit[U]], Sequence[Unit[U]]]
"""Units that base sides are drawn from, and those of new sides; the same list where both are unchanged code."""


def _pools(tool: Tool, label: str, collected: Collection) -> list[Pool]:  # type: ignore[type-arg]
    """One pool of each run that has units enough for a decision."""
    records: Sequence[Record] = collected.pairs if tool.method == "pairs" else [
        one for one in collected.processes if one.method == tool.method
    ]  # fmt: skip
    plain = units_by_run(records, PLAIN, {})
    new = plain if label == PLAIN else units_by_run(records, label, factors(collected, label))
    base_size, new_size = tool.sizes[0], sum(tool.sizes[1:])
    found: list[Pool] = []  # type: ignore[type-arg]
    for run, units in new.items():
        if tool.method == "pairs":
            enough = len(units) >= base_size
        elif label == PLAIN:
            enough = len(units) >= base_size + new_size
        else:
            enough = len(plain.get(run, ())) >= base_size and len(units) >= new_size
        if enough:
            found.append((units if tool.method == "pairs" else plain[run], units))
    return found


def factors(collected: Collection, label: str) -> dict[str, float]:
    """Case -> what times under a label are multiplied by, so that their slowdown is the label's level.

    The noise is then that of really slowed kernels. A case whose true size is not known, or less than half of the level
    or more than twice of it, is left out.
    """
    level, sizes = LEVELS[label], defaultdict(list)
    for size in collected.sizes:
        if size.label == label:
            sizes[size.case].append(size.size)
    means = {case: statistics.fmean(found) for case, found in sizes.items()}
    return {case: (1 + level) / (1 + own) for case, own in means.items() if level / 2 <= own <= 2 * level}


def units_by_run(records: Sequence[Record], label: str, factor: Mapping[str, float]) -> dict[str, list[Unit]]:  # type: ignore[type-arg]
    """Run -> its units of a label in the order they were measured, slowed ones brought to their level."""
    found: dict[str, dict[int, dict[str, Process | Pair]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        assert isinstance(record, (Process, Pair))
        if record.label == label and (label == PLAIN or record.case in factor):
            found[record.run][record.unit][record.case] = _scaled(record, factor.get(record.case, 1.0))
    return {run: [units[number] for number in sorted(units)] for run, units in found.items()}


def _scaled(record: Process | Pair, factor: float) -> Process | Pair:
    if isinstance(record, Pair):
        return replace(record, ratio=record.ratio * factor, new_us=record.new_us * factor)
    return replace(record, us=record.us * factor)


def _drawn(tool: Tool, base: Sequence[Unit[U]], new: Sequence[Unit[U]], chance: random.Random) -> Sides[U]:
    """Units drawn without replacement; where both sides are of one list, none is on both."""
    count, first = tool.sizes[0], tool.sizes[1]
    if base is new:
        taken = chance.sample(list(base), sum(tool.sizes))
        return Sides(taken[:count], taken[count : count + first], taken[count + first :])
    looks = chance.sample(list(new), sum(tool.sizes[1:]))
    return Sides(chance.sample(list(base), count), looks[:first], looks[first:])


def _disjoint(tool: Tool, base: Sequence[Unit[U]], new: Sequence[Unit[U]]) -> Iterator[Sides[U]]:
    """Decisions in the order of measuring that share no unit with each other."""
    count, first, all_of_it = tool.sizes[0], tool.sizes[1], sum(tool.sizes)
    if base is new:
        for start in range(0, len(base) - all_of_it + 1, all_of_it):
            taken = base[start : start + all_of_it]
            yield Sides(taken[:count], taken[count : count + first], taken[count + first :])
        return
    looks = all_of_it - count
    for index in range(min(len(base) // count, len(new) // looks)):
        taken = new[index * looks : (index + 1) * looks]
        yield Sides(base[index * count : (index + 1) * count], taken[:first], taken[first:])


def _one_each(sides: Sides[Process]) -> Iterator[tuple[str, Process, Process]]:
    """(case, base, new) of rules that compare one number with another."""
    ((base,), (new,)) = sides.base, sides.first
    for case in base:
        if case in new:
            yield case, base[case], new[case]


def _common(sides: Sides[U]) -> list[str]:
    """Cases that every unit has, in the order of the first."""
    units = [*sides.base, *sides.first, *sides.second]
    return [case for case in units[0] if all(case in unit for unit in units)]


def _measurement(processes: Sequence[Process]) -> Measurement:
    return Measurement(tuple(process.summary() for process in processes), (PROVEN,) * len(processes))
