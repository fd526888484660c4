"""Compares two sets of results case by case: the second's times with the first's. A comparison, not a gate.

Processes of two runs may differ in day and card, which nothing here can correct. So a case only "looks" slower, and
nothing fails by it unless the user requests that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_attnperf.baselines.schema import to_plain
from pytest_attnperf.gate.limits import tolerated_ratio
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.gate.recount import deciding_processes
from pytest_attnperf.records import CaseKey, Fingerprint, ProcessSummary, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.stats.comparison import compare_processes, ratio_of, with_degrees_between, z_for
from pytest_attnperf.stats.noise import NoiseModel
from pytest_attnperf.workloads.defined import drop_unrecorded

Looks = Literal["slower", "undecided", "same", "faster"]
LOOKS: tuple[Looks, ...] = ("slower", "undecided", "same", "faster")

POSSIBLE_US = (1e-6, 1e12)
"""Possible times, from a millionth of a microsecond to eleven days: a file may contain anything."""

OF_THE_TIMER = frozenset({"timer", "method", "rocm"})
"""Fields of a fingerprint that a case's timer adds to what must match (`workers.look.case_fingerprint`)."""

WRONG = frozenset({Verdict.INCORRECT, Verdict.ERROR, Verdict.SUSPICIOUS})
"""Verdicts of cases whose time, if they have one, is not of the stated work."""


@dataclass(frozen=True)
class Sided:
    """A case of one side: its device ('sm_90/h200', '' where that is not known), result and fingerprint."""

    device: str
    case: CaseResult
    fingerprint: Fingerprint | None


@dataclass(frozen=True)
class ComparedCase:
    """One case of both sides, microseconds per call; ratios are second / first.

    interval95     over processes; None, as `limit`, where no case of either side has two processes
    limit          the ratio beyond which it looks slower: by the first side's policy, and by noise
    processes      number of those of the first and of the second side
    """

    key: CaseKey
    device: str
    base_us: float
    new_us: float
    ratio: float
    looks: Looks
    interval95: tuple[float, float] | None
    limit: float | None
    processes: tuple[int, int]


@dataclass(frozen=True)
class TwoTimers:
    """A case that the sides timed with different timers: names and times, in microseconds per call, of both sides."""

    key: CaseKey
    timers: tuple[str, str]
    times_us: tuple[float, float]


@dataclass(frozen=True)
class SideBySide:
    """Compared cases, slowest first; incomparable ones with the reason; those of one side; wrong ones of the second.

    two_timers   those of the incomparable ones that differ in their timer
    """

    cases: tuple[ComparedCase, ...]
    incomparable: tuple[tuple[CaseKey, str], ...] = ()
    two_timers: tuple[TwoTimers, ...] = ()
    only_base: tuple[CaseKey, ...] = ()
    only_new: tuple[CaseKey, ...] = ()
    wrong: tuple[CaseKey, ...] = ()

    @property
    def geometric_mean(self) -> float | None:
        """Geometric mean of the compared cases' ratios, second side / first; None without a compared case."""
        return mean_ratio(self.cases)


def mean_ratio(cases: Sequence[ComparedCase]) -> float | None:
    """Returns the geometric mean of the cases' ratios, second side / first; None without cases."""
    return math.exp(statistics.fmean(math.log(case.ratio) for case in cases)) if cases else None


def compare_sides(base: Sequence[Sided], new: Sequence[Sided]) -> SideBySide:
    """Returns the comparison of two sides, whose cases are matched by device and key, or by key if each has one device.

    Raises UsageError for an invalid policy in the first side's file.
    """
    one_each = all(len({one.device for one in side}) <= 1 for side in (base, new))
    first, second = (_index_cases(side, with_device=not one_each) for side in (base, new))
    both = [name for name in first if name in second]
    found: list[tuple[CaseKey, str]] = []
    two_timers: list[TwoTimers] = []
    pairs: list[tuple[Sided, Sided]] = []
    for name in both:
        if _is_untimed(first[name].case) and _is_untimed(second[name].case):
            continue
        why = reason_incomparable(first[name], second[name])
        if why:
            found.append((first[name].case.key, why))
            two_timers += _show_two_timers(first[name], second[name])
        else:
            pairs.append((first[name], second[name]))
    model = _pool_noise([*first.values(), *second.values()])
    compared = [_compare_case(*sides, model, len(pairs)) for sides in pairs]
    return SideBySide(
        cases=tuple(sorted(compared, key=lambda case: -case.ratio)),
        incomparable=tuple(found),
        two_timers=tuple(two_timers),
        only_base=tuple(shown.case.key for name, shown in first.items() if name not in second),
        only_new=tuple(shown.case.key for name, shown in second.items() if name not in first),
        wrong=tuple(shown.case.key for shown in second.values() if shown.case.verdict in WRONG),
    )


def reason_incomparable(base: Sided, new: Sided) -> str:
    """Returns why two results of a case cannot be compared, as text; '' where they can."""
    if flaw := _find_flawed_side(base, new):
        return flaw
    first, second = _timers_of(base, new)
    if first != second:
        return f"timer: {first} and {second}"
    settings = [deciding_processes(shown.case)[0].settings for shown in (base, new)]
    if all(settings) and settings[0] != settings[1]:
        return f"settings of torch: {settings[0]} and {settings[1]}"
    different = [
        *_machine_differences(base.fingerprint, new.fingerprint),
        *_definition_differences(base.case, new.case),
    ]
    return "; ".join(different)


def _find_flawed_side(base: Sided, new: Sided) -> str:
    """Returns which side has no time of right work, and why, as text; '' if both have one."""
    for side, shown in (("first", base), ("second", new)):
        if shown.case.verdict in WRONG:
            return f"{shown.case.verdict.value} on the {side} side"
        if not deciding_processes(shown.case):
            return f"{shown.case.verdict.value} on the {side} side, without a time"
        if flaw := _find_flaw(deciding_processes(shown.case)):
            return f"{flaw} on the {side} side"
    return ""


