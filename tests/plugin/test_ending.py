"""Findings about a run as a whole that no case's own note says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.errors import BaselineError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.plugin.ending import quarantined_anew
from pytest_attnperf.records import Verdict
from pytest_attnperf.session.case_records import loosened
from pytest_attnperf.testing.sample_runs import sample_run

LOOSENED = "policy loosened since the baseline:"

STORED = Policy().record()
HELD = Policy(quarantine="#7", quarantine_until="2026-12-01").record()
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
    assert quarantined_anew(replace(run, cases=(held,)), store_of(found)) == [f"{case.key}: {text}" for text in said]
    noted = replace(held, notes=(loosened("quarantined until 2026-12-01: #7"),))
    assert quarantined_anew(replace(run, cases=(noted, case)), store_of(found)) == []
