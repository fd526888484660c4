"""Stores baselines of compiled kernels by architecture; merged under a lock, as `store` does with times."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_attnperf.baselines.code_schema import (
    CODE_SCHEMA,
    CodeFile,
    StoredKernel,
    as_stored,
    decode_code_file,
    encode_code_file,
)
from pytest_attnperf.baselines.schema import content_id, to_plain
from pytest_attnperf.baselines.store import file_version, read_content, require_plain_name
from pytest_attnperf.baselines.writing import list_lost_fields, lock_file, refuse_loss
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.code import CODE_SUITE, KernelCode


@dataclass(frozen=True)
class NewKernel:
    """One compiled kernel to be stored; see `StoredKernel`. `policy` is a record, not its id."""

    code: KernelCode
    config: Mapping[str, str]
    compiler: str
    matrix: bool
    policy: Mapping[str, Any]
    recorded: str
    harness_version: str
    commit: str = ""
    accepted: str = ""


@dataclass(frozen=True)
class FoundKernel:
    """A stored kernel with the policy it was recorded under, and its file."""

    kernel: StoredKernel
    policy: dict[str, Any]
    path: Path


class CodeStore:
    """Compiled kernels under one or more roots; an entry of an earlier root hides those of later ones."""

    def __init__(self, *roots: Path) -> None:
        if not roots:
            raise ValueError("a store of compiled kernels needs at least one root folder")
        self.roots = roots
        self._opened: dict[Path, tuple[tuple[int, int], CodeFile]] = {}

    def find(self, arch: str, entry: str) -> FoundKernel | None:
        """Returns the stored kernel of `entry`, '<kernel>/<config>', from the first root that has it; None where none
        has. Raises BaselineError for an invalid file."""
        for root in self.roots:
            path = code_path(root, arch)
            file = self._open(path, arch)
            if file is not None and entry in file.entries:
                return _make_found(file, entry, path)
        return None

    def load(self, arch: str) -> dict[str, FoundKernel]:
        """Returns all stored kernels of an architecture, sorted, by '<kernel>/<config>'; an earlier root hides later
        ones. Raises BaselineError for an invalid file."""
        found: dict[str, FoundKernel] = {}
        for root in reversed(self.roots):
            path = code_path(root, arch)
            file = self._open(path, arch)
            if file is not None:
                found.update({key: _make_found(file, key, path) for key in file.entries})
        return dict(sorted(found.items()))

    def merge(self, root: Path, arch: str, entries: Mapping[str, NewKernel]) -> Path:
        """Writes `entries` (by '<kernel>/<config>') into an architecture's file under `root`; others stay unchanged.

        Returns the file's path. Raises BaselineError, and writes nothing, when the present file is invalid or has
        fields that this version would lose, an entry is of another architecture, or the file stays locked.
        """
        path = code_path(root, arch)
        with lock_file(path):
            data = encode_code_file(_merge_entries(_current_file(path, arch), entries))
            decode_code_file(data, f"the new text of {path}")
            write_atomically(path, data)
        self._opened.pop(path, None)
        return path

    def _open(self, path: Path, arch: str) -> CodeFile | None:
        """Returns the content of a file, cached until its time or size changes; None where there is no file."""
        version = file_version(path)
        if version is None:
            return None
        if path not in self._opened or self._opened[path][0] != version:
            self._opened[path] = (version, _read_file(path, arch)[1])
        return self._opened[path][1]


def code_path(root: Path, arch: str) -> Path:
    """Returns `<root>/<arch>/code_objects.json`. Raises BaselineError when the architecture is no plain file name."""
    return root / require_plain_name("arch", arch) / f"{CODE_SUITE}.json"


def _make_found(file: CodeFile, key: str, path: Path) -> FoundKernel:
    kernel = file.entries[key]
    return FoundKernel(kernel, file.policies[kernel.policy], path)


def _read_file(path: Path, arch: str) -> tuple[bytes, CodeFile]:
    data = read_content(path)
    file = decode_code_file(data, str(path))
    if file.arch != arch:
        raise BaselineError(f"{path}: field `arch` is {file.arch!r}, but its path says {arch!r}: restore it")
    return data, file


def _current_file(path: Path, arch: str) -> CodeFile:
    """Returns the content of a file, or an empty one where there is none. Raises BaselineError if it is invalid, or if
    rewriting it would lose fields that this version does not know."""
    if not path.exists():
        return CodeFile(schema=CODE_SCHEMA, arch=arch)
    data, file = _read_file(path, arch)
    refuse_loss(path, list_lost_fields(data, file, str(path)))
    return file


def _merge_entries(file: CodeFile, entries: Mapping[str, NewKernel]) -> CodeFile:
    policies = {**file.policies, **{content_id(new.policy): to_plain(new.policy) for new in entries.values()}}
    merged = {
        **file.entries,
        **{key: _keep_unchanged(file.entries.get(key), _make_stored(new)) for key, new in entries.items()},
    }
    used = {kernel.policy for kernel in merged.values()}
    return dataclasses.replace(file, policies={key: policies[key] for key in used}, entries=merged)


def _keep_unchanged(old: StoredKernel | None, new: StoredKernel) -> StoredKernel:
    """Returns `old` if only commit, date and version differ, so that a diff shows real changes; else `new`."""
    if old is None:
        return new
    same = dataclasses.replace(new, recorded=old.recorded, commit=old.commit, harness_version=old.harness_version)
    return old if same == old else new


def _make_stored(new: NewKernel) -> StoredKernel:
    return StoredKernel(
        code=as_stored(new.code),
        config=dict(new.config),
        compiler=new.compiler,
        matrix=new.matrix,
        policy=content_id(new.policy),
        recorded=new.recorded,
        commit=new.commit,
        harness_version=new.harness_version,
        accepted=new.accepted,
    )