def _timers_of(base: Sided, new: Sided) -> tuple[str, str]:
    first, second = (deciding_processes(shown.case)[0].timer for shown in (base, new))
    return first, second


def _show_two_timers(base: Sided, new: Sided) -> list[TwoTimers]:
    """Returns the case with both times, in a list, if the sides differ in nothing but their timer; else []."""
    if _find_flawed_side(base, new):
        return []
    timers, machines = _timers_of(base, new), (_drop_timer(side.fingerprint) for side in (base, new))
    differences = [*_machine_differences(*machines), *_definition_differences(base.case, new.case)]
    if timers[0] == timers[1] or differences:
        return []
    first, second = (_median_us(deciding_processes(shown.case)) for shown in (base, new))
    return [TwoTimers(base.case.key, timers, (first, second))]


def _drop_timer(machine: Fingerprint | None) -> Fingerprint | None:
    """Returns the fingerprint without what a case's timer added to it."""
    if machine is None:
        return None
    return replace(machine, must_match={k: v for k, v in machine.must_match.items() if k not in OF_THE_TIMER})


def _median_us(processes: Sequence[ProcessSummary]) -> float:
    return statistics.median(process.median_us for process in processes)


def _find_flaw(processes: Sequence[ProcessSummary]) -> str:
    """Returns 'an impossible time' or 'several timers' if these cannot be processes of one case; '' if they can."""
    if not is_possible(*(process.median_us for process in processes)):
        return "an impossible time"
    return "several timers" if len({process.timer for process in processes}) > 1 else ""


def is_possible(*times_us: float) -> bool:
    """Returns whether all of these times, in microseconds, lie in the range POSSIBLE_US."""
    return all(POSSIBLE_US[0] <= us <= POSSIBLE_US[1] for us in times_us)


def _machine_differences(base: Fingerprint | None, new: Fingerprint | None) -> Iterator[str]:
    if base is None or new is None:
        yield "where it was measured is not known on both sides"
        return
    yield from _format_differences(base.must_match, new.must_match)


def _definition_differences(base: CaseResult, new: CaseResult) -> Iterator[str]:
    if base.figures is not None and new.figures is not None:
        there, here = (to_plain(side.definition) for side in (base.figures, new.figures))
        yield from (
            f"workload {text}"
            for text in _format_differences(drop_unrecorded(here, there), drop_unrecorded(there, here))
        )


def _format_differences(base: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    absent = "absent"
    names = sorted(base.keys() | new.keys())
    sides = [(name, base.get(name, absent), new.get(name, absent)) for name in names]
    return [f"{name}: {one} and {other}" for name, one, other in sides if one != other]


def _index_cases(side: Sequence[Sided], *, with_device: bool) -> dict[tuple[str, str], Sided]:
    """Returns (device, case key) -> case; leaves out cases proven right but not to be timed. The device is '' unless
    `with_device`."""
    timed = [shown for shown in side if not _is_only_proven(shown.case)]
    return {(shown.device if with_device else "", str(shown.case.key)): shown for shown in timed}


def _is_untimed(case: CaseResult) -> bool:
    """Returns whether the case has no time though it is not wrong, e.g. because it was skipped or is unsupported."""
    return not deciding_processes(case) and case.verdict not in WRONG


def _is_only_proven(case: CaseResult) -> bool:
    return case.verdict is Verdict.RIGHT and not case.first


def _pool_noise(shown: Sequence[Sided]) -> NoiseModel:
    """Returns the noise between processes of unchanged code, over cases of both sides and their baselines."""
    groups: dict[str, list[ProcessSummary]] = {}
    for index, one in enumerate(shown):
        held = deciding_processes(one.case)
        if held and not _find_flaw(held):
            groups[f"{index}"] = list(held)
            timer = held[0].timer
            stored = [ProcessSummary(us, us, us, (us,), 1, timer) for us in one.case.stored_us]
            groups[f"{index} stored"] = stored if is_possible(*one.case.stored_us) else []
    return NoiseModel.from_processes(groups)


def _compare_case(base: Sided, new: Sided, model: NoiseModel, cases: int) -> ComparedCase:
    first, second = deciding_processes(base.case), deciding_processes(new.case)
    base_us, new_us = _median_us(first), _median_us(second)
    policy = Policy.from_record(base.case.policy)
    tolerated, ratio = tolerated_ratio(policy, base_us), ratio_of(first, second)
    noise = model.estimate_noise("", base_us, first[0].timer, base.case.floor_bound)
    interval: tuple[float, float] | None = None
    limit: float | None = None
    if noise is not None:
        known = with_degrees_between(noise, first, second)
        z = z_for(policy.suite_false_alarm_rate, max(1, cases), known.degrees_of_freedom)
        found = compare_processes(first, second, known.relative_sd, z, known.degrees_of_freedom, known.card_sd)
        interval, limit = found.interval95, found.slower_beyond(tolerated)
    counts = (len(first), len(second))
    looks = _classify_ratio(ratio, tolerated, limit)
    return ComparedCase(base.case.key, base.device, base_us, new_us, ratio, looks, interval, limit, counts)


def _classify_ratio(ratio: float, tolerated: float, limit: float | None) -> Looks:
    """Returns 'slower' beyond the noise limit, else 'undecided' beyond `tolerated`, 'faster' below 1 / limit, or
    'same'. Without a limit (None) never slower or faster."""
    if limit is not None and ratio > limit:
        return "slower"
    if ratio > tolerated:
        return "undecided"
    return "faster" if limit is not None and ratio < 1 / limit else "same"
