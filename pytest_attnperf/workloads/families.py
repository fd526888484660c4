"""The op families by name, and functions that read workloads from a command line or a file."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pytest_attnperf.errors import UnknownNameError, UsageError, WorkloadError
from pytest_attnperf.records.listing import find_class_place
from pytest_attnperf.records.regular_file import read_regular
from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.bandwidth import Bandwidth
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.block import Block
from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.class_checks import require_class, require_grammar
from pytest_attnperf.workloads.decode import Decode
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import quote_short
from pytest_attnperf.workloads.gemm import Gemm
from pytest_attnperf.workloads.layernorm import LayerNorm
from pytest_attnperf.workloads.mixed import Mixed
from pytest_attnperf.workloads.mla import Mla
from pytest_attnperf.workloads.mla_block import MlaBlock
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.rope import Rope
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.softmax import Softmax
from pytest_attnperf.workloads.varlen import Varlen
from pytest_attnperf.workloads.varlen_backward import VarlenBackward
from pytest_attnperf.workloads.weighted_values import WeightedValues

FILE_BYTES_MAX = 64_000_000
"""Largest size of a file of workloads, in bytes: a hundred thousand lines have some 10 MB."""
TEXT_MAX = 20_000
"""Largest number of characters of one workload: one of 1,000 requests has about 10,000."""


TRITON = "triton"
"""First word of the names of this repository's Triton backends."""


@dataclass(frozen=True)
class Family:
    """One op family: `parse` reads an id, `parse_line` reads `b=1,s=512,...`; both raise WorkloadError.

    kind    the class of its workloads; None if a project created it without `of`
    """

    name: str
    parse: Callable[[str], Workload]
    parse_line: Callable[[str], Workload]
    description: str = ""
    kind: type[FamilyWorkload] | None = None

    @classmethod
    def of(cls, kind: type[FamilyWorkload], description: str) -> Family:
        """Returns the family of a workload class. The class may lack anything but its grammar: `Families.get` and
        `Families.require_classes` report that. Raises UsageError without a grammar."""
        return cls(require_grammar(kind).family, kind.parse, kind.parse_line, description, kind)

    @property
    def place(self) -> str:
        """'FILE:LINE: CLASS: ' of its class, for messages; '' if it has none."""
        return f"{find_class_place(self.kind)}: {self.kind.__name__}: " if self.kind else ""


BUILT_IN = (
    Family.of(Prefill, "attention over whole sequences"),
    Family.of(Varlen, "attention over packed sequences"),
    Family.of(Backward, "gradients of attention"),
    Family.of(VarlenBackward, "gradients of packed sequences"),
    Family.of(Mixed, "attention of a serving step over a paged cache"),
    Family.of(Decode, "attention of new tokens over a cache"),
    Family.of(Gemm, "matrix multiplication"),
    Family.of(Softmax, "softmax of rows"),
    Family.of(RmsNorm, "RMSNorm of rows, optionally of a sum with a residual"),
    Family.of(LayerNorm, "LayerNorm of rows, optionally with a residual"),
    Family.of(Rope, "rotary position embedding of queries and keys"),
    Family.of(Bandwidth, "copy, read, write and triad of arrays"),
    Family.of(Mla, "multi-head latent attention"),
    Family.of(QkScores, "scores of unfused attention"),
    Family.of(CausalMask, "causal mask over scores, in place"),
    Family.of(RowSoftmax, "weights of unfused attention from its scores"),
    Family.of(WeightedValues, "values weighted by attention"),
    Family.of(Block, "a whole attention layer, with its projections and its cache"),
    Family.of(MlaBlock, "a whole layer of latent attention, with its projections and its caches"),
)


