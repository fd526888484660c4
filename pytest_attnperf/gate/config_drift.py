"""What a case ran with now, against what it ran with when its baseline was stored. Pure: text against text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_attnperf.measure.autotuners import PREFIX as AUTOTUNED

PATH = "path"
"""Entry, or last part of an entry's name, that says which of several implementations a library's dispatcher took."""

PROVENANCE = frozenset({"config_arch", "config_source"})
"""Where values came from: other entries hold the values themselves. Looked for behind the last dot, for a part's
configuration has the part's name before it, as in `attention.config_source`."""

SAID_ELSEWHERE = frozenset({"autotuned", "built", "launches", "peak_memory", "pinned"})
"""Why something is not known, what was replayed, and what a library built before it ran: no part of what ran."""

UNKNOWN = "unknown"
ABSENT = "absent"

ADVICE = (
    "an autotuner chose otherwise, which may be all that changed: run again with --attnperf-pin-config to time the "
    "stored choice, or record the baseline again (--update-baselines) to keep the new one"
)


def config_changes(stored: Mapping[str, str], now: Mapping[str, str], *, other: str = "stored") -> list[str]:
    """What differs, e.g. 'BLOCK_M: 64 here, 128 stored' or 'autotuned.forward: num_warps: 4 here, 8 stored'.

    Entries that only say where values come from, or why something is not known, are no change; neither are autotuners'
    choices where one side has none at all, as in a baseline stored before they were recorded. `other` is what the side
    of `stored` is called.
    """
    keys = _compared(stored, now)
    found = []
    for key in sorted(keys):
        ours, theirs = now.get(key, ABSENT), stored.get(key, ABSENT)
        if ours == theirs or ours.startswith(UNKNOWN) or theirs.startswith(UNKNOWN):
            continue
        found.append(f"{key}: {_difference(key, ours, theirs, other)}")
    return found


def path_changes(stored: Mapping[str, str], now: Mapping[str, str], *, other: str = "stored") -> list[str]:
    """Which dispatcher's choices differ, e.g. 'path: ck here, asm stored'; empty where one side does not know."""
    known = [key for key in sorted(stored.keys() & now.keys()) if key.rpartition(".")[2] == PATH]
    return config_changes({key: stored[key] for key in known}, {key: now[key] for key in known}, other=other)


def advice(changes: Sequence[str]) -> str:
    """What to do about such changes, where an autotuner's choice is among them; '' otherwise."""
    return ADVICE if any(change.startswith(AUTOTUNED) for change in changes) else ""


def _compared(stored: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    known = (stored.keys() | now.keys()) - SAID_ELSEWHERE
    keys = {key for key in known if key.rpartition(".")[2] not in PROVENANCE}
    recorded = all(any(key.startswith(AUTOTUNED) for key in side) for side in (stored, now))
    return {key for key in keys if recorded or not key.startswith(AUTOTUNED)}


def _difference(key: str, ours: str, theirs: str, other: str) -> str:
    """The parts of an autotuner's choice that differ, or both values as they are."""
    here, there = _parts(ours), _parts(theirs)
    if key.startswith(AUTOTUNED) and here and here.keys() == there.keys():
        return "; ".join(
            f"{name}: {here[name]} here, {there[name]} {other}" for name in here if here[name] != there[name]
        )
    return f"{ours} here, {theirs} {other}"


def _parts(text: str) -> dict[str, str]:
    """'BLOCK_M: 64, num_warps: 4' by name; empty where the text is made otherwise."""
    pairs = [part.partition(": ") for part in text.split(", ")]
    return {name: value for name, _, value in pairs} if all(colon for _, colon, _ in pairs) else {}
