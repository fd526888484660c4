"""Findings about a run as a whole: exemptions that are new, cases that crept, stored entries without a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.gate.policy import NIGHTLY, Policy
from pytest_attnperf.records.notes import NoteKind, of_kind
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.session.case_records import loosened as loosened_note


def loosened(run: RunResult) -> list[str]:
    """Findings about policies that let more through than what the baseline was stored with."""
    noted = [(case.key, case.notes) for case in run.cases] + [(result.key, result.notes) for result in run.code]
    return [f"{key}: {note}" for key, notes in noted for note in of_kind(notes, NoteKind.LOOSENED)]


def crept(run: RunResult) -> list[str]:
    """Findings about cases that have become slower step by step."""
    return [f"{case.key}: {note}" for case in run.cases for note in of_kind(case.notes, NoteKind.CREPT)]


def quarantined_anew(run: RunResult, store: BaselineStore) -> list[str]:
    """Findings about quarantines that let more through than the stored entry's, of cases that were not held against it.

    What is compared with an entry has a note (`loosened`). A case that is quarantined and INCOMPARABLE never was, and
    a change that makes it both must not be heard of less than one that makes it slower.
    """
    unsaid = [case for case in run.cases if case.quarantined and not of_kind(case.notes, NoteKind.LOOSENED)]
    return [f"{case.key}: {text}" for case in unsaid for text in _since_stored(case, run, store)]


def _since_stored(case: CaseResult, run: RunResult, store: BaselineStore) -> list[str]:
    if run.device is None:
        return []
    known = {part.name for part in fields(Policy)}
    policy = Policy(**{name: value for name, value in case.policy.items() if name in known})
    try:
        found = store.find(run.device.arch, run.device.product, case.key.suite, case.key.entry)
        return [] if found is None else [loosened_note(what) for what in policy.loosened(found.policy)]
    except BaselineError as error:
        return [str(error)]


def unused_entries(run: RunResult, store: BaselineStore, asked: Callable[[Sequence[str]], Sequence[str]]) -> list[str]:
    """Findings about stored entries that no case of an unfiltered run belongs to: a case cannot vanish silently.

    What is left to nightly runs is there, and is a finding where it was stored for every run.

    asked   which of stored suites without a case this run should have had cases of
    """
    if run.device is None:
        return []
    found = []
    keys, left = {case.key for case in run.cases}, frozenset(run.left_to_nightly)
    seen = {key.suite for key in keys | left}
    stored_suites = [suite for suite in store.suites(run.device.arch, run.device.product) if suite not in seen]
    for suite in sorted(seen.union(asked(stored_suites))):
        judged = {key.entry for key in keys | left if key.suite == suite}
        try:
            stored = store.load(run.device.arch, run.device.product, suite)
        except BaselineError as error:
            found.append(str(error))
            continue
        found += [
            f"{suite}/{entry} has a baseline but no case: it was removed, renamed or deselected"
            for entry in stored
            if entry not in judged
        ]
        moved = sorted(key.entry for key in left if key.suite == suite and key.entry in stored)
        found += [
            loosened_note(f"{suite}/{entry} is left to nightly runs, and was stored for every run")
            for entry in moved
            if stored[entry].policy.get("tier") != NIGHTLY
        ]
    return found
