"""Reads baseline files in a run: finds them by arch, product and suite, and decodes single entries on demand.

Decoding every entry of a large store takes 50 times as long as locating them (18 s against 0.4 s for 100,000), and a
run needs few. Opening a file checks its shape, header, environments, policies and canaries, and that there is no
duplicate key outside of the entries. An entry is checked, as `decode_baseline` does it, before it is returned. Writers
read the whole file with `decode_baseline` (`baselines.writing`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from pytest_attnperf.baselines.schema import (
    BASELINE_SCHEMA,
    UNREADABLE,
    BaselineFile,
    Entry,
    decode_baseline,
    require_sound_entry,
    require_sound_tables,
)
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import Fingerprint, ProcessSummary
from pytest_attnperf.records.regular_file import read_regular
from pytest_attnperf.records.unique_keys import require_unique_keys
from pytest_attnperf.stats.card_components import CardNoise, is_on_several_cards
from pytest_attnperf.stats.noise import NoiseModel, card_noise

_Version = tuple[int, int]

_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

BYTES_MAX = 1 << 30
"""Largest size of one file; 100,000 entries take about 200 million bytes."""

_ENTRIES = b'\n  "entries": {\n'
"""Start of the entries in a file as `encode_baseline` writes it."""


@dataclass(frozen=True)
class StoredEntry:
    """A stored entry with the environment and policy it was recorded under, and its file.

    canary   processes of each canary that were measured with it; empty where none was
    """

    entry: Entry
    fingerprint: Fingerprint
    policy: dict[str, Any]
    path: Path
    canary: Mapping[str, tuple[ProcessSummary, ...]] = field(default_factory=dict)


class BaselineStore:
    """Baselines under one or more roots; an entry of an earlier root hides those of later ones."""

    def __init__(self, *roots: Path) -> None:
        if not roots:
            raise ValueError("a baseline store needs at least one root folder")
        self.roots = roots
        self._opened: dict[Path, tuple[_Version, OpenedFile]] = {}
        self._cards: dict[tuple[str, str], CardNoise | None] = {}
        self._noise: dict[tuple[str, str, str], tuple[tuple[_Version | None, ...], NoiseModel]] = {}

    def find(self, arch: str, product: str, suite: str, entry: str) -> StoredEntry | None:
        """Returns the stored entry of a case (key `CaseKey.entry`) from the first root that has it; None where none
        has.

        Raises BaselineError for an invalid entry or file; does not check other entries.
        """
        for root in self.roots:
            path = baseline_path(root, arch, product, suite)
            file = self._open(path, arch, product, suite)
            if file is not None and entry in file:
                return _make_stored_entry(file, entry, path)
        return None

    def load(self, arch: str, product: str, suite: str) -> dict[str, StoredEntry]:
        """Returns all entries of a suite on a product, by `CaseKey.entry`; an earlier root hides later ones. Raises
        BaselineError for an invalid file."""
        return dict(self._iterate_entries(arch, product, suite))

    def noise_model(self, arch: str, product: str, suite: str) -> NoiseModel:
        """Returns the noise between processes of unchanged code, pooled over a suite's stored cases on one product.

        It includes the noise between GPUs, from cases of this suite that were recorded on several GPUs, else of all
        suites. Computed again only when a file of the suite has changed. Raises BaselineError for an invalid file.
        """
        where = (arch, product, suite)
        versions = tuple(file_version(baseline_path(root, *where)) for root in self.roots)
        if where not in self._noise or self._noise[where][0] != versions:
            model = _pool_noise(self._iterate_entries(*where))
            if not model.has_cards:
                model = model.with_cards(self._cards_elsewhere(arch, product))
            self._noise[where] = (versions, model)
        return self._noise[where][1]

    def _cards_elsewhere(self, arch: str, product: str) -> CardNoise | None:
        """Returns the noise between cards, from the cases of all suites of a product; None if none is stored from
        several cards. Cached after the first call; ignores invalid files."""
        if (arch, product) not in self._cards:
            wide: dict[str, tuple[ProcessSummary, ...]] = {}
            for suite in self.list_suites(arch, product):
                with contextlib.suppress(BaselineError):
                    for key, found in self._iterate_entries(arch, product, suite):
                        if is_on_several_cards(found.entry.processes):
                            wide[f"{suite}/{key}"] = _without_blocks(found)
            self._cards[arch, product] = card_noise(wide)
        return self._cards[arch, product]

    def _iterate_entries(self, arch: str, product: str, suite: str) -> Iterator[tuple[str, StoredEntry]]:
        """Yields (key, entry) of a suite's stored entries, sorted by key; decodes one at a time and caches none."""
        files: dict[str, tuple[OpenedFile, Path]] = {}
        for root in reversed(self.roots):
            path = baseline_path(root, arch, product, suite)
            file = self._open(path, arch, product, suite)
            if file is not None:
                files |= dict.fromkeys(file, (file, path))
        for key in sorted(files):
            yield key, _make_stored_entry(files[key][0], key, files[key][1])

    def list_suites(self, arch: str, product: str) -> list[str]:
        """Returns the names of the suites that have a baseline file for a product, sorted."""
        folders = (
            root / require_plain_name("arch", arch) / require_plain_name("product", product) for root in self.roots
        )
        return sorted({path.stem for folder in folders for path in folder.glob("*.json")})

    def list_products(self, arch: str, suite: str, entry: str = "") -> list[str]:
        """Returns the names of the products of an architecture for which this suite has a baseline file, sorted; with
        `entry` (`CaseKey.entry`) only those whose file has it. Raises BaselineError for an invalid file then."""
        name = f"{require_plain_name('suite', suite)}.json"
        folders = (root / require_plain_name("arch", arch) for root in self.roots)
        products = sorted({path.parent.name for folder in folders for path in folder.glob(f"*/{name}")})
        return [product for product in products if not entry or self.find(arch, product, suite, entry) is not None]

    def forget(self, path: Path) -> None:
        """Drops `path`, which has just been written, from the cache: the next reading opens it again."""
        self._opened.pop(path, None)

    def _open(self, path: Path, arch: str, product: str, suite: str) -> OpenedFile | None:
        """Returns the opened baseline file, cached until its time or size changes; None where there is no file. Raises
        BaselineError if it is invalid, or its arch, product or suite are not those of its path."""
        version = file_version(path)
        if version is None:
            return None
        if path not in self._opened or self._opened[path][0] != version:
            file = open_baseline(read_content(path), str(path))
            require_place(file.tables, path, arch, product, suite)
            self._opened[path] = (version, file)
        return self._opened[path][1]


