"""Describes where a change of a kernel's code comes from: settings that differ, and source lines that compile
differently.

Source lines are matched by file and text, because their numbers move with every edit. An edited line counts as one
removed and one added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pytest_attnperf.codeobject.instructions import CLASSES, width_bytes
from pytest_attnperf.records.code import SourceLine

Concerns: TypeAlias = Callable[[str], bool]
"""Returns whether a class of instructions belongs to what is being explained."""

LINES_MAX = 3
"""Most source lines that one finding names."""

TEXT_MAX = 60
"""Most characters of a source line that are quoted."""

ABSENT = "absent"

_ORDER = {name: position for position, name in enumerate(CLASSES)}


@dataclass
class _MatchedLine:
    """One source text on both sides; `line` is its number now, 0 where it is gone."""

    file: str
    text: str
    line: int = 0
    now: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)


def describe_settings_change(now: Mapping[str, str], stored: Mapping[str, str], where: str = "") -> str:
    """Returns settings that differ, stored -> now: 'BLOCK_M 64 -> 128 in configs/prefill.json', with `where` as the
    file; '' where nothing differs."""
    differing = [name for name in sorted(now.keys() | stored.keys()) if now.get(name) != stored.get(name)]
    changes = [f"{name} {stored.get(name, ABSENT)} -> {now.get(name, ABSENT)}" for name in differing]
    return ", ".join(changes) + (f" in {where}" if where and changes else "")


def describe_line_changes(now: Iterable[SourceLine], stored: Iterable[SourceLine], concerns: Concerns) -> str:
    """Returns source lines whose counts of instruction classes in `concerns` differ, largest change first; else ''.

    'prefill.py:87 `k = tl.load(k_ptrs)`: global_load_16B 8 -> 0, global_load_2B 0 -> 64'
    """
    now, stored = tuple(now), tuple(stored)
    if not now or not stored:
        return ""
    changed = [
        (sum(abs(after - before) for _, before, after in counts), line, counts)
        for line in _match_lines(now, stored)
        if (counts := _list_differing(line.now, line.stored, concerns))
    ]
    changed.sort(key=lambda entry: -entry[0])
    return _join_lines(
        f"{_format_place(line)}: {', '.join(f'{name} {before} -> {after}' for name, before, after in counts)}"
        for _, line, counts in changed
    )


def describe_lines_holding(lines: Iterable[SourceLine], concerns: Concerns) -> str:
    """Returns source lines that compiled to instructions of classes in `concerns`, most instructions first; else ''.

    'prefill.py:87 `acc = tl.dot(p, v, acc)`: scratch_load 12, scratch_store 12'
    """
    holding = [
        (sum(counts.values()), line, counts)
        for line in _match_lines(lines, ())
        if (counts := {name: line.now[name] for name in _sort_classes(line.now) if line.now[name] and concerns(name)})
    ]
    holding.sort(key=lambda entry: -entry[0])
    return _join_lines(
        f"{_format_place(line)}: {', '.join(f'{name} {count}' for name, count in counts.items())}"
        for _, line, counts in holding
    )


def list_count_changes(now: Mapping[str, int], stored: Mapping[str, int], concerns: Concerns) -> list[str]:
    """Returns instruction classes in `concerns` whose counts differ, stored -> now, in the order of reports:
    ['global_load_16B 8 -> 0', 'global_load_2B 0 -> 64']."""
    return [f"{name} {before} -> {after}" for name, before, after in _list_differing(now, stored, concerns)]


def format_change(before: str, after: str) -> str:
    """Returns '3 -> 1 waves per SIMD' for '3 waves per SIMD' and '1 wave per SIMD'; where the units differ, both texts
    with ' -> ' between them."""
    (number, _, unit), (other, _, unit_after) = before.partition(" "), after.partition(" ")
    if _make_singular(unit) != _make_singular(unit_after):
        return f"{before} -> {after}"
    return f"{number} -> {other} {max(unit, unit_after, key=len)}".rstrip()


def _make_singular(unit: str) -> str:
    """Returns a unit with its first word in the singular: 'wave per SIMD' for 'waves per SIMD'."""
    word, space, rest = unit.partition(" ")
    return f"{word.removesuffix('s')}{space}{rest}"


def instruction_kind(name: str) -> str:
    """Returns an instruction class without its width: 'global_load' for 'global_load_16B'; unchanged without one."""
    return name.rpartition("_")[0] if width_bytes(name) is not None else name


def join_parts(*parts: str) -> str:
    """Returns the parts that are not empty, joined by '; '."""
    return "; ".join(part for part in parts if part)


def _match_lines(now: Iterable[SourceLine], stored: Iterable[SourceLine]) -> list[_MatchedLine]:
    """Returns both sides' source lines, matched by file and text, in the order of `now`; removed lines come last.

    Lines without known text are kept apart by their numbers only where nothing is stored: stored lines have no numbers.
    """
    found: dict[tuple[str, str, int], _MatchedLine] = {}
    stored = tuple(stored)
    for source in now:
        number = source.line if source.text or not stored else 0
        key = (source.file, source.text, 0 if source.text else number)
        _add_counts(found.setdefault(key, _MatchedLine(source.file, source.text, number)).now, source.counts)
    for source in stored:
        key = (source.file, source.text, 0)
        _add_counts(found.setdefault(key, _MatchedLine(source.file, source.text)).stored, source.counts)
    return list(found.values())


def _add_counts(total: dict[str, int], counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        total[name] = total.get(name, 0) + count


def _list_differing(
    now: Mapping[str, int], stored: Mapping[str, int], concerns: Concerns
) -> list[tuple[str, int, int]]:
    """Returns (class, stored count, count now) of the instruction classes in `concerns` whose counts differ."""
    names = [name for name in _sort_classes(now.keys() | stored.keys()) if concerns(name)]
    counts = [(name, stored.get(name, 0), now.get(name, 0)) for name in names]
    return [(name, before, after) for name, before, after in counts if before != after]


def _sort_classes(names: Iterable[str]) -> list[str]:
    """Returns instruction classes in the order of reports: by kind, the widest of a kind first, unknown kinds last."""
    return sorted(
        names, key=lambda name: (_ORDER.get(instruction_kind(name), len(_ORDER)), -(width_bytes(name) or 0), name)
    )


def _format_place(line: _MatchedLine) -> str:
    """Returns e.g. 'prefill.py:87 `k = tl.load(k_ptrs)`'. A line that only the stored kernel has is without a number.

    Code without a single source line, mainly spill code, has neither number nor text.
    """
    text = line.text if len(line.text) <= TEXT_MAX else f"{line.text[: TEXT_MAX - 3]}..."
    number = f":{line.line}" if line.line else ""
    quoted = f" `{text}`" if text else "" if line.line else " (no single line)"
    return f"{line.file}{number}{quoted}"


def _join_lines(texts: Iterable[str]) -> str:
    listed = list(texts)
    more = len(listed) - LINES_MAX
    rest = [f"and {more} more line{'s' * (more > 1)}"] if more > 0 else []
    return "; ".join([*listed[:LINES_MAX], *rest])
