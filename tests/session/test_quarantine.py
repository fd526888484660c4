"""What a quarantine keeps from failing, and what it does not, before and after its date."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CaseKey, CheckReport, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.case_records import apply_quarantine
from pytest_attnperf.session.rejudge.timed_cases import RejudgeSettings, rejudge_run

LOOSENED = "policy loosened since the baseline:"

if TYPE_CHECKING:
    from tests.session.conftest import Bench

LINK, UNTIL = "https://example.org/issues/7", "2026-02-10"
POLICY = Policy(quarantine=LINK, quarantine_until=UNTIL)
LAST_DAY, DAY_AFTER = date(2026, 2, 10), date(2026, 2, 11)
HELD = {
    *(Verdict.SLOWER, Verdict.UNDECIDED, Verdict.INCOMPARABLE, Verdict.ENVIRONMENT, Verdict.NO_BASELINE),
    *(Verdict.MOVED, Verdict.DRIFT, Verdict.STALE, Verdict.GREW),
}
KEY = CaseKey("prefill", "fake.a", "w")


def result(verdict: Verdict, *, fails: bool) -> CaseResult:
    """A case with this verdict, of which a check was made."""
    return CaseResult(
        KEY, "test.py::a", verdict, "+10 %", fails=fails, reasons=("+10 %", "why"), checks=(CheckReport(),)
    )


@pytest.mark.parametrize("verdict", list(Verdict))
def test_only_verdicts_about_times_are_held(verdict: Verdict) -> None:
    """Until the last day a failing SLOWER, UNDECIDED, INCOMPARABLE, ENVIRONMENT or NO_BASELINE does not fail, and says
    by what; whatever is wrong, broken, implausible or no longer supported fails as it did."""
    found = apply_quarantine(result(verdict, fails=True), POLICY, LAST_DAY)
    assert found.fails is (verdict not in HELD)
    assert found.quarantined == (f"{LINK} until {UNTIL}" if verdict in HELD else "")
    assert (found.verdict, found.summary, found.notes) == (verdict, "+10 %", ())


@pytest.mark.parametrize("verdict", list(Verdict))
def test_on_the_day_after_everything_fails(verdict: Verdict) -> None:
    """Whatever the verdict, the test fails, and says first which quarantine is over and what to do."""
    found = apply_quarantine(result(verdict, fails=False), POLICY, DAY_AFTER)
    text = f"quarantine expired on {UNTIL}: {LINK}; fix it, or extend the date"
    assert (found.fails, found.verdict, found.quarantined, found.summary) == (True, verdict, "", text)
    assert found.reasons == (text, f"{verdict.value}: +10 %", "why")


def test_a_case_that_is_not_slower_passes_with_advice() -> None:
    """SAME and FASTER pass as ever, and say that the quarantine can go."""
    for verdict in (Verdict.SAME, Verdict.FASTER):
        found = apply_quarantine(result(verdict, fails=False), POLICY, LAST_DAY)
        assert (found.fails, found.quarantined) == (False, "")
        assert found.notes == (f"quarantined until {UNTIL}, but not slower: remove the quarantine",)


def test_what_is_not_proven_right_is_not_held() -> None:
    """A case that was never run, as where the budget ended, may be wrong: it stays undecided, and strict counts it."""
    unproven = replace(result(Verdict.UNDECIDED, fails=False), checks=())
    assert apply_quarantine(unproven, POLICY, LAST_DAY) is unproven


def test_without_a_quarantine_nothing_changes() -> None:
    """The very same result, on any day."""
    slow = result(Verdict.SLOWER, fails=True)
    assert apply_quarantine(slow, Policy(), DAY_AFTER) is slow


@pytest.fixture
def run(stored: Bench) -> RunResult:
    """A results file of the stored case, 10 % slower, that claims a quarantine of its own."""
    own = replace(stored.case, policy=Policy(quarantine=LINK, quarantine_until="9999-12-31"))
    case = stored.judge(case=own, time_us=110.0)
    said = Note(NoteKind.NEEDLESS, "quarantined until 9999-12-31, but not slower: remove the quarantine")
    case = replace(case, notes=(*case.notes, said))
    assert (case.verdict, case.fails, bool(case.quarantined)) == (Verdict.SLOWER, False, True)
    device = stored.pool.wait_until_ready(0).device
    return RunResult(RESULTS_SCHEMA, "0", "gate", "", "", "c1", device, None, (case,), selected=1)


def _again(run: RunResult, store: BaselineStore, today: date) -> RunResult:
    return rejudge_run(run, BaselineStore(store.roots[0]), RejudgeSettings(today=today))


def test_a_change_cannot_quarantine_itself(stored: Bench, run: RunResult) -> None:
    """Where the baseline's own policy has no quarantine, that of the results file is a finding and holds nothing."""
    again = _again(run, stored.store, LAST_DAY)
    (case,) = again.cases
    assert not any("drop the quarantine" in note for note in case.notes)
    assert (case.verdict, case.fails, case.quarantined) == (Verdict.SLOWER, True, "")
    assert again.findings == (f"{KEY.suite}/{stored.case.key.entry}: {LOOSENED} quarantined until 9999-12-31: {LINK}",)


def test_a_stored_quarantine_is_heeded_by_the_judges_day(stored: Bench, run: RunResult) -> None:
    """The judge holds what the baseline says against its own date, and names the extension that the file claims."""
    stored.record(replace(stored.case, policy=POLICY))
    held, over = (_again(run, stored.store, today) for today in (LAST_DAY, DAY_AFTER))
    assert (held.cases[0].fails, held.cases[0].quarantined) == (False, f"{LINK} until {UNTIL}")
    assert (over.cases[0].fails, over.cases[0].quarantined) == (True, "")
    assert over.cases[0].summary.startswith(f"quarantine expired on {UNTIL}")
    assert f"{LOOSENED} quarantine extended {UNTIL} -> 9999-12-31: {LINK}" in held.findings[0]