def _make_stored_entry(file: OpenedFile, key: str, path: Path) -> StoredEntry:
    entry, tables = file.read_entry(key), file.tables
    return StoredEntry(
        entry,
        tables.environments[entry.environment],
        tables.policies[entry.policy],
        path,
        tables.canaries.get(entry.canary, {}),
    )


def _pool_noise(stored: Iterable[tuple[str, StoredEntry]]) -> NoiseModel:
    """Returns the noise between processes over these entries; keeps process summaries, not blocks, in memory."""
    processes: dict[str, tuple[ProcessSummary, ...]] = {}
    bounds: dict[str, str] = {}
    for key, found in stored:
        processes[key] = _without_blocks(found)
        bounds[key] = found.entry.bound
    return NoiseModel.from_processes(processes, bounds=bounds)


def _without_blocks(found: StoredEntry) -> tuple[ProcessSummary, ...]:
    return tuple(dataclasses.replace(process, block_us=()) for process in found.entry.processes)


def baseline_path(root: Path, arch: str, product: str, suite: str) -> Path:
    """Returns `<root>/<arch>/<product>/<suite>.json`. Raises BaselineError when a part is no plain file name."""
    return (
        root
        / require_plain_name("arch", arch)
        / require_plain_name("product", product)
        / f"{require_plain_name('suite', suite)}.json"
    )


