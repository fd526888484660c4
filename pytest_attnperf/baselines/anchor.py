"""The creep guard's anchor: the time of a case before slowdowns that were accepted by recording them.

A baseline follows the code: each recorded slowdown of 1 % becomes what the next one is compared with, and ten of them
pass a 2 % gate one by one. The anchor moves only to a faster time, or where somebody accepts the slowdown.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from pytest_attnperf.baselines.schema import Anchor, Entry
from pytest_attnperf.records import Fingerprint


def next_anchor(
    old: Entry | None,
    new: Entry,
    environments: Mapping[str, Fingerprint],
    fingerprint: Fingerprint,
    acknowledged: str = "",
) -> Anchor:
    """Returns the anchor of `new`, recorded under `fingerprint`: the case's time before slowdowns that were accepted by
    recording them.

    acknowledged   why the new time is wanted; it then becomes the anchor, however slow

    The old anchor stays while the new time is slower. It is dropped where the new time cannot be compared with it: on
    another machine state or method (`must_match` differs), or for another definition of the workload.
    """
    centre = statistics.median(process.median_us for process in new.processes)
    fresh = Anchor(centre, new.recorded, new.environment, new.commit, acknowledged)
    if old is None or acknowledged or old.workload != new.workload:
        return fresh
    anchor = old.anchor or anchor_of(old)
    before = environments.get(anchor.environment)
    if before is None or before.list_mismatches(fingerprint) or centre <= anchor.median_us:
        return fresh
    return anchor


def anchor_of(entry: Entry) -> Anchor:
    """Returns an anchor with the entry's own median time and day, for entries stored before anchors existed."""
    centre = statistics.median(process.median_us for process in entry.processes)
    return Anchor(centre, entry.recorded, entry.environment, entry.commit)


def environments_of(entry: Entry) -> tuple[str, ...]:
    """Returns the keys of `BaselineFile.environments` that an entry names: its own and its anchor's."""
    return (entry.environment,) if entry.anchor is None else (entry.environment, entry.anchor.environment)