class Families:
    """Op families by name: ours, and those a project adds in `pytest_attnperf_register_workloads`."""

    def __init__(self, families: Iterable[Family] = BUILT_IN) -> None:
        self._families: dict[str, Family] = {}
        for family in families:
            self.add(family)

    def add(self, family: Family) -> None:
        """Registers a family. Raises UsageError for what is no Family, for a name with a hyphen (ids are split there)
        and for a known name."""
        _require_family(family)
        if not family.name or "-" in family.name:
            raise UsageError(
                f"{family.place}family name {family.name!r} must be one word without hyphens: ids start with it"
            )
        if (other := self._families.get(family.name)) is not None:
            if family.kind and family.kind is other.kind:
                raise UsageError(f"{family.place}family {family.name!r} is listed twice; remove one of the lines")
            raise UsageError(
                f"{family.place}family {family.name!r} is registered twice, before by "
                f"{other.place or 'a family without a class: '}give one of them another name"
            )
        self._families[family.name] = family

    def require_classes(self) -> None:
        """Raises UsageError, with file and line, for the first class of a family that lacks something."""
        for family in self:
            if family.kind:
                require_class(family.kind)

    def get(self, name: str) -> Family:
        """Returns the family of that name. Raises UnknownNameError listing the existing names, and UsageError, with
        file and line, if its class lacks something."""
        if name not in self._families:
            raise UnknownNameError("family", name, self._families)
        family = self._families[name]
        if family.kind:
            require_class(family.kind)
        return family

    def reason_no_triton(self, name: str) -> str:
        """Returns '; family X has no Triton backend yet: <reason>', to append to a message; '' unless the family states
        a reason. `name` need not be the name of a family."""
        family = self._families.get(name)
        why = family.kind.NO_TRITON_YET if family and family.kind else ""
        return f"; family {name} has no Triton backend yet: {why}" if why else ""

    def parse_workload(self, text: str) -> Workload:
        """Returns the workload of an id, whose first word names the family. Raises WorkloadError for a malformed or too
        long id, and the errors of `get`."""
        if len(text) > TEXT_MAX:
            raise WorkloadError(f"a workload id has at most {TEXT_MAX} characters: {quote_short(text)}")
        return self.get(text.split("-")[0]).parse(text)

    def require_text(self, text: str, names: Collection[str]) -> None:
        """Raises WorkloadError if `text` (see `workloads_from_text`) is a workload of no family: the error of that one
        of the families `names` which knows most of its words."""
        named, dash, _ = text.partition("-")
        if dash and "=" not in text and not os.path.exists(text):
            self.get(named)  # an id begins with its family: another word is not a field of some family
        failed: list[tuple[int, WorkloadError]] = []
        for family in self:
            error = _find_error(text, family)
            if error is None:
                return
            if family.name in names:
                failed.append((_count_known_words(text, family), error))
        if failed:
            raise max(failed, key=lambda found: found[0])[1]

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())


def _find_error(text: str, family: Family) -> WorkloadError | None:
    try:
        workloads_from_text(text, family)
    except WorkloadError as error:
        return error
    return None


def _count_known_words(text: str, family: Family) -> int:
    """Returns how many words of a line the family knows; more than any line has for an id of the family."""
    if text.startswith(f"{family.name}-"):
        return len(text)
    grammar = require_grammar(family.kind) if family.kind else None
    known = {*grammar.numbers, *grammar.texts, *grammar.flags} if grammar else set()
    return len(known & {word.partition("=")[0].strip() for word in text.split(",")})


def _require_family(family: object) -> None:
    """Raises UsageError, for a class with its file and line, if what was registered is no Family."""
    if not isinstance(family, Family):
        name = family.__name__ if isinstance(family, type) else "MyWorkload"
        place = f"{find_class_place(family)}: {name}" if isinstance(family, type) else repr(family)
        raise UsageError(f'{place} is registered without Family.of: write Family.of({name}, "what it is")')


FAMILIES = Families()
"""The built-in families only."""


def parse_workload(text: str) -> Workload:
    """Returns the workload of an id of a built-in family. Raises UnknownNameError for another family, WorkloadError for
    a malformed id."""
    return FAMILIES.parse_workload(text)


