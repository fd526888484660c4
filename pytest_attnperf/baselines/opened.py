"""A baseline file as a run reads it: found at once, each entry decoded and checked when it is asked for.

Reading every entry of a large store takes 50 times as long as finding where they are (18 s against 0.4 s for 100,000),
and a run asks for few. What is checked on opening is the file's shape, its header, its environments, policies and
canaries, and that no key stands twice but inside an entry; what is in an entry is checked, as `decode` does it, before
anybody sees the entry. Writers read the whole file with `decode`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pytest_attnperf.baselines.schema import (
    BASELINE_SCHEMA,
    UNREADABLE,
    BaselineFile,
    Entry,
    decode,
    require_sound_entry,
    require_sound_tables,
)
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import Fingerprint, ProcessSummary
from pytest_attnperf.records.regular_file import read_regular
from pytest_attnperf.records.unique_keys import require_unique_keys

BYTES_MAX = 1 << 30
"""Of one file; 100,000 entries take about 200 million."""

_ENTRIES = b'\n  "entries": {\n'
"""Where the entries begin in a file as `encode` writes it."""


def content_of(path: Path) -> bytes:
    """The bytes of a baseline file. Raises BaselineError where they cannot be read, or are too many."""
    try:
        return read_regular(path, BYTES_MAX, BaselineError)
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read ({error.strerror})") from error


@dataclass(frozen=True)
class _Scanned:
    """The fields of a `BaselineFile`, its entries as they stand in the text."""

    schema: Any
    suite: str
    arch: str
    product: str
    environments: dict[str, Fingerprint] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    entries: dict[str, msgspec.Raw] = field(default_factory=dict)
    canaries: dict[str, dict[str, tuple[ProcessSummary, ...]]] = field(default_factory=dict)


class OpenedFile:
    """A file's header, tables and keys; an entry is decoded each time that it is read.

    tables   the file without its entries
    """

    def __init__(self, tables: BaselineFile, entries: Mapping[str, msgspec.Raw | Entry], source: str) -> None:
        self.tables = tables
        self._entries, self._source = entries, source

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def entry(self, key: str) -> Entry:
        """The entry of a key that is there. Raises BaselineError, naming it and the field, when it is unsound."""
        entry = self._entries[key]
        if isinstance(entry, Entry):
            return entry
        return _decoded(self.tables, key, bytes(entry), self._source)


def opened(data: bytes, source: str) -> OpenedFile:
    """Open a baseline file's bytes; `source` names it in errors.

    Raises BaselineError as `decode` does, but for what is wrong inside an entry: that is raised when it is read.
    """
    scanned = _scanned(data)
    if scanned is None:
        # Laid out by another hand, or unsound: the slow way finds out which, and says it.
        file = decode(data, source)
        return OpenedFile(file, file.entries, source)
    tables = BaselineFile(
        schema=scanned.schema,
        suite=scanned.suite,
        arch=scanned.arch,
        product=scanned.product,
        environments=scanned.environments,
        policies=scanned.policies,
        canaries=scanned.canaries,
    )
    require_sound_tables(tables, source)
    return OpenedFile(tables, scanned.entries, source)


def _scanned(data: bytes) -> _Scanned | None:
    """None unless it is a file of this schema, laid out as `encode` does it, in which no key can be hidden."""
    try:
        scanned = msgspec.json.decode(data, type=_Scanned)
    except (msgspec.ValidationError, *UNREADABLE):
        return None
    is_ours = type(scanned.schema) is int and scanned.schema == BASELINE_SCHEMA
    return scanned if is_ours and _stands_once(data, scanned.entries) else None


def _stands_once(data: bytes, entries: Mapping[str, msgspec.Raw]) -> bool:
    """Whether no key stands twice in this JSON, what is inside the entries aside.

    The text of the entries that were read must stand in the file, each where the one before it ends: one that a later
    one of the same key has replaced would lie between two of them. Without them the file is small enough to be looked
    at; where something is left behind the last of them, that is no JSON.
    """
    begin = data.find(_ENTRIES)
    position = begin + len(_ENTRIES) - 1
    separator = b"\n"
    for key, raw in entries.items():
        head = separator + b"    " + msgspec.json.encode(key) + b": "
        text = position + len(head)
        if not (data.startswith(head, position) and data.startswith(raw, text)):
            return False
        position = text + len(memoryview(raw))
        separator = b",\n"
    return begin >= 0 and _is_unique(data[: begin + len(_ENTRIES)] + data[position:])


def _is_unique(text: bytes) -> bool:
    try:
        require_unique_keys(text, "")
    except (*UNREADABLE, BaselineError):
        return False
    return True


def _decoded(tables: BaselineFile, key: str, text: bytes, source: str) -> Entry:
    """One entry, sound in itself and in what it names of the tables."""
    try:
        entry = msgspec.json.decode(text, type=Entry)
        require_unique_keys(text, f"{source}: entry {key!r}")
    except msgspec.ValidationError as error:
        raise BaselineError(f"{source}: entry {key!r}: {error}") from error
    except UNREADABLE as error:
        raise BaselineError(
            f"{source}: entry {key!r}: is not readable as JSON ({error}); restore it from version control"
        ) from error
    require_sound_entry(tables, key, entry, source)
    return entry
