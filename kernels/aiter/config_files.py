"""Finds aiter's own attention configurations, reads them strictly, and rewrites a file with one bucket changed.

A file serves one architecture. Under 'fwd' it has a bucket per kind of problem; `_get_config` picks one only by element
type and head dimensions, so a bucket serves every length, head count and mask. The file's path depends on the version
(see `mha_source`), its content does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels import json_text
from kernels.aiter.mha_source import (
    CONFIGS,
    DEVICES,
    SOURCE_VARIABLE,
    archs_with_config,
    bucket_of,
    config_file,
    source_root,
)
from kernels.aiter.package import find_installed
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.tuning_records import Value
    from pytest_attnperf.workloads.prefill import Prefill
    from pytest_attnperf.workloads.varlen import Varlen

FOLDER = "aiter_configs"
"""Folder of the results: aiter's configurations, in the path layout of every version that reads them."""

NEUTRAL: Mapping[str, Value] = {"matrix_instr_nonkdim": 0, "kpack": 1}
"""Options that aiter's files may leave out -> Triton's default (HIPOptions)."""


@dataclass(frozen=True)
class AiterFile:
    """The attention configurations of one architecture.

    name       below aiter's folder of configurations, e.g. 'gfx942-MHA-DEFAULT.json'
    text       the file's text, unchanged
    buckets    bucket name -> values, those under 'fwd'
    """

    name: str
    text: str
    buckets: Mapping[str, Mapping[str, Value]]

    @property
    def relative_path(self) -> str:
        """The file's path from the root of aiter's sources."""
        return f"{CONFIGS}/{self.name}"


def aiter_root() -> Path:
    """Returns the folder that holds the package `aiter`: the installed one, else the tree that AITER_SOURCE names.

    Raises UsageError where there is neither.
    """
    found = find_installed()
    root = found.folder.parent if found is not None else source_root()
    if root is None:
        raise UsageError(
            f"aiter's configurations cannot be found: ROCm/aiter is not installed and {SOURCE_VARIABLE} is not set; "
            f"install it, or set {SOURCE_VARIABLE} to the root of a checkout (the folder that holds aiter/)"
        )
    return root


def aiter_file(arch: str) -> AiterFile:
    """Returns aiter's attention configuration file of an architecture, parsed. Raises UsageError if it is missing or
    malformed."""
    root = aiter_root()
    path = config_file(root, arch)
    if path is None:
        known = ", ".join(archs_with_config(root)) or "none"
        raise UsageError(f"{root / CONFIGS} has no attention configuration for {arch}; it has {known}; update aiter")
    text, document = json_text.read_json(path, UsageError)
    forward = document.get("fwd") if isinstance(document, dict) else None
    if not isinstance(forward, dict) or not forward:
        raise UsageError(f"{path}: must be an object that has buckets under 'fwd'; take the file from ROCm/aiter")
    for name, bucket in forward.items():
        _require_bucket(f"{path}: fwd.{name}", bucket)
    return AiterFile(path.relative_to(root / CONFIGS).as_posix(), text, forward)


def serving_bucket(file: AiterFile, workload: Prefill | Varlen, arch: str) -> str:
    """Returns the name of the bucket in the file that aiter takes for a workload. Raises UsageError if the file has no
    such bucket."""
    name = bucket_of(workload, arch, file.buckets)
    if name not in file.buckets:
        known = ", ".join(file.buckets)
        raise UsageError(f"{file.relative_path} has no bucket {name!r}, which serves {workload.id}; it has {known}")
    return name


def to_bucket_values(values: Mapping[str, Value], bucket: Mapping[str, Value]) -> dict[str, Value]:
    """Returns a candidate's values to write into a bucket. Leaves out the options that equal Triton's default and that
    the bucket does not have."""
    return {name: value for name, value in values.items() if name in bucket or NEUTRAL.get(name) != value}


def replace_bucket(text: str, bucket: str, values: Mapping[str, Value]) -> str:
    """Returns the file's text with these values in 'fwd.<bucket>'. Present keys keep their order, new keys follow, and
    all other text stays the same."""
    forward, _ = json_text.find_members(text, json_text.find_start(text))["fwd"]
    start, _ = json_text.find_members(text, forward)[bucket]
    held = json_text.find_members(text, start)
    last = max(end for _, end in held.values())
    gap = text[start + 1 : text.index('"', start)]
    added = "".join(
        f",{gap}{_format_value(name)}: {_format_value(values[name])}" for name in values if name not in held
    )
    changed = text[:last] + added + text[last:]
    for name, (begin, end) in sorted(held.items(), key=lambda item: -item[1][0]):
        if name in values:
            changed = changed[:begin] + _format_value(values[name]) + changed[end:]
    return changed


def list_file_names(file: AiterFile, arch: str) -> list[str]:
    """Returns the file names, below aiter's folder of configurations, that any version of aiter reads for `arch`;
    `file.name` is one of them."""
    device = f"{DEVICES[arch]}-MHA-DEFAULT.json" if arch in DEVICES else ""
    names = [f"{arch}-MHA-DEFAULT.json", f"{arch}/triton/attention/mha/DEFAULT.json"]
    return [*names, device] if file.name == device else names


def _require_bucket(where: str, bucket: Any) -> None:
    if not isinstance(bucket, dict) or not bucket:
        raise UsageError(f"{where} must be an object of values, got {str(bucket)[:40]!r}")
    for name, value in bucket.items():
        if type(value) not in (int, bool) or not 0 <= value <= 2**31 - 1:
            raise UsageError(f"{where} has {name} = {str(value)[:40]!r}, must be a whole number, true or false")
    if lacking := [name for name in ("BLOCK_M", "BLOCK_N") if name not in bucket]:
        raise UsageError(f"{where} has no {', '.join(lacking)}; take the file from ROCm/aiter")


def _format_value(value: object) -> str:
    return json.dumps(value)
