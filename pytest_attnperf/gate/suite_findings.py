"""Summary findings over all looks of a run. They never change an item's verdict or the exit status."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_attnperf.gate.limits import format_signed
from pytest_attnperf.records import Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.stats.quantiles import sign_test, upper_tail

FALSE_DISCOVERY_RATE = 0.05
"""Accepted share of unchanged cases among those that a finding names."""

SHIFT_CHANCE = 0.001
"""Chance below which a split into slower and faster cases counts as a shift: it takes at least eleven cases."""

SHIFT_MIN = 0.002
"""Smallest median shift, as a fraction, that is reported: many suites have a smaller one, which matters to none."""

NAMED_MAX = 5

Which = Literal["first", "second", "interleaved"]

BEYOND = (Verdict.SLOWER, Verdict.UNDECIDED, Verdict.ENVIRONMENT, Verdict.MOVED, Verdict.DRIFT)
"""Verdicts of cases that are not within what is allowed. Their own verdict already names these cases."""


@dataclass(frozen=True)
class LookRecord:
    """One look at one case; a case has one record per look it had.

    ratio                new / base, and `standard_error` its relative standard deviation
    degrees_of_freedom   of the standard error; None takes it as exact
    slower               the verdict is one of BEYOND: it already names the case
    """

    case: str
    which: Which
    ratio: float
    standard_error: float
    degrees_of_freedom: int | None = None
    slower: bool = False


@dataclass(frozen=True)
class SuiteFinding:
    """One sentence about the suite, and the cases it is about."""

    text: str
    cases: tuple[str, ...]


def suite_findings(records: Sequence[LookRecord]) -> tuple[SuiteFinding, ...]:
    """Returns what the looks of a run show together: a shift of the whole suite, and cases that are slow beyond chance.
    Empty if neither is found."""
    found = (find_suite_shift(records), find_together_slower(records))
    return tuple(finding for finding in found if finding is not None)


def find_together_slower(records: Sequence[LookRecord]) -> SuiteFinding | None:
    """Returns a finding on cases within their limits whose second or interleaved looks, taken together, are slower than
    chance allows; None if there are none.

    Benjamini and Hochberg (J. R. Stat. Soc. B 57, 1995) over the one-sided chances of all cases of the run. A case
    without a second look counts with a chance of 1: the first look selected the cases that had one, and leaving out the
    others would ignore that selection.
    """
    chances = {record.case: 1.0 for record in records}
    deciding = {record.case: record for record in records if record.which != "first"}
    for case, record in deciding.items():
        chances[case] = upper_tail((record.ratio - 1) / record.standard_error, record.degrees_of_freedom)
    discovered = select_discoveries(chances, FALSE_DISCOVERY_RATE)
    named = [case for case in discovered if case in deciding and not deciding[case].slower]
    if not named:
        return None
    sizes = [f"{case} {format_signed(deciding[case].ratio - 1)}" for case in named[:NAMED_MAX]]
    more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
    text = (
        f"{_format_cases(len(named))} within the threshold but slower beyond chance, taken over all {len(chances)} "
        f"(Benjamini-Hochberg, {100 * FALSE_DISCOVERY_RATE:g} %): {', '.join(sizes)}{more}"
    )
    return SuiteFinding(text, tuple(named))


def select_discoveries(chances: dict[str, float], rate: float) -> list[str]:
    """Returns the names of the k smallest chances (p-values): k is the largest number whose k-th is <= rate x k / all.

    Smallest first; equal chances stay in the given order.
    """
    ordered = sorted(chances, key=lambda name: chances[name])
    passing = [rank for rank, name in enumerate(ordered, start=1) if chances[name] <= rate * rank / len(ordered)]
    return ordered[: max(passing, default=0)]


def find_suite_shift(records: Sequence[LookRecord]) -> SuiteFinding | None:
    """Returns a finding if a sign test shows that nearly all first looks lie on one side of their baselines; else None.

    Cases of one run share its process, device and day, so a common shift points to those. Also reports faster: on a
    machine that is faster than the baseline's, slowdowns are hidden.
    """
    first = [record for record in records if record.which == "first" and record.ratio != 1]
    if not first:
        return None
    slower = sum(record.ratio > 1 for record in first)
    median = statistics.median(record.ratio for record in first)
    if sign_test(slower, len(first)) > SHIFT_CHANCE or abs(median - 1) < SHIFT_MIN:
        return None
    count, way = (slower, "slower") if median > 1 else (len(first) - slower, "faster")
    hides = "" if median > 1 else "; slowdowns of this size are hidden"
    text = (
        f"{count} of {len(first)} cases are {way} than stored, median {format_signed(median - 1)}: "
        f"the machine has changed, or a change affects all cases{hides}"
    )
    return SuiteFinding(text, tuple(record.case for record in first if (record.ratio > 1) == (median > 1)))


def _format_cases(cases: int) -> str:
    return "1 case is" if cases == 1 else f"{cases} cases are"


def list_run_findings(cases: Sequence[CaseResult]) -> list[str]:
    """Returns the text of each suite finding of a run, one line each; these change no verdict and no exit status."""
    return [finding.text for finding in suite_findings(list(look_records(cases)))]


def look_records(cases: Iterable[CaseResult]) -> Iterator[LookRecord]:
    """Yields a record per look that compared times: second or interleaved, and first where a time is stored.

    Skips INCOMPARABLE cases: a ratio of theirs is between two code paths of a library.
    """
    for case in cases:
        if case.ratio is None or not case.standard_error or case.verdict is Verdict.INCOMPARABLE:
            continue
        name, slower = str(case.key), case.verdict in BEYOND
        error, degrees = case.standard_error, case.degrees_of_freedom
        if case.pairs:
            yield LookRecord(name, "interleaved", case.ratio, error, degrees, slower)
        elif case.second:
            yield LookRecord(name, "second", case.ratio, error, degrees, slower)
        if not case.pairs and case.first and case.baseline_us:
            first = statistics.median(process.median_us for process in case.first)
            yield LookRecord(name, "first", first / case.baseline_us, error, degrees)
