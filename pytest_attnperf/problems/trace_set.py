"""Reads a folder of definitions, workloads and solutions, as flashinfer-trace and SOL-ExecBench lay them out.

A file that cannot be used is an `UnusableFile`, so that it fails as a test of its own and the others run.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pytest_attnperf.errors import UsageError
from pytest_attnperf.problems.trace_schema import (
    TraceDefinition,
    TraceLine,
    TraceSolution,
    TraceWorkload,
    check_definition,
    check_solution,
    check_workload,
    read_record,
)
from pytest_attnperf.records.regular_file import describe_os_error, read_regular
from pytest_attnperf.reports.text.figures import one_line

RECORD_BYTES_MOST = 16 << 20
LINES_BYTES_MOST = 256 << 20
"""Most bytes of a definition or solution, and of a file of workloads. The largest public ones have 0.1 and 0.05 MB."""

FILES_MOST = 100_000
FOLDERS = ("definitions", "workloads", "solutions")
"""Folders that are read where the first exists; else the whole folder is, as for the folder of one problem."""


@dataclass(frozen=True)
class UnusableFile:
    """A file, or a line of one, that cannot be used: `where` it is, and `why` not."""

    where: str
    why: str


@dataclass
class TraceSet:
    """What a folder holds. Files are relative to `root`.

    definitions   by name: (the file, the definition)
    workloads     by the definition's name
    solutions     by the definition's name: (the file, the solution)
    """

    root: Path
    definitions: dict[str, tuple[Path, TraceDefinition]] = field(default_factory=dict)
    workloads: dict[str, list[TraceWorkload]] = field(default_factory=dict)
    solutions: dict[str, list[tuple[Path, TraceSolution]]] = field(default_factory=dict)
    faults: list[UnusableFile] = field(default_factory=list)

    def add_record(self, path: Path) -> None:
        """Reads a definition or a solution; notes a fault for one that cannot be used, ignores any other JSON."""
        where = self.name(path)
        try:
            data = read_regular(path, RECORD_BYTES_MOST)
            fields = _read_fields(data, where)
            if "reference" in fields:
                self._add_definition(path, read_record(data, TraceDefinition, where))
            elif "sources" in fields:
                self._add_solution(path, read_record(data, TraceSolution, where))
        except (UsageError, OSError) as error:
            self.note_fault(where, error)

    def add_workloads(self, path: Path) -> None:
        """Reads the workloads of a JSONL file; a line without the definition's name is of the one beside the file."""
        where = self.name(path)
        try:
            lines = read_regular(path, LINES_BYTES_MOST).splitlines()
        except (UsageError, OSError) as error:
            self.note_fault(where, error)
            return
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    self._add_line(path, line, f"{where}:{number}")
                except UsageError as error:
                    self.note_fault(f"{where}:{number}", error)

    def name(self, path: Path) -> str:
        """Returns a file's name relative to the root, for messages."""
        return one_line(path.relative_to(self.root).as_posix())

    def note_fault(self, where: str, error: Exception) -> None:
        """Remembers that a file or line cannot be used."""
        why = describe_os_error(error) if isinstance(error, OSError) else str(error)
        self.faults.append(UnusableFile(where, why.removeprefix(f"{where}: ")))

    def _add_definition(self, path: Path, one: TraceDefinition) -> None:
        check_definition(one)
        if one.name in self.definitions:
            other = self.name(self.definitions[one.name][0])
            raise UsageError(f"defines {one.name[:80]!r}, as {other} does; keep one of them")
        self.definitions[one.name] = (path, one)

    def _add_solution(self, path: Path, one: TraceSolution) -> None:
        check_solution(one)
        others = self.solutions.setdefault(one.definition, [])
        if same := [self.name(other) for other, known in others if known.name == one.name]:
            raise UsageError(f"is a solution {one.name[:80]!r} of {one.definition[:80]!r}, as {same[0]} is; rename one")
        others.append((path, one))

    def _add_line(self, path: Path, line: bytes, where: str) -> None:
        if b'"workload"' in line:
            read = read_record(line, TraceLine, where)
            if not read.is_workload:
                return
            name, one = read.definition, read.workload
        else:
            name, one = self._definition_beside(path), read_record(line, TraceWorkload, where)
        if name not in self.definitions:
            raise UsageError(f"names the definition {name[:80]!r}, which no readable file defines")
        check_workload(one, self.definitions[name][1])
        known = self.workloads.setdefault(name, [])
        if any(other.uuid == one.uuid for other in known):
            raise UsageError(f"the workload {one.uuid[:80]!r} of {name[:80]!r} stands twice")
        known.append(one)

    def _definition_beside(self, path: Path) -> str:
        beside = [name for name, (file, _) in self.definitions.items() if file.parent == path.parent]
        if len(beside) != 1:
            raise UsageError(f"names no definition, and {len(beside)} lie in its folder; add the field 'definition'")
        return beside[0]


def read_trace_set(folder: str | os.PathLike[str]) -> TraceSet:
    """Reads all definitions, then workloads and solutions below `folder`. Raises UsageError if it is no folder, or
    holds more than FILES_MOST files."""
    root = Path(folder).resolve()
    if not root.is_dir():
        raise UsageError(f"{root} is no folder; name one with definitions/, workloads/ and solutions/")
    tops = [root / name for name in FOLDERS] if (root / FOLDERS[0]).is_dir() else [root]
    found = TraceSet(root)
    files = sorted(_list_files(tops))
    for path in files:
        if path.suffix == ".json":
            found.add_record(path)
    for path in files:
        if path.suffix == ".jsonl":
            found.add_workloads(path)
    for name, solutions in found.solutions.items():
        if name not in found.definitions:
            for path, _ in solutions:
                found.note_fault(found.name(path), UsageError(f"solves {name[:80]!r}, which no readable file defines"))
    return found


def _read_fields(data: bytes, where: str) -> Collection[str]:
    """Returns the names of a JSON object's fields; () for another value. Raises UsageError for what is no JSON."""
    try:
        read = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError(f"{where}: is no JSON ({one_line(str(error))})") from None
    return read.keys() if isinstance(read, dict) else ()


def _list_files(tops: list[Path]) -> Iterator[Path]:
    count = 0
    for top in tops:
        for folder, inner, names in os.walk(top):
            inner[:] = [name for name in inner if not name.startswith(".")]
            for name in names:
                if name.endswith((".json", ".jsonl")):
                    count += 1
                    if count > FILES_MOST:
                        raise UsageError(f"{top.parent} holds more than {FILES_MOST} files; name a smaller folder")
                    yield Path(folder, name)
