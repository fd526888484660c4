"""What is found about results files as a whole: of which commits they are, and which stored entries they lack.

Commit and base side are the files' word, as their samples are. What is found of them is a file of another commit that
was handed in again, and a measuring job that was told to compare with something else. What was gated once cannot vanish
from a results file unsaid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_attnperf.baselines.code_store import CodeStore
from pytest_attnperf.baselines.store import BaselineStore, component
from pytest_attnperf.errors import BaselineError, UsageError
from pytest_attnperf.gate.policy import NIGHTLY
from pytest_attnperf.records.code import CODE_SUITE
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.results import RunResult
from pytest_attnperf.session.rejudge.code import missing_code

ALL_ARCHS = "all"
ANY_DEVICE = "any"


def missing(
    runs: Sequence[RunResult],
    store: BaselineStore,
    suites: Sequence[str] = (),
    archs: Sequence[str] = (),
    tier: str = "",
) -> list[str]:
    """A finding for each entry without a case, over all runs together; of every suite that is stored for a device of
    theirs, or of `suites` alone, of which each must have a case somewhere.

    archs   architectures whose stored kernels must all be there, 'all' for every stored one; empty for those that
            the runs compiled for
    tier    'nightly' where the runs were to take what is nightly, too: by the policies that are stored, not by what
            the runs say of themselves
    """
    found: list[str] = []
    judged: dict[tuple[str, str], dict[str, set[str]]] = {}
    for run in runs:
        if run.device is not None:
            by_suite = judged.setdefault((run.device.arch, run.device.product), {})
            for case in run.cases:
                by_suite.setdefault(case.key.suite, set()).add(case.key.entry)
    for (arch, product), by_suite in judged.items():
        found += _of_device(store, arch, product, by_suite, suites, tier)
    seen = {suite for by_suite in judged.values() for suite in by_suite}
    found += [
        f"suite {suite}: no results file has a case of it" for suite in suites if suite not in {*seen, CODE_SUITE}
    ]
    if archs or not suites or CODE_SUITE in suites:
        wanted = sorted({*archs, *stored_archs(store)} - {ALL_ARCHS}) if ALL_ARCHS in archs else archs
        asked_for = bool(archs) or CODE_SUITE in suites
        found += missing_code(runs, CodeStore(*store.roots), asked_for=asked_for, archs=wanted)
    return found


def not_measured(runs: Sequence[RunResult], devices: Sequence[str]) -> list[str]:
    """A finding for each of these devices ('sm_90/h200', or 'any') that no run has a case of."""
    there = {f"{run.device.arch}/{run.device.product}" for run in runs if run.device is not None and run.cases}
    of = f"; measured was {', '.join(sorted(there))}" if there else "; nothing was measured"
    return [
        f"no case was measured on {'any device' if device == ANY_DEVICE else device}{of}"
        for device in devices
        if device not in there and not (device == ANY_DEVICE and there)
    ]


def stored_archs(store: BaselineStore) -> list[str]:
    """Architectures that compiled kernels are stored for."""
    return sorted({path.parent.name for root in store.roots for path in root.glob(f"[!.]*/{CODE_SUITE}.json")})


def _of_device(
    store: BaselineStore,
    arch: str,
    product: str,
    judged: Mapping[str, set[str]],
    suites: Sequence[str],
    tier: str,
) -> list[str]:
    found: list[str] = []
    try:
        stored = stored_suites(store, arch, product)
        if judged and not stored:
            found.append(f"no baseline is stored for {arch}/{product}: what was left out there, nobody can say")
        for suite in suites or stored:
            found += _without_case(store, (arch, product, suite), judged.get(suite, set()), tier)
    except BaselineError as error:
        found.append(str(error))
    return found


def stored_suites(store: BaselineStore, arch: str, product: str) -> list[str]:
    """Suites that have a baseline on a device. Raises BaselineError for a device whose name is no plain file name."""
    folders = (root / component("arch", arch) / component("product", product) for root in store.roots)
    try:
        return sorted({path.stem for folder in folders for path in folder.glob("[!.]*.json")})
    except OSError as error:
        raise BaselineError(f"no folder can have the name of the device that was measured: {error.strerror}") from None


def _without_case(store: BaselineStore, where: tuple[str, str, str], judged: set[str], tier: str) -> list[str]:
    arch, product, suite = where
    if suite == CODE_SUITE:
        return []
    gone = [
        entry
        for entry, found in store.load(arch, product, suite).items()
        if entry not in judged and not left_out(found.policy, tier)
    ]
    if gone and not judged:
        return [f"{suite}: {len(gone)} baselines for {arch}/{product} and no case: the suite was removed or deselected"]
    return [f"{suite}/{entry} has a baseline but no case: it was removed, renamed or deselected" for entry in gone]


def left_out(stored_policy: Mapping[str, Any], tier: str) -> bool:
    """Whether a run of this tier may lack a case that is stored under this policy."""
    return tier != NIGHTLY and stored_policy.get("tier") == NIGHTLY


OTHER_BASE = "measured against another base:"
SHOWN_CHARACTERS = 80

_FULL = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ABBREVIATED = re.compile(r"[0-9a-f]{12,64}")
_LABEL = re.compile(r".*\((?P<commit>[0-9a-f]{7,64})\)", re.DOTALL)


def require_full(commits: Sequence[str]) -> None:
    """Raises UsageError for what is no full commit id: a name, or a short one, may be another commit later."""
    for commit in commits:
        if not _FULL.fullmatch(commit):
            raise UsageError(
                f"--commit {commit[:SHOWN_CHARACTERS]!r} is no full commit id of 40 hexadecimal digits; "
                "`git rev-parse HEAD` prints one"
            )


def other_commit(run: RunResult, commits: Sequence[str]) -> list[str]:
    """A finding where the run is of none of these commits; any will do where none is given.

    A run without git history, or of a tree with changes, is of none: nobody knows what it measured.
    """
    if not commits or (_ABBREVIATED.fullmatch(run.commit) and any(full.startswith(run.commit) for full in commits)):
        return []
    known = " or ".join(full[:12] for full in commits)
    said = f"of another commit: the results say {run.commit[:SHOWN_CHARACTERS]!r}, to be judged is {known}"
    return [Note(NoteKind.OTHER_COMMIT, said)]


def other_base(run: RunResult, base_has: Callable[[str], bool] | None) -> list[str]:
    """A finding for each base side of interleaved cases that is no commit of the base's history.

    base_has   whether a commit is in that history; None where the base is no revision
    """
    if base_has is None:
        return []
    found = []
    for label in dict.fromkeys(case.against for case in run.cases if case.pairs):
        named = _LABEL.fullmatch(label)
        if named is None or not base_has(named["commit"]):
            found.append(f"{OTHER_BASE} {label[:SHOWN_CHARACTERS]!r} is no commit in the history of the base, "
                         "or this clone does not reach so far back")  # fmt: skip
    return found
