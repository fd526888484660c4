"""Where a change of a kernel's code comes from, in words: settings that differ, and source lines that became otherwise.

Source lines are matched by file and text, since their numbers move with every edit; a line that was edited is one that
went and one that came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pytest_attnperf.codeobject.instructions import CLASSES, width_bytes
from pytest_attnperf.records.code import SourceLine

Concerns: TypeAlias = Callable[[str], bool]
"""Whether a class of instructions has to do with what is being explained."""

LINES_MAX = 3
"""Source lines that one finding names."""

TEXT_MAX = 60
"""Characters of a source line that are quoted."""

ABSENT = "absent"

_ORDER = {name: position for position, name in enumerate(CLASSES)}


@dataclass
class _MatchedLine:
    """One source text on both sides; `line` is where it stands now, 0 where it no longer does."""

    file: str
    text: str
    line: int = 0
    now: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)


def describe_settings_change(now: Mapping[str, str], stored: Mapping[str, str], where: str = "") -> str:
    """'BLOCK_M 64 -> 128, BLOCK_N 32 -> 64 in configs/prefill.json'; '' where nothing differs."""
    differing = [name for name in sorted(now.keys() | stored.keys()) if now.get(name) != stored.get(name)]
    changes = [f"{name} {stored.get(name, ABSENT)} -> {now.get(name, ABSENT)}" for name in differing]
    return ", ".join(changes) + (f" in {where}" if where and changes else "")


def describe_line_changes(now: Iterable[SourceLine], stored: Iterable[SourceLine], concerns: Concerns) -> str:
    """Source lines whose counts of these classes differ, those that changed most first; '' where none is known.

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
    """Source lines that became instructions of these classes, those with most first; '' where none is known.

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
    """Classes whose counts differ, the widest first: ['global_load_16B 8 -> 0', 'global_load_2B 0 -> 64']."""
    return [f"{name} {before} -> {after}" for name, before, after in _list_differing(now, stored, concerns)]


def format_change(before: str, after: str) -> str:
    """'3 -> 1 waves per SIMD' of '3 waves per SIMD' and '1 wave per SIMD'; both whole where the units differ."""
    (number, _, unit), (other, _, unit_after) = before.partition(" "), after.partition(" ")
    if _make_singular(unit) != _make_singular(unit_after):
        return f"{before} -> {after}"
    return f"{number} -> {other} {max(unit, unit_after, key=len)}".rstrip()


def _make_singular(unit: str) -> str:
    """'wave per SIMD' of 'waves per SIMD'."""
    word, space, rest = unit.partition(" ")
    return f"{word.removesuffix('s')}{space}{rest}"


def instruction_kind(name: str) -> str:
    """'global_load' of the class 'global_load_16B'; a class without a width is a kind of its own."""
    return name.rpartition("_")[0] if width_bytes(name) is not None else name


def join_parts(*parts: str) -> str:
    """Parts that say something, joined."""
    return "; ".join(part for part in parts if part)


def _match_lines(now: Iterable[SourceLine], stored: Iterable[SourceLine]) -> list[_MatchedLine]:
    """Both sides by file and text, in order of address now; what went comes last.

    Lines whose text is not known can be told apart by their numbers only, which the stored side has not.
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
    """(class, stored, now) of the classes whose counts differ."""
    names = [name for name in _sort_classes(now.keys() | stored.keys()) if concerns(name)]
    counts = [(name, stored.get(name, 0), now.get(name, 0)) for name in names]
    return [(name, before, after) for name, before, after in counts if before != after]


def _sort_classes(names: Iterable[str]) -> list[str]:
    """Classes in the order that reports list them, of one kind the widest first; unknown ones last."""
    return sorted(
        names, key=lambda name: (_ORDER.get(instruction_kind(name), len(_ORDER)), -(width_bytes(name) or 0), name)
    )


def _format_place(line: _MatchedLine) -> str:
    """'prefill.py:87 `k = tl.load(k_ptrs)`'; what only the stored kernel has, has no number.

    Code that the compiler gives no single line, spill code above all, has neither number nor text.
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
