from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.gate.suite_findings import LookRecord
from pytest_attnperf.records import CaseKey, ProcessSummary, Verdict
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.suite_findings import look_records, run_findings


def processes(*medians_us: float) -> tuple[ProcessSummary, ...]:
    """Processes of these medians."""
    return tuple(ProcessSummary(us, us, us, (us,), 1, "graph") for us in medians_us)


FIRST = CaseResult(
    key=CaseKey("prefill", "ck", "w0"),
    nodeid="t",
    verdict=Verdict.SAME,
    summary="",
    first=processes(101.0),
    baseline_us=100.0,
    median_us=101.0,
    ratio=1.01,
    standard_error=0.006,
    degrees_of_freedom=20,
)
SECOND = replace(FIRST, first=processes(103.0), second=processes(102.0, 101.0, 101.5), ratio=1.015)
PAIRED = replace(FIRST, first=processes(103.0), pairs=(PairSummary(1.012, 90.0, 91.1, 8, "graph"),), ratio=1.012)


def test_a_first_look_is_one_record() -> None:
    """A case settled by its first look has the record of that, with its error and degrees of freedom."""
    assert list(look_records([FIRST])) == [LookRecord("prefill/ck/w0", "first", 1.01, 0.006, 20)]


@pytest.mark.parametrize("verdict", [Verdict.SLOWER, Verdict.ENVIRONMENT])
def test_a_second_look_is_two_records(verdict: Verdict) -> None:
    """Both looks of a case are known; only the deciding one can have been beyond the threshold."""
    slower = replace(SECOND, verdict=verdict)
    assert list(look_records([slower])) == [
        LookRecord("prefill/ck/w0", "second", 1.015, 0.006, 20, slower=True),
        LookRecord("prefill/ck/w0", "first", 1.03, 0.006, 20),
    ]


def test_pairs_are_one_record() -> None:
    """The stored time is not that of the pairs' base side, so that nothing is said of the first look."""
    assert list(look_records([PAIRED])) == [LookRecord("prefill/ck/w0", "interleaved", 1.012, 0.006, 20)]


def test_what_was_not_compared_has_no_record() -> None:
    """A case without a ratio, or whose noise is not known, is left out."""
    unlike = replace(FIRST, verdict=Verdict.INCOMPARABLE, ratio=None)
    unknown = replace(FIRST, standard_error=None)
    assert list(look_records([unlike, unknown, replace(FIRST, baseline_us=None)])) == []


def suite(case: CaseResult, count: int) -> list[CaseResult]:
    """So many cases like this one."""
    return [replace(case, key=replace(case.key, workload=f"w{number}")) for number in range(count)]


def test_a_shift_of_the_suite_is_a_line() -> None:
    """Twelve cases that are all 1 % slower than stored are named in one line; four are none."""
    (line,) = run_findings(suite(FIRST, 12))
    assert line.startswith("12 of 12 cases are slower than stored, median +1.0 %")
    assert run_findings(suite(FIRST, 4)) == []


def test_slower_beyond_chance_is_a_line() -> None:
    """Pairs of 1.2 % that no case's own limit reaches are named together."""
    sure = [replace(case, standard_error=0.002) for case in suite(PAIRED, 3)]
    (line,) = run_findings(sure)
    assert line.startswith("3 cases are within the threshold but slower beyond chance")
    assert run_findings([replace(case, verdict=Verdict.ENVIRONMENT) for case in sure]) == []


def test_the_ratio_of_two_paths_is_no_record() -> None:
    """A case that is INCOMPARABLE because a library took another path compares two kernels, not two times of one."""
    for case in (FIRST, SECOND, PAIRED):
        assert list(look_records([replace(case, verdict=Verdict.INCOMPARABLE)])) == []
