"""Compares stored entries with the cases of a tree, without measuring: fitting, outdated and missing ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from pytest_attnperf.baselines.schema import to_plain
from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.errors import quote_nodeid
from pytest_attnperf.gate.comparable import reasons_not_comparable
from pytest_attnperf.gate.policy import CPU, NIGHTLY, PR
from pytest_attnperf.records import CaseKey
from pytest_attnperf.stats.summaries import method_of


class UpkeepState(Enum):
    """What is wrong with an entry or a case: outdated, without a case, or without an entry."""

    STALE = "stale"
    ORPHANED = "orphaned"
    MISSING = "missing"


@dataclass(frozen=True)
class TreeCase:
    """A case that the suites of this tree have.

    definition    of its workload; None where only a run knows it (a gated function)
    policy        that it is judged by
    unsupported   why it does not run on the device whose entries are compared; empty where it runs
    """

    key: CaseKey
    nodeid: str
    definition: Mapping[str, Any] | None
    policy: Mapping[str, Any]
    timed: bool = True
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True)
class Due:
    """An entry that does not fit this tree, or a timed case without one.

    command   records it again; '' where an entry is to be removed
    """

    state: UpkeepState
    key: CaseKey
    reasons: tuple[str, ...]
    command: str = ""


def compare_with_tree(
    suite: str, stored: Mapping[str, StoredEntry], cases: Iterable[TreeCase], tier: str = NIGHTLY
) -> list[Due]:
    """Returns what is due in one suite's baselines on one GPU model, sorted by state and case: stale entries, orphaned
    ones (no case), and missing ones.

    stored   by `CaseKey.entry`
    cases    of that suite
    tier     'pr' or 'nightly': a case that such a run on a GPU leaves out is not missing
    """
    by_entry = {case.key.entry: case for case in cases}
    due = [_due_of_entry(suite, entry, found, by_entry.get(entry)) for entry, found in stored.items()]
    left_out = (CPU, NIGHTLY) if tier == PR else ()
    due += [
        _due_of_case(case)
        for entry, case in by_entry.items()
        if entry not in stored and case.policy.get("tier") not in left_out
    ]
    return sorted((one for one in due if one is not None), key=lambda one: (one.state.value, str(one.key)))


def _due_of_entry(suite: str, entry: str, found: StoredEntry, case: TreeCase | None) -> Due | None:
    if case is None:
        backend, _, rest = entry.partition("/")
        key = CaseKey(suite, backend, *rest.split("/", 1))
        return Due(UpkeepState.ORPHANED, key, ("no case of this tree has this key: removed, or renamed",))
    if not case.timed:
        return Due(UpkeepState.ORPHANED, case.key, ("the case is not timed any more (timed=False)",))
    reasons = (*_list_identity_changes(found, case), *_list_policy_changes(found.policy, case.policy))
    return Due(UpkeepState.STALE, case.key, reasons, _record_command(case)) if reasons else None


def _due_of_case(case: TreeCase) -> Due | None:
    """Returns a case without an entry as MISSING; None if it is not timed, cannot run on that device, or is a function
    gated by `attnperf.gate`, whose workload is known only when it is called."""
    if not case.timed or case.unsupported or case.definition is None:
        return None
    return Due(UpkeepState.MISSING, case.key, ("no time is stored",), _record_command(case))


def _list_identity_changes(found: StoredEntry, case: TreeCase) -> list[str]:
    """Returns why a time measured now could not be compared with this entry, even on the entry's own machine."""
    stored = found.fingerprint
    definition = found.entry.workload if case.definition is None else case.definition
    timer = found.entry.processes[0].timer if found.entry.processes else ""
    here = replace(stored, must_match={**stored.must_match, "method": method_of(timer)})
    return [
        str(reason) for reason in reasons_not_comparable(found.entry, stored, here, timer=timer, definition=definition)
    ]


def _list_policy_changes(stored: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    ours = to_plain(now)
    return [
        f"policy {name}: {ours.get(name, 'absent')} here, {stored.get(name, 'absent')} stored"
        for name in sorted(ours.keys() | stored.keys())
        if ours.get(name) != stored.get(name)
    ]


def _record_command(case: TreeCase) -> str:
    return f"pytest --update-baselines {quote_nodeid(case.nodeid)}"
