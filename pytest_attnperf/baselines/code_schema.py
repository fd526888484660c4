"""The format of `baselines/<arch>/code_objects.json`, which stores compiled kernels; reads, checks and writes it.

Format history: 1 = first published form.

Entries are by '<kernel>/<config>'. Source lines are stored as text without numbers, which change with every edit. Every
source line, register and size has a line of its own in the file. Policies are stored once under a hash of their
content.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pytest_attnperf.baselines.schema import json_text, named_errors, require_ids, require_schema, to_plain
from pytest_attnperf.codeobject.line_table import without_numbers
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.records.unique_keys import require_unique_keys

CODE_SCHEMA = 1

OPEN_LEVELS = 4
"""JSON levels with one line per item: the file, its entries, an entry, its code. Deeper values stand on one line."""

NUMBER_MAX = 2**53
"""Sizes and counts from here on are damage, and arithmetic with them would not be exact."""


@dataclass(frozen=True)
class StoredKernel:
    """One compiled kernel as stored.

    config     block sizes and options it was compiled with; `compiler` made it: 'triton 3.9.0'
    matrix     whether it promised matrix instructions
    policy     key of the file's `policies`
    recorded   date, YYYY-MM-DD; `commit` the revision of the kernels
    accepted   the reason for its spills and scratch, '' where it has none
    """

    code: KernelCode
    config: dict[str, str]
    compiler: str
    matrix: bool
    policy: str
    recorded: str
    commit: str = ""
    harness_version: str = ""
    accepted: str = ""


@dataclass(frozen=True)
class CodeFile:
    """All compiled kernels of one architecture."""

    schema: int
    arch: str
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    entries: dict[str, StoredKernel] = field(default_factory=dict)


def entry_of(key: CaseKey) -> str:
    """Returns '<kernel>/<config>', the key of a compiled kernel in its architecture's baseline file."""
    return f"{key.backend}/{key.workload}"


def decode_code_file(data: bytes, source: str) -> CodeFile:
    """Decodes the bytes of a baseline file of compiled kernels; `source` names it in errors.

    Raises BaselineError naming the field for anything but a valid file of this schema: truncated or malformed JSON, a
    newer schema, a wrong type, an impossible count, another architecture's kernel, an id that does not match its
    content, or a duplicate key.
    """
    require_schema(data, source, CODE_SCHEMA)
    with named_errors(data, source, StoredKernel):
        file = msgspec.json.decode(data, type=CodeFile)
        require_unique_keys(data, source)
    require_ids("policies", file.policies, source)
    for key, kernel in file.entries.items():
        problem = _find_problem(file, key, kernel)
        if problem:
            raise BaselineError(f"{source}: entry {key!r}: {problem}")
    return file


def encode_code_file(file: CodeFile) -> bytes:
    """Returns a file's JSON text: deterministic, sorted, a line per field and source line, a newline at the end."""
    return json_text(to_plain(file), open_levels=OPEN_LEVELS)


def as_stored(code: KernelCode) -> KernelCode:
    """Returns the kernel as baselines keep it: without its source lines' numbers, which change with every edit."""
    loop = code.key_loop and dataclasses.replace(code.key_loop, heaviest=())
    return dataclasses.replace(code, lines=without_numbers(code.lines), key_loop=loop)


def _find_problem(file: CodeFile, key: str, kernel: StoredKernel) -> str:
    """Returns what is wrong with an entry though its types are right, e.g. a negative count; '' where it is valid."""
    code = kernel.code
    if key.count("/") != 1 or not all(key.split("/")):
        return "the key is not '<kernel>/<config>'"
    if code.arch != file.arch:
        return f"field `code.arch` is {code.arch!r}, but the file's `arch` is {file.arch!r}"
    if kernel.policy not in file.policies:
        return f"field `policy` names {kernel.policy!r}, which is not in `policies`"
    if code.wave_size not in (32, 64):
        return f"field `code.wave_size` is {code.wave_size}, expected 32 or 64"
    for part in dataclasses.fields(code):
        value = getattr(code, part.name)
        if type(value) is int and not 0 <= value < NUMBER_MAX:
            return f"field `code.{part.name}` is {_format_number(value)}, expected 0 or more"
    named: list[tuple[str, Mapping[str, int]]] = [("instructions", code.instructions), ("in_loops", code.in_loops)]
    named += [(f"lines[{index}].counts", line.counts) for index, line in enumerate(code.lines)]
    for name, counts in named:
        for kind, count in counts.items():
            if not 0 <= count < NUMBER_MAX:
                return f"field `code.{name}` counts {_format_number(count)} of {kind!r}, expected 0 or more"
    return ""


def _format_number(value: int) -> str:
    """Returns a number as text; one of 16 or more digits as 'about 2^N'."""
    return str(value) if abs(value) < 10**15 else f"about {'-' if value < 0 else ''}2^{value.bit_length()}"