def workloads_from_text(text: str, family: Family) -> list[Workload]:
    """Returns the workloads of `text`: one line, one id, or the path of a .csv or .jsonl file of them
    (`--attnperf-workload`).

    csv     a header of field names (b,s,kv,h,hk,d,w,dtype,causal,lse; empty cells are left out) and one row per
            workload, or no header and one line per workload
    jsonl   on each line an object of the same fields, or a string that is a line or an id
    Skips blank lines and lines that start with '#'. Raises WorkloadError naming file and line number.
    """
    extension = os.path.splitext(text)[1].lower()
    if extension not in (".csv", ".jsonl"):
        return [_parse_text(text, family)]
    if not os.path.exists(text):
        raise WorkloadError(f"the workload file {text} does not exist")
    lines = _read_lines(text)
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    to_line = _json_to_line
    if extension == ".csv":
        header, lines = _split_header(lines)
        to_line = partial(_csv_to_line, header)
    if not lines:
        raise WorkloadError(f"the workload file {text} holds no workload; write one on each line")
    return [_parse_text_at(text, number, line, to_line, family) for number, line in lines]


def _read_lines(path: str) -> list[tuple[int, str]]:
    """Returns (line number from 1, stripped text) of each line. Raises WorkloadError if the file is too large or not
    UTF-8."""
    content = read_regular(Path(path), FILE_BYTES_MAX, WorkloadError)
    try:
        lines = [line.strip() for line in io.StringIO(content.decode("utf-8-sig"), newline=None)]
    except UnicodeDecodeError as error:
        raise WorkloadError(f"the workload file {path} is no UTF-8 text: {error}; save it as UTF-8") from error
    return list(enumerate(lines, start=1))


def _parse_text(text: str, family: Family) -> Workload:
    if len(text) > TEXT_MAX:
        raise WorkloadError(f"a workload has at most {TEXT_MAX} characters: {quote_short(text)}")
    is_id = text.startswith(f"{family.name}-")
    return family.parse(text) if is_id else family.parse_line(text)


def _parse_text_at(path: str, number: int, line: str, to_line: Callable[[str], str], family: Family) -> Workload:
    try:
        if len(line) > TEXT_MAX:
            raise WorkloadError(f"a workload has at most {TEXT_MAX} characters: {quote_short(line)}")
        return _parse_text(to_line(line), family)
    except WorkloadError as error:
        raise WorkloadError(f"{path}, line {number}: {error}") from error


def _split_header(lines: list[tuple[int, str]]) -> tuple[list[str], list[tuple[int, str]]]:
    """Returns (field names of a CSV header, the lines after it); ([], all lines) if the first line is a workload
    itself."""
    if not lines or "=" in lines[0][1] or "-" in lines[0][1]:
        return [], lines
    return [cell.strip() for cell in _split_cells(lines[0][1])], lines[1:]


def _split_cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        raise WorkloadError(f"not CSV ({error}): {quote_short(line)}") from error


def _csv_to_line(header: list[str], line: str) -> str:
    cells = _split_cells(line)
    if not header:
        return ",".join(cells)
    if len(cells) != len(header):
        raise WorkloadError(
            f"{len(cells)} cells under a header of {len(header)} ({','.join(header)}): {quote_short(line)}; leave "
            "a cell empty for a field that is not given"
        )
    return _fields_to_line(dict(zip(header, cells, strict=True)))


def _json_to_line(line: str) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError alone
        raise WorkloadError(f"not JSON ({error}): {quote_short(line)}") from error
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise WorkloadError(f"expected an object of fields or a string, got {quote_short(line)}")
    return _fields_to_line(value)


def _fields_to_line(fields: Mapping[str, object]) -> str:
    """Converts {'b': 1, 's': '512', 'kv': '', 'causal': True} -> 'b=1,s=512,causal=True'."""
    return ",".join(f"{name}={value}" for name, value in fields.items() if value not in ("", None))
