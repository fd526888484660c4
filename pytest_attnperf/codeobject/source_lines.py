"""The source lines behind the instructions that move data or multiply matrices."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PurePath

from pytest_attnperf.codeobject.instructions import CLASSES, Instruction, Place
from pytest_attnperf.records.code import SourceLine

TEXT_CHARACTERS = 120
"""The most that is kept of a source line."""

LISTED_CLASSES = frozenset(
    name
    for name in CLASSES
    if name in ("matrix", "barrier") or name.startswith(("global_", "lds_", "scratch_", "image_"))
)
"""Classes that a source line is listed for."""

_LARGEST_FILE_BYTES = 4 << 20


def source_lines(instructions: Sequence[Instruction], classes: Sequence[str]) -> tuple[SourceLine, ...]:
    """The lines that became instructions of `LISTED_CLASSES`, in order of their first such instruction.

    Code that the compiler gives no single line (line 0), half of the spill code above all, is in no line's counts. The
    text is '' where the file cannot be read.
    """
    counts: dict[Place, Counter[str]] = {}
    for one, name in zip(instructions, classes, strict=True):
        if one.place is not None and one.place[1] > 0 and name in LISTED_CLASSES:
            counts.setdefault(one.place, Counter())[name] += 1
    return tuple(
        SourceLine(PurePath(path).name, line, _text(path, line), _in_order(found))
        for (path, line), found in counts.items()
    )


def without_numbers(lines: Iterable[SourceLine]) -> tuple[SourceLine, ...]:
    """The lines as baselines keep them: numbers move with every edit, so equal texts of one file are one, line 0."""
    merged: dict[tuple[str, str], Counter[str]] = {}
    for line in lines:
        merged.setdefault((line.file, line.text), Counter()).update(line.counts)
    return tuple(SourceLine(file, 0, text, _in_order(counts)) for (file, text), counts in merged.items())


def _in_order(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in CLASSES if counts[name]}


def _text(path: str, line: int) -> str:
    """One line of a regular file of sensible size. The path comes from an object that anybody may have made."""
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE_BYTES:
            return ""
        lines = _lines_of(path, status.st_mtime_ns)
    except (OSError, ValueError):
        return ""
    return lines[line - 1].strip()[:TEXT_CHARACTERS].rstrip() if 0 < line <= len(lines) else ""


@lru_cache(maxsize=64)
def _lines_of(path: str, _modified_ns: int) -> tuple[str, ...]:
    return tuple(Path(path).read_text(encoding="utf-8", errors="replace").split("\n"))
