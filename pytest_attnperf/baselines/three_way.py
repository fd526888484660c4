"""Merges two edits of one baseline file, entry by entry: for `git merge`, which can only compare lines. Pure.

Works on files of timed cases and of compiled kernels as plain JSON, so that no field unknown to this version is lost.
An entry that one side changed, added or removed is taken from that side; only one that both sides changed differently
is a conflict. Its summary line is derived, and ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_attnperf.baselines.schema import json_text
from pytest_attnperf.errors import BaselineError

TABLES = ("environments", "policies", "canaries")
"""Tables whose items entries name by the id of their content: equal ids have equal contents."""

OURS, THEIRS, NEWER = "ours", "theirs", "newer"
PREFERENCES = (OURS, THEIRS, NEWER)

Plain = dict[str, Any]


@dataclass(frozen=True)
class Conflict:
    """An entry that both sides changed differently; None on the side that removed it."""

    key: str
    ours: Plain | None
    theirs: Plain | None


@dataclass(frozen=True)
class MergedFile:
    """The file without the entries in conflict, and these conflicts."""

    file: Plain
    conflicts: tuple[Conflict, ...] = field(default=())


def merge_three_way(base: Plain, ours: Plain, theirs: Plain, prefer: str = "") -> MergedFile:
    """Merges two versions of a file that came from `base`, entry by entry; `base` is empty without a common version.

    prefer   'ours' or 'theirs' decides every conflict for that side; 'newer' for the entry that was recorded or
             accepted later, and for the existing one where a side removed it. Two of one day stay in conflict

    Raises BaselineError where the files are not of one device and suite.
    """
    for name in sorted((ours.keys() | theirs.keys()) - {"entries", *TABLES}):
        if ours.get(name) != theirs.get(name):
            raise BaselineError(
                f"field `{name}` is {ours.get(name)!r} on our side and {theirs.get(name)!r} on theirs: "
                "these are not two versions of one file; merge only files of one path"
            )
    entries, conflicts = merge_both_sides(_entries_of(base), _entries_of(ours), _entries_of(theirs), prefer)
    named = _collect_ids([*entries.values(), *(side for one in conflicts for side in (one.ours, one.theirs) if side)])
    file: Plain = {}
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        if name in TABLES:
            every = {**theirs.get(name, {}), **ours.get(name, {})}
            file[name] = {key: every[key] for key in sorted(every) if key in named}
        else:
            file[name] = entries if name == "entries" else ours[name]
    return MergedFile(file, tuple(conflicts))


def merge_both_sides(
    base: Mapping[str, Plain], ours: Mapping[str, Plain], theirs: Mapping[str, Plain], prefer: str = ""
) -> tuple[dict[str, Plain], list[Conflict]]:
    """Returns the merged entries by key, sorted, and the conflicts: entries that both sides changed differently and
    `prefer` ('ours', 'theirs', 'newer' or '') does not decide."""
    entries: dict[str, Plain] = {}
    conflicts: list[Conflict] = []
    for key in sorted(ours.keys() | theirs.keys()):
        before, our, their = base.get(key), ours.get(key), theirs.get(key)
        if _without_summary(our) == _without_summary(their):
            taken = our if our and our.get("summary") else their
        elif _without_summary(our) == _without_summary(before):
            taken = their
        elif _without_summary(their) == _without_summary(before):
            taken = our
        elif (side := _choose_side(our, their, prefer)) is not None:
            taken = our if side == OURS else their
        else:
            conflicts.append(Conflict(key, our, their))
            continue
        if taken is not None:
            entries[key] = taken
    return entries, conflicts


def render_merged(merged: MergedFile, open_levels: int) -> bytes:
    """Returns the merged file's JSON text; each entry in conflict stands in it twice, between git's conflict markers.

    Choosing either side of every conflict leaves valid JSON: a conflict with an entry on one side only is never last.
    Objects of the first `open_levels` levels have a line per item, as in `json_text`.
    """
    if not merged.conflicts:
        return json_text(merged.file, open_levels=open_levels)
    if not merged.file["entries"]:
        return _whole_conflict(merged, open_levels)
    either = {one.key: one for one in merged.conflicts}
    order = sorted([*merged.file["entries"], *either])
    if order[-1] in either and None in (either[order[-1]].ours, either[order[-1]].theirs):
        last = next(key for key in reversed(order) if key not in either)
        order = [*(key for key in order if key != last), last]
    blocks: dict[str, list[str]] = {}
    for key in order:
        end = "" if key == order[-1] else ","
        if key not in either:
            blocks[key] = _format_entries({key: merged.file["entries"][key]}, open_levels, end)
            continue
        sides = [{} if side is None else {key: side} for side in (either[key].ours, either[key].theirs)]
        blocks[key] = _mark_conflict(*(_format_entries(side, open_levels, end) for side in sides))
    return _with_entries(merged.file, [line for key in order for line in blocks[key]], open_levels)


def _whole_conflict(merged: MergedFile, open_levels: int) -> bytes:
    """Returns a file whose entries are all in conflict: one marked conflict, because each side needs its own commas."""
    ours = {one.key: one.ours for one in merged.conflicts if one.ours is not None}
    theirs = {one.key: one.theirs for one in merged.conflicts if one.theirs is not None}
    lines = _mark_conflict(_format_entries(ours, open_levels, ""), _format_entries(theirs, open_levels, ""))
    return _with_entries(merged.file, lines, open_levels)


def _mark_conflict(ours: list[str], theirs: list[str]) -> list[str]:
    return ["<<<<<<< ours", *ours, "=======", *theirs, ">>>>>>> theirs"]


def _format_entries(entries: Mapping[str, Plain], open_levels: int, end: str) -> list[str]:
    """Returns the lines of JSON that `entries` have inside a file, the last followed by `end`; [] for no entry."""
    if not entries:
        return []
    lines = json_text({"entries": dict(entries)}, open_levels=open_levels).decode().splitlines()[2:-2]
    return [*lines[:-1], f"{lines[-1]}{end}"]


def _with_entries(file: Plain, lines: list[str], open_levels: int) -> bytes:
    """Returns the text of `file` with `lines` in place of its entries."""
    empty = json_text({**file, "entries": {}}, open_levels=open_levels).decode()
    head, _, tail = empty.partition('\n  "entries": {}')
    return "\n".join([head, '  "entries": {', *lines, f"  }}{tail}"]).encode()


def _entries_of(file: Plain) -> Mapping[str, Plain]:
    return file.get("entries", {}) if file else {}


def _without_summary(entry: Plain | None) -> Plain | None:
    return None if entry is None else {name: value for name, value in entry.items() if name != "summary"}


def _collect_ids(entries: list[Plain]) -> set[str]:
    """Returns the ids of all environments, policies and canaries that these entries and their anchors name."""
    names: set[str] = set()
    for entry in entries:
        anchor = entry.get("anchor") or {}
        names |= {entry.get("environment", ""), entry.get("policy", ""), entry.get("canary", "")}
        names |= {anchor.get("environment", "")}
    return names


def _newest_date(entry: Plain) -> str:
    """Returns the date (YYYY-MM-DD) of an entry's last recording, or acceptance (which compiled kernels lack)."""
    accepted = entry.get("accepted")
    days = [one.get("date", "") for one in accepted] if isinstance(accepted, list) else []
    return str(max([entry.get("recorded", ""), *days]))


def _choose_side(ours: Plain | None, theirs: Plain | None, prefer: str) -> str | None:
    """Returns OURS or THEIRS, the side that `prefer` takes; with 'newer' the one with the later date, or the one that
    still has the entry. None if `prefer` is '', or 'newer' and both have the same date."""
    if prefer in (OURS, THEIRS):
        return prefer
    if prefer != NEWER:
        return None
    if ours is None or theirs is None:
        return OURS if theirs is None else THEIRS
    if _newest_date(ours) == _newest_date(theirs):
        return None
    return OURS if _newest_date(ours) > _newest_date(theirs) else THEIRS
