"""What the looks of a run say together: their records, and the findings made of them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pytest_attnperf.gate.suite_findings import (
    BEYOND,
    LookRecord,
    Which,
    find_suite_shift,
    find_together_slower,
    list_run_findings,
    look_records,
    select_discoveries,
    suite_findings,
)
from pytest_attnperf.records import CaseKey, ProcessSummary, Verdict
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import CaseResult
from pytest_attnperf.testing.sample_runs import sample_run


def looks(which: Which, *ratios: float, error: float = 0.003) -> list[LookRecord]:
    """One look per case, none of which ended as SLOWER."""
    return [LookRecord(f"s/case{index}", which, ratio, error) for index, ratio in enumerate(ratios)]


def test_discoveries_are_those_of_the_worked_example() -> None:
    """Of the 15 chances in Benjamini and Hochberg (1995), section 4.1, the first four are discoveries at 5 %."""
    chances = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.324, 0.4262]
    chances += [0.5719, 0.6528, 0.759, 1.0]
    named = {f"test{index}": chance for index, chance in enumerate(chances)}
    assert select_discoveries(dict(reversed(named.items())), 0.05) == ["test0", "test1", "test2", "test3"]
    assert select_discoveries({}, 0.05) == []


def test_a_larger_rank_carries_the_smaller_ones() -> None:
    """Two chances of 4 % each fail alone, but together the second passes and takes the first with it."""
    assert select_discoveries({"a": 0.04, "b": 0.041}, 0.05) == ["a", "b"]
    assert select_discoveries({"a": 0.04, "b": 0.06}, 0.05) == []


def test_cases_within_their_threshold_are_named_together() -> None:
    """Slowdowns of 1 % that no case's own limit reaches are named with their sizes, the most certain first."""
    records = looks("first", *[1.001] * 40) + looks("interleaved", 1.010, 1.012, 1.0)
    finding = find_together_slower(records)
    assert finding is not None
    assert finding.cases == ("s/case1", "s/case0")
    assert finding.text == (
        "2 cases are within the threshold but slower beyond chance, taken over all 40 (Benjamini-Hochberg, 5 %): "
        "s/case1 +1.2 %, s/case0 +1.0 %"
    )


def test_cases_that_are_slower_by_themselves_are_not_named_again() -> None:
    """A case with the verdict SLOWER counts, but is no news."""
    (slower,) = looks("second", 1.05)
    records = [
        LookRecord("s/alone", "second", 1.05, 0.003, slower=True),
        LookRecord("s/with", "second", 1.012, 0.003),
    ]
    finding = find_together_slower(records)
    assert finding is not None
    assert finding.cases == ("s/with",)
    assert find_together_slower([LookRecord(slower.case, "second", 1.05, 0.003, slower=True)]) is None


@pytest.mark.parametrize("verdict", BEYOND)
def test_what_its_verdict_names_is_not_within_its_threshold(verdict: Verdict) -> None:
    """Among them UNDECIDED: 'more than is allowed' and 'within the threshold' are never said of one case."""
    case = CaseResult(CaseKey("s", "b", "w"), "t.py::t", verdict, "", ratio=1.7, standard_error=0.003,
                      second=sample_run(1).cases[0].first)  # fmt: skip
    assert [record.slower for record in look_records([case]) if record.which == "second"] == [True]
    assert list_run_findings([case]) == []


def test_first_looks_alone_name_nobody() -> None:
    """A first look is selected by nobody and confirmed by nobody: it has no part in a discovery."""
    assert find_together_slower(looks("first", *[1.015] * 5)) is None


def test_poorly_known_errors_name_fewer() -> None:
    """With five degrees of freedom the same ratio is less certain than with a known error."""
    assert find_together_slower([LookRecord("a", "second", 1.006, 0.003, None)]) is not None
    assert find_together_slower([LookRecord("a", "second", 1.006, 0.003, 5)]) is None


def test_many_names_are_cut() -> None:
    """Five cases are written out, the others counted; all are in the finding."""
    finding = find_together_slower(looks("second", *[1.02] * 8))
    assert finding is not None
    assert finding.text.endswith("s/case4 +2.0 % and 3 more")
    assert len(finding.cases) == 8


def test_false_discoveries_are_as_rare_as_stated() -> None:
    """Of 1,000 suites of unchanged code, of which the first look chose who got a second, at most 5 % name a case."""
    generator, named = random.Random(2), 0
    for _ in range(1000):
        records = []
        for case in range(20):
            base, first, second = (generator.gauss(0, sd) for sd in (0.0025, 0.0055, 0.0037))
            records.append(LookRecord(str(case), "first", 1 + first - base, 0.006))
            if first - base > 0.006:
                records.append(LookRecord(str(case), "second", 1 + second - base, (0.0037**2 + 0.0025**2) ** 0.5))
        named += find_together_slower(records) is not None
    assert named / 1000 <= 0.05


def test_a_shift_of_the_whole_suite_is_said() -> None:
    """Nearly all cases slower by a little is a shift, with how many and by how much."""
    finding = find_suite_shift(looks("first", *[1.007] * 41, 0.999, 0.998, 0.99))
    assert finding is not None
    assert finding.text == (
        "41 of 44 cases are slower than stored, median +0.7 %: the machine has changed, or a change affects all cases"
    )
    assert len(finding.cases) == 41


def test_a_faster_machine_hides_slowdowns() -> None:
    """A shift the other way is said with what it hides."""
    finding = find_suite_shift(looks("first", *[0.98] * 12))
    assert finding is not None
    assert finding.text.startswith("12 of 12 cases are faster than stored, median -2.0 %")
    assert finding.text.endswith("slowdowns of this size are hidden")


@pytest.mark.parametrize(
    "records",
    [
        looks("first", *[1.007] * 10),
        looks("first", *[1.001] * 44),
        looks("first", *[1.007] * 30, *[0.993] * 14),
        looks("second", *[1.007] * 44),
        looks("first", *[1.0] * 44),
        [],
    ],
)
def test_what_is_no_shift_is_not_said(records: list[LookRecord]) -> None:
    """Ten cases, a tenth of a percent, a split of 30 to 14, second looks and equal times are no shift."""
    assert find_suite_shift(records) is None


def test_findings_come_together() -> None:
    """A run may have both findings, and one without anything to say has none."""
    records = looks("first", *[1.01] * 20) + looks("second", 1.015)
    assert len(suite_findings(records)) == 2
    assert suite_findings(looks("first", 1.0, 1.01)) == ()


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
    (line,) = list_run_findings(suite(FIRST, 12))
    assert line.startswith("12 of 12 cases are slower than stored, median +1.0 %")
    assert list_run_findings(suite(FIRST, 4)) == []


def test_slower_beyond_chance_is_a_line() -> None:
    """Pairs of 1.2 % that no case's own limit reaches are named together."""
    sure = [replace(case, standard_error=0.002) for case in suite(PAIRED, 3)]
    (line,) = list_run_findings(sure)
    assert line.startswith("3 cases are within the threshold but slower beyond chance")
    assert list_run_findings([replace(case, verdict=Verdict.ENVIRONMENT) for case in sure]) == []


def test_the_ratio_of_two_paths_is_no_record() -> None:
    """A case that is INCOMPARABLE because a library took another path compares two kernels, not two times of one."""
    for case in (FIRST, SECOND, PAIRED):
        assert list(look_records([replace(case, verdict=Verdict.INCOMPARABLE)])) == []
