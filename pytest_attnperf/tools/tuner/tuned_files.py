"""What a tuning run leaves in its folder: configuration files, the report, and the whole result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.regular_file import read_regular
from pytest_attnperf.reports.text.wide_tables import markdown, terminal
from pytest_attnperf.tools.tuner.text import header_lines, tables
from pytest_attnperf.tuning_records import TuneResult

RESULT, REPORT = "tune.json", "report.md"
BYTES_MAX = 1 << 28


def written(result: TuneResult, out: Path) -> str:
    """Write the files, the report and the whole result under `out`; what the terminal is told.

    Configuration files that an earlier run wrote there and this one does not are removed: nothing in the folder may be
    taken for better that is not. Raises UsageError for a file that would lie outside of it; nothing is written then.
    """
    lines, found = header_lines(result), tables(result)
    paths = [_inside(out, file.path) for file in result.files]
    said = _removed(out, paths)
    for path, file in zip(paths, result.files, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, file.text.encode())
        said.append(f"written: {path}: {file.what}")
    encoded: bytes = msgspec.json.format(msgspec.json.encode(result), indent=1)
    write_atomically(out / RESULT, encoded + b"\n")
    write_atomically(out / REPORT, f"{markdown([*lines, *said], found)}\n".encode())
    return terminal([*lines, *said, f"report: {out / REPORT}; everything: {out / RESULT}"], found)


def _inside(out: Path, name: str) -> Path:
    """Where a file is written. Raises UsageError for a path that leaves the folder."""
    path = out / name
    if Path(name).is_absolute() or not path.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"a tuned file wants to be written to {name!r}, outside of {out}; nothing was written")
    return path


def _removed(out: Path, kept: list[Path]) -> list[str]:
    """Remove what the folder's last result wrote and is not written again, unless somebody has changed it since."""
    said = []
    for name, text in _earlier(out / RESULT):
        try:
            path = _inside(out, name)
            if path in kept or not path.is_file():
                continue
            if path.read_bytes() == text.encode():
                path.unlink()
                said.append(f"removed: {path}: an earlier run wrote it, and this one does not")
            else:
                said.append(f"not removed: {path}: an earlier run wrote it, this one does not, and it was changed")
        except (UsageError, OSError, ValueError):
            continue
    return said


def _earlier(result: Path) -> list[tuple[str, str]]:
    """Paths and texts of the files that a result names; none where it cannot be read."""
    try:
        stored: Any = json.loads(read_regular(result, BYTES_MAX))
        return [
            (file["path"], file["text"]) for file in stored["files"] if isinstance(file["path"] + file["text"], str)
        ]
    except (UsageError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
