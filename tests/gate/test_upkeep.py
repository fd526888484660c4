"""Entries beside the cases of a tree: each reason for which an entry does not fit, and nothing where all do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.baselines.schema import Check, Entry
from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.gate.upkeep import Due, TreeCase, UpkeepState, compare_with_tree
from pytest_attnperf.records import METHOD_VERSION, CaseKey, Fingerprint, ProcessSummary

KEY = CaseKey("prefill", "triton.flash", "prefill-b1", "long")
DEFINITION: dict[str, Any] = {"family": "prefill", "shape": (4, 512)}
POLICY = Policy().to_record()
CASE = TreeCase(KEY, "suites/test_prefill.py::test[x]", DEFINITION, POLICY)


def found(processes: int = 7, method: int = METHOD_VERSION, **changes: Any) -> StoredEntry:
    """An entry of CASE as a file has it."""
    process = ProcessSummary(10.0, 10.0, 10.0, (10.0,), 20, "graph")
    stored = {"family": "prefill", "shape": [4, 512], **changes}
    entry = Entry(stored, "e", "p", (process,) * processes, Check(0.5, 0.5), "2026-01-01", "0.1.0")
    return StoredEntry(entry, Fingerprint({"product": "h200", "method": str(method)}, {}), dict(POLICY), Path("x.json"))


def due(stored: StoredEntry | None, case: TreeCase | None = CASE) -> list[Due]:
    """What is due of one entry and one case, either of which may be missing."""
    return compare_with_tree("prefill", {} if stored is None else {KEY.entry: stored}, [] if case is None else [case])


def test_an_entry_that_fits_is_not_due() -> None:
    """The same workload, policy and method; also where the backend's library is not here."""
    assert not due(found())
    assert not due(found(), replace(CASE, unsupported=("aiter is not installed",)))
    assert not due(found(), replace(CASE, definition=None))


@pytest.mark.parametrize(
    ("stored", "case", "reason"),
    [
        (found(causal=True), CASE, "workload causal: absent here, True stored"),
        (found(method=METHOD_VERSION + 1), CASE, f"method: {METHOD_VERSION} here, {METHOD_VERSION + 1} stored"),
        (found(processes=3), CASE, "processes: 3 stored, at least 7 needed"),
        (found(), replace(CASE, policy={**POLICY, "tier": "nightly"}), "policy tier: nightly here, "),
    ],
)
def test_a_stale_entry_says_why_and_what_renews_it(stored: StoredEntry, case: TreeCase, reason: str) -> None:
    """Each of workload, method, processes and policy, with both values and the command to record it again."""
    (one,) = due(stored, case)
    assert (one.state, one.key) == (UpkeepState.STALE, KEY)
    assert one.reasons[0].startswith(reason)
    assert one.command == 'pytest --update-baselines "suites/test_prefill.py::test[x]"'


@pytest.mark.parametrize("case", [None, replace(CASE, timed=False)])
def test_an_orphaned_entry_keeps_its_key(case: TreeCase | None) -> None:
    """An entry that no timed case has: its label is found in its name again."""
    (one,) = due(found(), case)
    assert (one.state, one.key, one.command) == (UpkeepState.ORPHANED, KEY, "")


def test_a_timed_case_without_an_entry_is_missing() -> None:
    """Unless it is unsupported there, is not timed, is left out by the tier, or nobody knows before it runs."""
    nightly = replace(CASE, policy={**POLICY, "tier": "nightly"})
    assert compare_with_tree("prefill", {}, [nightly], "pr") == []
    assert len(compare_with_tree("prefill", {}, [nightly, CASE], "nightly")) == 1
    (one,) = due(None)
    assert (one.state, one.key) == (UpkeepState.MISSING, KEY)
    for other in (
        replace(CASE, timed=False),
        replace(CASE, unsupported=("needs gfx942",)),
        replace(CASE, definition=None),
    ):
        assert not due(None, other)
