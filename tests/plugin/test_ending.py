"""Findings about a run as a whole that no case's own note says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.errors import BaselineError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.plugin import ending
from pytest_attnperf.plugin.ending import find_new_quarantines, find_only_on_base, note_unseen_renames
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_records import note_loosened
from pytest_attnperf.testing.project import WORKLOAD
from pytest_attnperf.testing.sample_runs import sample_run

LOOSENED = "policy loosened since the baseline:"

STORED = Policy().to_record()
HELD = Policy(quarantine="#7", quarantine_until="2026-12-01").to_record()
UNREADABLE = BaselineError("prefill.json is cut off")


def store_of(found: object) -> Any:
    """A store that gives this entry for every case, or cannot be read."""

    def find(*_: str) -> object:
        if isinstance(found, BaselineError):
            raise found
        return found

    return SimpleNamespace(find=find, roots=(Path(),))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (SimpleNamespace(policy=STORED), [f"{LOOSENED} quarantined until 2026-12-01: #7"]),
        (SimpleNamespace(policy=HELD), []),
        (None, []),
        (UNREADABLE, [str(UNREADABLE)]),
    ],
    ids=["not stored", "stored", "no entry", "unreadable"],
)
def test_a_case_that_is_quarantined_and_not_comparable_is_found(found: object, said: list[str]) -> None:
    """What changes a case so that nothing can be compared, and quarantines it, is heard of; once, and only if new."""
    run = sample_run(1, verdicts=[Verdict.INCOMPARABLE])
    (case,) = run.cases
    held = replace(case, policy=HELD, quarantined="#7 until 2026-12-01")
    assert find_new_quarantines(replace(run, cases=(held,)), store_of(found)) == [
        f"{case.key}: {text}" for text in said
    ]
    noted = replace(held, notes=(note_loosened("quarantined until 2026-12-01: #7"),))
    assert find_new_quarantines(replace(run, cases=(noted, case)), store_of(found)) == []


KEY = CaseKey("prefill", "fake.a", "w")
NEW = CaseResult(KEY, "n", Verdict.NO_BASELINE, "", new=True)
AGAINST: Any = SimpleNamespace(name="base side", list_only_there=lambda _here: [KEY], vanished=("suites/test_old.py",))
CONFIG: Any = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=lambda _name: None))


@pytest.mark.parametrize("unfiltered", [True, False])
def test_what_has_gone_is_asked_of_whole_runs(unfiltered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and cases that the base side alone has are findings where everything was selected; else new cases are said
    to be perhaps renamed ones."""
    monkeypatch.setattr(ending, "is_unfiltered", lambda _config: unfiltered)
    gone = (
        "suites/test_old.py exists on base side and not here: its cases were removed or renamed",
        f"{KEY} exists on base side and not here: it was removed or renamed",
    )
    assert find_only_on_base(CONFIG, AGAINST, {}) == (gone if unfiltered else ())
    assert find_only_on_base(CONFIG, None, {}) == ()
    assert bool(note_unseen_renames(CONFIG, AGAINST, [NEW])) is not unfiltered
    assert note_unseen_renames(CONFIG, AGAINST, []) == ()


def test_xdist_sees_no_base_side() -> None:
    """Where its workers ran the cases, their controller cannot say what has gone, and says that."""
    (note,) = note_unseen_renames(CONFIG, None, [NEW])
    assert note.startswith("whether a new case is an old one renamed was not looked at, because workers of xdist")


def test_what_is_left_to_nightly_runs_has_not_gone_from_the_base_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of cases that only the base side has judged, those that this run leaves to nightly ones are no finding."""
    left, gone = CaseKey("prefill", "fake.a", WORKLOAD, "long"), CaseKey("prefill", "fake.b", WORKLOAD)
    collector = SimpleNamespace(left_to_nightly=(left,))
    against: Any = SimpleNamespace(name="base side", list_only_there=lambda _results: [left, gone], vanished=())
    config: Any = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=lambda _name: collector))
    monkeypatch.setattr(ending, "is_unfiltered", lambda _config: True)
    (finding,) = ending.find_only_on_base(config, against, {})
    assert finding == f"{gone} exists on base side and not here: it was removed or renamed"
