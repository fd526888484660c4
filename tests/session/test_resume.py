"""What a resumed run takes over, and why it judges a case again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CaseKey, Fingerprint, ProcessSummary, Verdict
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.resume import CaseConditions, list_changed_settings, reason_to_judge_again

HERE = Fingerprint({"arch": "sm_90", "product": "h200"}, {"torch": "2.11"})
FILES = {"suites/test_prefill.py": "aa", "kernels/flash.py": "bb"}
BESIDE = {"suites": "s1", "kernels": "k1", ".": "t1"}
PAIRS = (PairSummary(1.0, 10.0, 10.0, 8, "graph"),)
JUDGED = CaseResult(
    CaseKey("prefill", "fake.a", "w"),
    "suites/test_prefill.py::test_prefill",
    Verdict.SAME,
    "same",
    policy=Policy().to_record(),
    fingerprint=Fingerprint({**HERE.must_match, "timer": "graph"}, HERE.named),
    sources=FILES,
    stored_us=(100.0, 101.0),
    stored_at="2026-01-02",
)


def found(*times_us: float, recorded: str = "2026-01-02") -> Any:
    """A stored entry of processes with these medians."""
    processes = tuple(ProcessSummary(us, us, us, (us,), 20, "graph") for us in times_us)
    return SimpleNamespace(entry=SimpleNamespace(processes=processes, recorded=recorded))


NOW = CaseConditions(
    digest=lambda path: FILES.get(path, ""),
    beside=lambda folder: BESIDE.get(folder, ""),
    policy=Policy().to_record(),
    found=lambda: found(100.0, 101.0),
    base="",
    base_fixed=False,
    today="2026-01-31",
    then="2026-01-31",
    fingerprint=lambda: HERE,
)
REVISION = replace(NOW, base="main (4f2c1ab)", base_fixed=True)
INTERLEAVED = replace(JUDGED, pairs=PAIRS, against="main (4f2c1ab)")
NEW = replace(JUDGED, stored_us=(), stored_at="", verdict=Verdict.NO_BASELINE)
ONLY_HERE = replace(NEW, new=True, against="main (4f2c1ab)")
NEWLY_RECORDED = replace(NEW, verdict=Verdict.RECORDED)


@pytest.mark.parametrize(
    ("result", "now"),
    [
        (JUDGED, NOW),
        (replace(JUDGED, verdict=Verdict.SLOWER, fails=True), NOW),
        (INTERLEAVED, REVISION),
        (NEW, replace(NOW, found=lambda: None)),
        (NEWLY_RECORDED, replace(NOW, found=lambda: None)),
        (replace(NEWLY_RECORDED, baseline_us=100.5), NOW),
        (replace(NEW, verdict=Verdict.RIGHT), NOW),
        (ONLY_HERE, replace(REVISION, found=lambda: None)),
        (replace(JUDGED, quarantined="#1 until 2026-02-01"), NOW),
    ],
)
def test_what_holds_is_taken_over(result: CaseResult, now: CaseConditions) -> None:
    """Every verdict that was reached, where all that it was made from is as it was."""
    assert reason_to_judge_again(result, BESIDE, now) == ""


@pytest.mark.parametrize(
    ("result", "now", "why"),
    [
        (replace(JUDGED, verdict=Verdict.ERROR), NOW, "ERROR is never taken over"),
        (replace(JUDGED, verdict=Verdict.UNDECIDED), NOW, "UNDECIDED is never taken over"),
        (replace(JUDGED, sources={}), NOW, "which files it ran is not known"),
        (JUDGED, replace(NOW, digest=lambda path: "cc"), "its files have changed"),
        (JUDGED, replace(NOW, digest=lambda path: ""), "its files have changed"),
        (JUDGED, replace(NOW, beside=lambda name: BESIDE[name] * (name != "suites")), "files in suites/ have changed"),
        (JUDGED, replace(NOW, beside=lambda folder: {**BESIDE, ".": "t2"}[folder]), "code in the tree has changed"),
        (JUDGED, replace(NOW, policy=Policy(threshold_percent=5).to_record()), "its policy has changed"),
        (replace(JUDGED, quarantined="#1"), replace(NOW, today="2026-02-01"), "its quarantine may have ended"),
        (INTERLEAVED, replace(REVISION, base="main (77aa)"), "the base side may have changed"),
        (ONLY_HERE, replace(REVISION, base="main (77aa)"), "the base side may have changed"),
        (INTERLEAVED, replace(REVISION, base_fixed=False), "the base side may have changed"),
        (JUDGED, replace(NOW, found=lambda: found(100.0, 102.0)), "its stored entry has changed"),
        (JUDGED, replace(NOW, found=lambda: found(100.0, 101.0, recorded="later")), "its stored entry has changed"),
        (JUDGED, replace(NOW, found=lambda: None), "its stored entry has changed"),
        (NEW, NOW, "its stored entry has changed"),
        (NEWLY_RECORDED, NOW, "its stored entry has changed"),
        (replace(NEWLY_RECORDED, baseline_us=99.0), NOW, "its stored entry has changed"),
        (JUDGED, replace(NOW, fingerprint=lambda: None), "where it ran is not known"),
        (
            JUDGED,
            replace(NOW, fingerprint=lambda: Fingerprint({"arch": "gfx942"}, {})),
            "arch was sm_90 and is gfx942",
        ),
        (
            JUDGED,
            replace(NOW, fingerprint=lambda: Fingerprint({}, {"torch": "2.12"})),
            "torch was 2.11 and is 2.12",
        ),
    ],
)  # fmt: skip
def test_what_has_changed_is_judged_again(result: CaseResult, now: CaseConditions, why: str) -> None:
    """One thing that a verdict was made from is another now: it is named."""
    assert reason_to_judge_again(result, BESIDE, now) == why


def test_no_process_is_started_for_what_files_say() -> None:
    """The device is only looked at where everything else holds."""

    def started() -> Fingerprint:
        raise AssertionError("a worker was started")

    assert reason_to_judge_again(JUDGED, BESIDE, replace(NOW, digest=lambda path: "", fingerprint=started))


def test_settings_that_differ_are_named() -> None:
    """With what they were and what they are; one that only one run knows counts where it has a value."""
    then, now = {"--a": "1", "--b": "", "--c": "x"}, {"--a": "2", "--c": "x", "--d": "y"}
    assert list_changed_settings(then, now) == ["--a was 1 and is 2", "--d was not given and is y"]