def require_plain_name(kind: str, name: str) -> str:
    """Returns `name`. Raises BaselineError naming `kind` if it has others than letters, digits, '_', '.', '-'."""
    if not _COMPONENT.fullmatch(name):
        raise BaselineError(
            f"{kind} {name!r} cannot be part of a baseline's path: use letters, digits, '_', '.' and '-', "
            "and begin with a letter, a digit or '_'"
        )
    return name


def file_version(path: Path) -> _Version | None:
    """Returns a file's (time of change in ns, size in bytes), None without a file. Raises BaselineError if
    unreadable."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read ({error.strerror})") from error
    return status.st_mtime_ns, status.st_size


def require_place(file: BaselineFile, path: Path, arch: str, product: str, suite: str) -> None:
    """Raises BaselineError if the field arch, product or suite in `file` is not the given one, that of its path."""
    for name, expected in (("arch", arch), ("product", product), ("suite", suite)):
        if getattr(file, name) != expected:
            raise BaselineError(
                f"{path}: field `{name}` is {getattr(file, name)!r}, but its path says {expected!r}: restore it"
            )


def read_content(path: Path) -> bytes:
    """Returns a baseline file's bytes. Raises BaselineError if it is unreadable, not regular, or above BYTES_MAX."""
    try:
        return read_regular(path, BYTES_MAX, BaselineError)
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read ({error.strerror})") from error


@dataclass(frozen=True)
class _Scanned:
    """The fields of a `BaselineFile`, with its entries as undecoded text."""

    schema: Any
    suite: str
    arch: str
    product: str
    environments: dict[str, Fingerprint] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    entries: dict[str, msgspec.Raw] = field(default_factory=dict)
    canaries: dict[str, dict[str, tuple[ProcessSummary, ...]]] = field(default_factory=dict)


class OpenedFile:
    """A file's header, tables and keys; an entry is decoded each time it is read.

    tables   the file without its entries
    """

    def __init__(self, tables: BaselineFile, entries: Mapping[str, msgspec.Raw | Entry], source: str) -> None:
        self.tables = tables
        self._entries, self._source = entries, source

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def read_entry(self, key: str) -> Entry:
        """Returns the entry of an existing key, decoded now. Raises BaselineError, naming key and field, if invalid."""
        entry = self._entries[key]
        if isinstance(entry, Entry):
            return entry
        return _decode_entry(self.tables, key, bytes(entry), self._source)


def open_baseline(data: bytes, source: str) -> OpenedFile:
    """Reads a baseline file's header, tables and keys, and leaves entries undecoded; `source` names the file in errors.

    Raises BaselineError if the file is invalid; errors inside an entry are mostly raised only when it is read.
    """
    scanned = _scan_file(data)
    if scanned is None:
        # Formatted differently, or invalid: the slow way finds out which, and raises for it.
        file = decode_baseline(data, source)
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


def _scan_file(data: bytes) -> _Scanned | None:
    """Returns the file with undecoded entries; None if it has another schema, another format than `encode_baseline`'s,
    or a duplicate key: then it must be decoded whole."""
    try:
        scanned = msgspec.json.decode(data, type=_Scanned)
    except (msgspec.ValidationError, *UNREADABLE):
        return None
    is_ours = type(scanned.schema) is int and scanned.schema == BASELINE_SCHEMA
    return scanned if is_ours and _stands_once(data, scanned.entries) else None


def _stands_once(data: bytes, entries: Mapping[str, msgspec.Raw]) -> bool:
    """Returns whether no entry of this file, and no field outside its entries, has a duplicate key.

    The texts of `entries`, as decoded, must follow each other in the file without a gap: a gap would be an entry that a
    later one of the same key replaced. The file without entries is small enough to check completely; anything left
    after the last entry makes it invalid JSON.
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


def _decode_entry(tables: BaselineFile, key: str, text: bytes, source: str) -> Entry:
    """Returns one decoded entry. Raises BaselineError if it is invalid, or names an environment, policy or canary that
    `tables` lacks."""
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
