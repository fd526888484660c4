"""What a run's results say together: its looks as records, and the findings made of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from pytest_attnperf.gate.suite_findings import LookRecord, suite_findings
from pytest_attnperf.records import Verdict
from pytest_attnperf.results import CaseResult

BEYOND = (Verdict.SLOWER, Verdict.ENVIRONMENT)
"""Verdicts of cases beyond their own threshold: they are named by it already."""


def run_findings(cases: Sequence[CaseResult]) -> list[str]:
    """One line per finding over all looks of a run; they change no verdict and no exit status."""
    return [finding.text for finding in suite_findings(list(look_records(cases)))]


def look_records(cases: Iterable[CaseResult]) -> Iterator[LookRecord]:
    """Every look that compared something: the first, where a stored time is known, and the one that decided.

    None of a case that is INCOMPARABLE in spite of a ratio: it is the ratio of two paths of a library.
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
