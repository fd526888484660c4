"""The creep guard: a case against what it cost before any slowdown that was accepted by recording it."""

from __future__ import annotations

import statistics

from pytest_attnperf.baselines.anchor import anchor_of
from pytest_attnperf.baselines.schema import Entry
from pytest_attnperf.errors import pasted
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records.notes import Note, NoteKind


def crept(entry: Entry, ratio: float, policy: Policy, nodeid: str, limit: float | None = None) -> Note | None:
    """The finding, where a case is slower than the stored entry's anchor by more than `policy.creep_percent`; or None.

    `ratio` is that of the deciding look: against the entry itself or, interleaved, against the base revision that the
    entry stands for; a shift of the machine since the recording is not in the latter. `limit` is the ratio beyond which
    that look would have said SLOWER: what noise alone can do is no creep. An entry without an anchor is its own. The
    caller has made sure that both may be compared.
    """
    anchor = entry.anchor or anchor_of(entry)
    now_us = ratio * statistics.median(process.median_us for process in entry.processes)
    crept_percent = 100 * (now_us / anchor.median_us - 1)
    allowed_percent = max(policy.creep_percent, 100 * ((limit or 1.0) - 1))
    if crept_percent <= allowed_percent:
        return None
    commit = f", commit {anchor.commit}" if anchor.commit else ""
    return Note(
        NoteKind.CREPT,
        f"crept: {now_us:.4g} us against {anchor.median_us:.4g} us on {anchor.recorded}{commit}: "
        f"{crept_percent:+.1f} % since then, more than the {allowed_percent:.3g} % allowed, in steps that each "
        'passed or were recorded; if it is wanted: attnperf accept CASE --from RESULTS --reason "WHY" (nothing is '
        f'measured again), or pytest --update-baselines --attnperf-accept="WHY" {pasted(nodeid)}',
    )
