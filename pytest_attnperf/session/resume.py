"""Decides which verdicts a resumed run may take over from the interrupted one. Pure, so that tests cover every reason.

A verdict is taken over where everything that it was made from is unchanged: the files that ran, the plugin, the policy,
the stored entry, the base side, and the machine. Everything else is judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_attnperf.baselines.schema import to_plain
from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.records import Fingerprint, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_records import median_us_of

JUDGED_AGAIN = frozenset({Verdict.ERROR, Verdict.UNDECIDED})
"""Verdicts that are never taken over: the interruption may have caused an error, and an open case may be decided."""

WITHOUT_ENTRY = frozenset({Verdict.INCORRECT, Verdict.SUSPICIOUS, Verdict.UNSUPPORTED, Verdict.RIGHT})
"""Verdicts that do not depend on the stored entry."""

NOT_GIVEN = "not given"


@dataclass(frozen=True)
class CaseConditions:
    """The conditions that a case would be judged under now.

    digest        returns the SHA-256 of a file of the tree, by its path from the root; '' where there is none
    beside        returns the digest of all files in a top-level folder of the tree; for '.', of all code in it
    policy        the case's own, as a plain record
    found         returns the stored entry
    base          label of the base side, '' without one; `base_fixed` where the label alone identifies its code
    today         a date, '2026-01-31'; `then` that of the interrupted run
    fingerprint   returns that of this run; called last, because a worker may have to start for it; None where none can
    """

    digest: Callable[[str], str]
    beside: Callable[[str], str]
    policy: Mapping[str, Any]
    found: Callable[[], StoredEntry | None]
    base: str
    base_fixed: bool
    today: str
    then: str
    fingerprint: Callable[[], Fingerprint | None]


def reason_to_judge_again(result: CaseResult, beside: Mapping[str, str], now: CaseConditions) -> str:
    """Returns why a resumed run must judge a case again, as a phrase such as 'its files have changed'; '' if it keeps
    the result.

    beside   folder -> hash of the folder's files when the result was kept
    """
    if result.verdict in JUDGED_AGAIN:
        return f"{result.verdict.value} is never taken over"
    if not result.sources:
        return "which files it ran is not known"
    if any(now.digest(path) != digest for path, digest in result.sources.items()):
        return "its files have changed"
    changed = sorted(folder for folder, digest in beside.items() if now.beside(folder) != digest)
    if changed:
        return "code in the tree has changed" if changed == ["."] else f"files in {', '.join(changed)}/ have changed"
    if to_plain(result.policy) != to_plain(now.policy):
        return "its policy has changed"
    if result.quarantined and now.today != now.then:
        return "its quarantine may have ended"
    if (result.pairs or result.new) and not (now.base_fixed and result.against == now.base):
        return "the base side may have changed"
    if _has_entry_changed(result, now.found()):
        return "its stored entry has changed"
    return _describe_move(result.fingerprint, now.fingerprint())


def list_changed_settings(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Returns settings that differ, '--attnperf-pairs was 8 and is 4'; [] if an interrupted run may be resumed."""
    return [
        f"{name} was {then.get(name) or NOT_GIVEN} and is {now.get(name) or NOT_GIVEN}"
        for name in sorted(then.keys() | now.keys())
        if then.get(name, "") != now.get(name, "")
    ]


def _has_entry_changed(result: CaseResult, found: StoredEntry | None) -> bool:
    """Returns whether the stored entry `found` is new, or not the one that the result was compared with."""
    if result.stored_us:
        times = () if found is None else tuple(process.median_us for process in found.entry.processes)
        return times != result.stored_us or (found is not None and found.entry.recorded != result.stored_at)
    if result.baseline_us is not None:
        return found is None or median_us_of(found.entry.processes) != result.baseline_us
    return found is not None and result.verdict not in WITHOUT_ENTRY


def _describe_move(then: Fingerprint | None, now: Fingerprint | None) -> str:
    """Returns the first field of the fingerprints that differs, 'driver was 1 and is 2'; 'where it ran is not known'
    if one is None; '' if all are equal."""
    if then is None or now is None:
        return "where it ran is not known"
    for ours, theirs in ((now.must_match, then.must_match), (now.named, then.named)):
        for name, value in ours.items():
            if theirs.get(name) != value:
                return f"{name} was {theirs.get(name, 'not known')} and is {value}"
    return ""
