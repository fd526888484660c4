"""Two sides case by case: what looks how, and why something cannot be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, Fingerprint, ProcessSummary, Verdict, WorkloadFigures
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.side_by_side import ComparedCase, SideBySide, Sided, compare_sides

MACHINE = Fingerprint({"arch": "sm_90", "product": "h200", "timer": "graph"}, {})


def sided(name: str, us: float, *, count: int = 7, spread: float = 0.001, device: str = "sm_90/h200") -> Sided:
    """A case of so many processes around a time, in steps of `spread` of it."""
    times = [us * (1 + spread * (n - (count - 1) / 2)) for n in range(count)]
    processes = tuple(ProcessSummary(one, one, one, (one,), 1, "graph") for one in times)
    key = CaseKey("s", "b", name)
    figures = WorkloadFigures(1.0, 1.0, "f16", "hot", {"seq": 512})
    case = CaseResult(key, "n", Verdict.RECORDED, "", first=processes, figures=figures)
    return Sided(device, case, MACHINE)


def only(base: Sided, new: Sided) -> ComparedCase:
    """The one case of both."""
    [case] = compare_sides([base], [new]).cases
    return case


@pytest.mark.parametrize(("factor", "looks"), [(1.05, "slower"), (1.01, "same"), (0.99, "same"), (0.95, "faster")])
def test_looks(factor: float, looks: str) -> None:
    """Beyond 2 %, the default policy, one way or the other; the interval holds the ratio."""
    case = only(sided("w", 100.0), sided("w", 100.0 * factor))
    assert case.looks == looks
    assert case.ratio == pytest.approx(factor)
    assert case.interval95 is not None
    assert case.interval95[0] < factor < case.interval95[1]
    assert case.limit == pytest.approx(1.02, rel=0.005)
    assert case.processes == (7, 7)


def test_noise_hides() -> None:
    """+3 % of processes that scatter by some percent is more than allowed and no more than noise makes; without two
    processes anywhere nothing is known of noise, and nothing looks slower."""
    loud = only(sided("w", 100.0, spread=0.02), sided("w", 103.0, spread=0.02))
    assert loud.looks == "undecided"
    assert loud.limit is not None
    assert loud.limit > 1.03
    single = only(sided("w", 100.0, count=1), sided("w", 150.0, count=1))
    assert (single.looks, single.interval95, single.limit) == ("undecided", None, None)


def test_the_policy_of_the_first_side() -> None:
    """Counts; one that cannot be is named."""
    base = sided("w", 100.0)
    loose = replace(base, case=replace(base.case, policy={"threshold_percent": 10.0}))
    assert only(loose, sided("w", 105.0)).looks == "same"
    wrong = replace(base, case=replace(base.case, policy={"threshold_percent": -1}))
    with pytest.raises(UsageError, match="threshold_percent"):
        compare_sides([wrong], [sided("w", 105.0)])


def why(base: Sided, new: Sided) -> str:
    """The reason against the one case of both."""
    found = compare_sides([base], [new])
    assert found.cases == ()
    return found.incomparable[0][1]


def test_what_cannot_be_compared_says_why() -> None:
    """Machine, timer, workload definition, a wrong result, no time on one side."""
    base, new = sided("w", 100.0), sided("w", 100.0)
    other = Fingerprint({**MACHINE.must_match, "product": "h100"}, {})
    assert why(base, replace(new, fingerprint=other, device="sm_90/h100")) == "product: h200 and h100"
    assert why(base, replace(new, fingerprint=None)) == "where it was measured is not known on both sides"
    slow = tuple(replace(process, timer="event") for process in new.case.first)
    assert why(base, replace(new, case=replace(new.case, first=slow))) == "timer: graph and event"
    longer = WorkloadFigures(1.0, 1.0, "f16", "hot", {"seq": 1024})
    assert why(base, replace(new, case=replace(new.case, figures=longer))) == "workload seq: 512 and 1024"
    wrong = replace(new, case=replace(new.case, verdict=Verdict.INCORRECT))
    assert why(base, wrong) == "INCORRECT on the second side"
    gone = replace(new, case=replace(new.case, verdict=Verdict.UNSUPPORTED, first=()))
    assert why(base, gone) == "UNSUPPORTED on the second side, without a time"
    assert compare_sides([gone], [gone]) == SideBySide(())
    assert compare_sides([base], [wrong]).wrong == (wrong.case.key,)


def test_two_timers_stand_beside_each_other() -> None:
    """Where only the timer differs both times are kept, without a ratio; not where machine or workload differ, too."""
    base, new = sided("w", 100.0), sided("w", 140.0)
    by_report = tuple(replace(process, timer="report_002") for process in new.case.first)
    other = replace(new, case=replace(new.case, first=by_report))
    added = {"timer": "report_002", "method": "1"}
    other = replace(other, fingerprint=Fingerprint({**MACHINE.must_match, **added}, {}))
    base = replace(base, fingerprint=Fingerprint({**MACHINE.must_match, "method": "2", "rocm": "7.0"}, {}))
    (shown,) = compare_sides([base], [other]).two_timers
    assert (shown.timers, shown.times_us) == (("graph", "report_002"), pytest.approx((100.0, 140.0), rel=0.01))
    elsewhere = Fingerprint({**MACHINE.must_match, "product": "h100", "timer": "report_002"}, {})
    assert compare_sides([base], [replace(other, fingerprint=elsewhere)]).two_timers == ()
    longer = WorkloadFigures(1.0, 1.0, "f16", "hot", {"seq": 1024})
    assert compare_sides([base], [replace(other, case=replace(other.case, figures=longer))]).two_timers == ()
    assert compare_sides([sided("w", 100.0)], [new]).two_timers == ()


def test_a_strange_file_is_named() -> None:
    """Times that nothing can take, a mixture of timers, and stored times of nothing: no figure is made of them."""
    base, new = sided("w", 100.0), sided("w", 100.0)
    for us in (0.0, -1.0, 5e-324, 1e308):
        held = tuple(replace(process, median_us=us) for process in new.case.first)
        assert why(base, replace(new, case=replace(new.case, first=held))) == ("an impossible time on the second side")
    held = (replace(new.case.first[0], timer="event"), *new.case.first[1:])
    assert why(replace(base, case=replace(base.case, first=held)), new) == "several timers on the first side"
    assert only(base, replace(new, case=replace(new.case, stored_us=(0.0, 0.0)))).looks == "same"


def test_one_sided_cases_and_order() -> None:
    """Cases of one side are listed as such; those of both stand slowest first, with the mean of their ratios."""
    found = compare_sides(
        [sided("a", 100.0), sided("b", 100.0), sided("gone", 1.0)],
        [sided("a", 80.0), sided("b", 125.0), sided("new", 1.0)],
    )
    assert [case.key.workload for case in found.cases] == ["b", "a"]
    assert found.geometric_mean == pytest.approx(1.0)
    assert [key.workload for key in (*found.only_base, *found.only_new)] == ["gone", "new"]


def test_several_devices_are_kept_apart() -> None:
    """Where a side has two, a case is matched on its own device."""
    here, there = sided("w", 100.0), sided("w", 50.0, device="gfx942/mi300x")
    found = compare_sides([here, there], [here, there])
    assert [(case.device, case.ratio) for case in found.cases] == [("sm_90/h200", 1.0), ("gfx942/mi300x", 1.0)]


def test_the_second_look_is_the_time() -> None:
    """Of a case that was looked at twice: the first look was selected for being large."""
    new = sided("w", 100.0)
    twice = replace(new, case=replace(new.case, first=sided("w", 110.0, count=1).case.first, second=new.case.first))
    assert only(sided("w", 100.0), twice).ratio == pytest.approx(1.0)
