"""What was gated once, and no results file tells of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CaseKey, Fingerprint, Verdict
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.rejudge.findings import can_be_left_out, find_other_base, find_other_commit, require_full
from pytest_attnperf.session.rejudge.timed_cases import RejudgeSettings, rejudge_all, rejudge_run

if TYPE_CHECKING:
    from tests.session.conftest import Bench

UNCHANGED_US = 100.02
"""Not 100: the scripted processes of one bias would be those of the baseline, block for block."""


@pytest.fixture
def run_of(stored: Bench) -> Callable[..., RunResult]:
    """A whole run of given cases on the scripted device."""
    device = stored.pool.wait_until_ready(0).device

    def made(*cases: CaseResult) -> RunResult:
        return RunResult(RESULTS_SCHEMA, "0", "gate", "", "", "c1", device, None, cases, selected=len(cases))

    return made


def test_a_dropped_case_is_a_finding(stored: Bench, run_of: Callable[..., RunResult]) -> None:
    """A stored entry without a case is named; not of a run that was filtered on purpose."""
    kept = replace(stored.judge(time_us=UNCHANGED_US), key=CaseKey("prefill", "fake.other", "w"))
    run = rejudge_run(run_of(kept), BaselineStore(stored.store.roots[0]), RejudgeSettings())
    assert run.findings == (
        "prefill/fake.a/prefill-b1-s64-h1-d16-f16 has a baseline but no case: it was removed, renamed or deselected",
    )
    assert (
        rejudge_run(run_of(kept), BaselineStore(stored.store.roots[0]), RejudgeSettings(filtered=True)).findings == ()
    )


def test_a_dropped_suite_is_a_finding(stored: Bench, run_of: Callable[..., RunResult]) -> None:
    """A suite without any case is named once, and one that was asked for and exists nowhere, too."""
    other = replace(stored.judge(time_us=UNCHANGED_US), key=CaseKey("decode", "fake.a", "w"))
    (finding,) = rejudge_run(run_of(other), BaselineStore(stored.store.roots[0]), RejudgeSettings()).findings
    assert finding == "prefill: 1 baselines for fake/fake1 but no case: the suite was removed or deselected"
    asked = RejudgeSettings(suites=("decode", "gemm", "code_objects"))
    findings = rejudge_run(run_of(other), BaselineStore(stored.store.roots[0]), asked).findings
    assert findings == ("suite gemm: no results file has a case of it", "no results file has a compiled kernel")


def test_what_is_missing_is_looked_for_in_all_files(stored: Bench, run_of: Callable[..., RunResult]) -> None:
    """A case in the second file is not missing from the first."""
    case = stored.judge(time_us=UNCHANGED_US)
    other = replace(case, key=CaseKey("prefill", "fake.other", "w"))
    judged = rejudge_all(
        [("a", run_of(other)), ("b", run_of(case))], BaselineStore(stored.store.roots[0]), RejudgeSettings()
    )
    assert [run.findings for _, run in judged] == [(), ()]


def test_a_device_without_baselines_is_a_finding(stored: Bench, run_of: Callable[..., RunResult]) -> None:
    """Under a name that nothing is stored for, cases would be missed by nobody, and pairs would settle the rest."""
    stored.against_base(everything=True)
    case = stored.judge(time_us=UNCHANGED_US)
    assert case.pairs
    assert case.fingerprint is not None
    renamed = Fingerprint({**case.fingerprint.must_match, "product": "fake9"}, {})
    run = run_of(replace(case, fingerprint=renamed))
    assert run.device is not None
    again = rejudge_run(
        replace(run, device=replace(run.device, product="fake9")),
        BaselineStore(stored.store.roots[0]),
        RejudgeSettings(),
    )
    assert (again.cases[0].verdict, again.gated) == (Verdict.SAME, 1)
    assert again.findings == ("no baseline is stored for fake/fake9: missing cases cannot be detected there",)


def test_devices_that_must_be_measured(stored: Bench, run_of: Callable[..., RunResult]) -> None:
    """A run of compiled kernels alone, or of another card, is not the one that was asked for; filtered or not."""
    run, other = (
        run_of(stored.judge(time_us=UNCHANGED_US)),
        RejudgeSettings(devices=("gfx942/mi300x", "any"), filtered=True),
    )
    (finding,) = rejudge_run(run, BaselineStore(stored.store.roots[0]), other).findings
    assert finding == "no case was measured on gfx942/mi300x; measured on fake/fake1"
    assert (
        rejudge_run(run, BaselineStore(stored.store.roots[0]), RejudgeSettings(devices=("fake/fake1", "any"))).findings
        == ()
    )
    nothing = rejudge_run(
        run_of(), BaselineStore(stored.store.roots[0]), RejudgeSettings(devices=("any",), filtered=True)
    )
    assert nothing.findings == ("no case was measured on any device; nothing was measured",)


def test_a_device_whose_name_is_none_is_a_finding(stored: Bench, run_of: Callable[..., RunResult]) -> None:
    """Too long for any folder, or a path: said, and no crash."""
    run = run_of(stored.judge(time_us=UNCHANGED_US))
    assert run.device is not None
    for name in ("x" * 5000, "../h200"):
        odd = replace(run, device=replace(run.device, product=name))
        again = rejudge_run(odd, BaselineStore(stored.store.roots[0]), RejudgeSettings())
        assert (again.cases[0].verdict, again.cases[0].fails) == (Verdict.ERROR, True)
        assert len(again.findings) == 1


def test_only_what_is_stored_as_nightly_may_be_left_to_nightly_runs(
    stored: Bench, run_of: Callable[..., RunResult]
) -> None:
    """An entry that is stored as nightly may lack a case where the judge was told of tier pr; one that was stored for
    every run may not, whatever the run says that it left out."""
    other = replace(stored.judge(time_us=UNCHANGED_US), key=CaseKey("prefill", "fake.other", "w"))
    run = replace(run_of(other), tier="pr", left_to_nightly=(stored.case.key,))
    store, by_tier = BaselineStore(stored.store.roots[0]), RejudgeSettings(tier="pr")
    gone = "prefill/fake.a/prefill-b1-s64-h1-d16-f16 has a baseline but no case: it was removed, renamed or deselected"
    assert rejudge_run(run, store, by_tier).findings == (gone,)
    stored.record(replace(stored.case, policy=Policy(tier="nightly")))
    assert rejudge_run(run, store, by_tier).findings == ()
    assert rejudge_run(run, store, RejudgeSettings(tier="nightly")).findings == (gone,)
    with pytest.raises(UsageError, match="--tier is 'weekly'; known tiers: pr, nightly"):
        RejudgeSettings(tier="weekly")


ARCHS = ("cpu-x86_64", "sm_90", "gfx942")


def test_what_is_timed_on_a_cpu_may_lack_a_case_of_a_gpu_alone() -> None:
    """A policy of tier cpu lets runs of pull requests lack the case on a GPU; on a CPU they take it."""
    seen = {(tier, arch): can_be_left_out({"tier": "cpu"}, tier, arch) for tier in ("pr", "nightly") for arch in ARCHS}
    assert [key for key, left in seen.items() if left] == [("pr", "sm_90"), ("pr", "gfx942")]
    assert can_be_left_out({"tier": "nightly"}, "pr", "cpu-x86_64")
    assert not can_be_left_out({}, "pr", "sm_90")


OTHER_COMMIT = "of another commit:"

HEAD, MERGE = "a1b2c3d4e5f6" + "0" * 28, "f" * 40
RUN = RunResult(RESULTS_SCHEMA, "0", "gate", "", "", HEAD[:12], None, None, ())
PAIR = PairSummary(1.0, 1.0, 1.0, 8, "host")


@pytest.mark.parametrize("commit", [HEAD, HEAD[:12], MERGE, MERGE[:20]])
def test_the_commit_under_review_or_its_merge_is_accepted(commit: str) -> None:
    """In full, or as git abbreviates it."""
    assert find_other_commit(replace(RUN, commit=commit), (HEAD, MERGE)) == []


@pytest.mark.parametrize(
    "commit", ["b" * 40, "unknown", "", HEAD[:12] + "+dirty", HEAD[:11], "A1B2C3D4E5F6", HEAD + "0"]
)
def test_another_commit_is_a_finding(commit: str) -> None:
    """So is one that nobody knows, that has changes, or that is too short to tell; without a demand nothing is."""
    (finding,) = find_other_commit(replace(RUN, commit=commit), (HEAD, MERGE))
    assert finding.startswith(OTHER_COMMIT)
    assert finding.endswith(f"{commit!r}, expected {HEAD[:12]} or {MERGE[:12]}")
    assert find_other_commit(replace(RUN, commit=commit), ()) == []


@pytest.mark.parametrize("commit", ["HEAD", "", HEAD[:12], HEAD.upper()])
def test_a_commit_to_be_judged_is_given_in_full(commit: str) -> None:
    """A name or a short id may be another commit later."""
    with pytest.raises(UsageError, match="is not a full commit id of 40 hexadecimal digits; `git rev-parse HEAD`"):
        require_full([commit])


@pytest.mark.parametrize(
    ("label", "found"),
    [("main (4f2c1ab8)", 0), ("HEAD (a1b2c3d4)", 1), ("x (4f2c1ab8+dirty)", 1), ("", 1), ("main", 1)],
)
def test_pairs_are_measured_against_the_base(label: str, found: int) -> None:
    """A side that is no commit of its history is a finding, said once; of cases without pairs nothing is asked."""
    case = CaseResult(CaseKey("s", "b", "w"), "n", Verdict.SAME, "", pairs=(PAIR,), against=label)
    run = replace(RUN, cases=(case, case))
    assert len(find_other_base(run, lambda text: text == "4f2c1ab8")) == found
    assert find_other_base(run, None) == []
    alone = replace(run, cases=(replace(case, pairs=()),))
    assert find_other_base(alone, lambda text: False) == []
