"""The format of `baselines/<arch>/<product>/<suite>.json`; reads, checks and writes it.

Format history: 1 = first published form; added since, with defaults: `Entry.summary`, `.accepted`, `.source_id`,
`.cost_limits`, `ProcessSummary.settings`, `.costs`. A version that lacks these reads the file, but never rewrites it.

The text is made for `git diff`: keys sorted, a summary line first in each entry, one line per process, numbers rounded
by `stats.summaries`. Environments and policies are stored once under a hash of their content, and each entry names its
own, so that a partial run does not change the other entries'.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pytest_attnperf.baselines.acceptance import Acceptance, find_problem
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import (
    NOT_STORED,
    ONLY_IF_SET,
    CheckReport,
    ErrorFigures,
    Fingerprint,
    Launch,
    Measurement,
    ProcessSummary,
    Tolerance,
)
from pytest_attnperf.records.notes import Note
from pytest_attnperf.records.unique_keys import require_unique_keys

BASELINE_SCHEMA = 1

OPEN_LEVELS = 3
"""JSON levels with one line per item: the file, its entries, an entry. Deeper values stand on one line."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding text that is not JSON."""

COMMIT_DIGITS = 12


@dataclass(frozen=True)
class Check:
    """The worst errors of all processes' checks, in units of their budget: 1 is just allowed.

    coarseness   as in a `CheckReport`; empty in entries recorded before it was known
    truth        as in a `CheckReport`, where all processes agree
    planted      whether every process was proven on planted inputs; False where that is not known
    """

    max_error_over_budget: float
    rms_error_over_budget: float
    tolerance: Tolerance = field(default_factory=Tolerance)
    coarseness: dict[str, float] = field(default_factory=dict, metadata=ONLY_IF_SET)
    truth: dict[str, tuple[float, float]] = field(default_factory=dict, metadata=ONLY_IF_SET)
    planted: bool = field(default=False, metadata=ONLY_IF_SET)


@dataclass(frozen=True)
class Anchor:
    """The time of a case when a change of it was last accepted. It stays while slower baselines are recorded.

    environment    key of the file's `environments` it was recorded under; dropped in another one
    acknowledged   why a slowdown was accepted, '' where the anchor is simply the first or the fastest recording
    """

    median_us: float
    recorded: str
    environment: str
    commit: str = ""
    acknowledged: str = ""


@dataclass(frozen=True)
class Entry:
    """One case as stored: the processes of a result proven right, and what they were made from.

    summary       `format_summary` of the other fields, from the file; '' in an entry that was not read from a file
    workload      the workload's definition, plain builtins
    environment   key of the file's `environments`; `policy` that of its `policies`
    recorded      date, YYYY-MM-DD; `commit` the revision of the suite and kernels
    launches      what one call ran; empty where that is not known
    bound         'compute' or 'memory', by the floor of the workload on the device; '' where that is not known
    anchor        what the creep guard compares the case with; None in entries recorded before anchors existed
    canary        key of the file's `canaries`: the canary of the processes that recorded the entry; '' without one
    accepted      acceptances of the case, newest last
    source_id     of the sources that it was recorded with (`workers.source_tree`); '' where that is not known
    cost_limits   cost -> growth in percent that its test allowed
    """

    summary: str = field(default="", kw_only=True, compare=False)
    workload: dict[str, Any]
    environment: str
    policy: str
    processes: tuple[ProcessSummary, ...]
    check: Check
    recorded: str
    harness_version: str
    commit: str = ""
    peak_memory_bytes: int | None = None
    config: dict[str, str] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()
    note: str = ""
    bound: str = ""
    anchor: Anchor | None = None
    canary: str = ""
    accepted: tuple[Acceptance, ...] = field(default=(), metadata=ONLY_IF_SET)
    source_id: str = field(default="", metadata=ONLY_IF_SET)
    cost_limits: dict[str, float] = field(default_factory=dict, metadata=ONLY_IF_SET)

    def to_measurement(self) -> Measurement:
        """Returns the stored processes as a measurement to compare with; the stored worst errors are its proof."""
        figures = ErrorFigures(
            check="stored",
            output="worst of all",
            max_error=self.check.max_error_over_budget,
            max_budget=1.0,
            rms_error=self.check.rms_error_over_budget,
            rms_budget=1.0,
        )
        report = CheckReport(figures=(figures,), tolerance=self.check.tolerance)
        return Measurement(self.processes, (report,) * len(self.processes), self.peak_memory_bytes)


@dataclass(frozen=True)
class BaselineFile:
    """All entries of one suite on one product; `entries` by `CaseKey.entry`.

    canaries   by id: the processes of each canary ('gemm', 'copy') that were measured with a recording
    """

    schema: int
    suite: str
    arch: str
    product: str
    environments: dict[str, Fingerprint] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    canaries: dict[str, dict[str, tuple[ProcessSummary, ...]]] = field(default_factory=dict)


def decode_baseline(data: bytes, source: str) -> BaselineFile:
    """Returns the checked content of a baseline file's bytes; `source` names the file in errors.

    Raises BaselineError naming the field for anything but a valid file of this schema: truncated or malformed JSON, a
    newer schema, a wrong type, a number that is no time, an id or a summary that does not match its content, or a
    duplicate key.
    """
    require_schema(data, source, BASELINE_SCHEMA)
    with named_errors(data, source, Entry):
        file = msgspec.json.decode(data, type=BaselineFile)
        require_unique_keys(data, source)
    _check_content(file, source)
    return file


def encode_baseline(file: BaselineFile) -> bytes:
    """Returns the file's JSON text with new summary lines: a line per process and small field; deterministic."""
    entries = {key: dataclasses.replace(entry, summary=format_summary(entry)) for key, entry in file.entries.items()}
    return json_text(to_plain(dataclasses.replace(file, entries=entries)), open_levels=OPEN_LEVELS)


def content_id(content: object) -> str:
    """Returns the key of a policy, fingerprint or canary: 12 hex digits of the SHA-256 of its sorted JSON."""
    return hashlib.sha256(msgspec.json.encode(to_plain(content), order="deterministic")).hexdigest()[:12]


def to_plain(value: Any) -> Any:
    """Returns the value as JSON reads it back: dataclasses as dicts in field order, mappings sorted, tuples as lists,
    notes as their text.

    Leaves out fields that are NOT_STORED, and empty ones that are stored ONLY_IF_SET. Raises BaselineError for a value
    that is nested too deep.
    """
    try:
        return _to_plain(value)
    except RecursionError as error:
        raise BaselineError("a stored value is nested too deep; restore its file from version control") from error


def _to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        stored = ((part, getattr(value, part.name)) for part in dataclasses.fields(value))
        return {part.name: _to_plain(own) for part, own in stored if _is_stored(part, own)}
    if isinstance(value, Mapping):
        return {str(key): _to_plain(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_to_plain(part) for part in value]
    return value.text if isinstance(value, Note) else value


def _is_stored(part: dataclasses.Field[Any], value: Any) -> bool:
    return part.metadata != NOT_STORED and (bool(value) or part.metadata != ONLY_IF_SET)


def require_schema(data: bytes, source: str, known: int) -> None:
    """Raises BaselineError unless the field `schema` of the file `data` is the integer `known`."""
    schema = _decode_header(data, source).schema
    if isinstance(schema, bool) or not isinstance(schema, int):
        raise BaselineError(f"{source}: field `schema` is {schema!r}, expected the integer {known}")
    if schema != known:
        raise BaselineError(
            f"{source}: field `schema` is {schema}; this version reads {known}. "
            "Use the pytest-attnperf that wrote it, or record the baseline again elsewhere"
        )


def require_ids(kind: str, contents: Mapping[str, object], source: str) -> None:
    """Raises BaselineError where a key in the field `kind` is not the `content_id` of its value (edited by hand)."""
    for identity, content in contents.items():
        if content_id(content) != identity:
            raise BaselineError(
                f"{source}: field `{kind}` has {identity!r}, whose content hashes to {content_id(content)!r}: "
                "it was edited by hand; record the baseline again"
            )


def json_text(value: object, *, open_levels: int) -> bytes:
    """Returns JSON for diffs: objects of the first `open_levels` levels and lists of objects have a line per item."""
    return ("\n".join(_json_lines(value, open_levels)) + "\n").encode()


@dataclass(frozen=True)
class _Header:
    """The field that is read first, to distinguish a newer schema from a damaged file."""

    schema: Any = None


def _decode_header(data: bytes, source: str) -> _Header:
    with named_errors(data, source, Entry):
        return msgspec.json.decode(data, type=_Header)


@contextlib.contextmanager
def named_errors(data: bytes, source: str, entry_type: type) -> Iterator[None]:
    """Turns decoding errors in its block into a BaselineError naming file, entry (an `entry_type`) and field."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise BaselineError(f"{source}: {_locate_error(data, error, entry_type)}") from error
    except UNREADABLE as error:
        raise BaselineError(f"{source}: is not readable as JSON ({error}); restore it from version control") from error


def _locate_error(data: bytes, error: msgspec.ValidationError, entry_type: type) -> str:
    """Returns why decoding failed: the first invalid entry's key and error, else `error`'s text."""
    try:
        raw = msgspec.json.decode(data)
    except UNREADABLE:
        return str(error)
    entries = raw.get("entries") if isinstance(raw, dict) else None
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        problem = _find_conversion_problem(entry, entry_type)
        if problem:
            return f"entry {key!r}: {problem}"
    return str(error)


def _find_conversion_problem(entry: Any, entry_type: type) -> str:
    try:
        msgspec.convert(entry, entry_type)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _check_content(file: BaselineFile, source: str) -> None:
    """Raises BaselineError if an id is not its content's hash, or an entry is inconsistent or names an unknown id."""
    require_sound_tables(file, source)
    for key, entry in file.entries.items():
        require_sound_entry(file, key, entry, source)


def require_sound_tables(file: BaselineFile, source: str) -> None:
    """Raises BaselineError if a key of environments, policies or canaries is not the hash of its content."""
    require_ids("environments", file.environments, source)
    require_ids("policies", file.policies, source)
    require_ids("canaries", file.canaries, source)


def require_sound_entry(file: BaselineFile, key: str, entry: Entry, source: str) -> None:
    """Raises BaselineError, naming the key, if an entry contradicts itself, or names an id that `file` lacks."""
    problem = _find_entry_problem(file, entry)
    if problem:
        raise BaselineError(f"{source}: entry {key!r}: {problem}")


def _find_entry_problem(file: BaselineFile, entry: Entry) -> str:
    if entry.environment not in file.environments:
        return f"field `environment` names {entry.environment!r}, which is not in `environments`"
    if entry.policy not in file.policies:
        return f"field `policy` names {entry.policy!r}, which is not in `policies`"
    if entry.canary and entry.canary not in file.canaries:
        return f"field `canary` names {entry.canary!r}, which is not in `canaries`"
    if entry.anchor is not None and entry.anchor.environment not in file.environments:
        return f"field `anchor.environment` names {entry.anchor.environment!r}, which is not in `environments`"
    if entry.anchor is not None and not entry.anchor.median_us > 0:
        return "field `anchor.median_us` is not positive, in microseconds per call"
    if not entry.processes:
        return "field `processes` is empty"
    if len({process.timer for process in entry.processes}) > 1:
        return "field `processes` mixes timers"
    for index, process in enumerate(entry.processes):
        if not min(process.median_us, process.min_us, process.mean_us, *process.block_us) > 0:
            return f"field `processes[{index}]` holds a time that is not positive, in microseconds per call"
    for name in ("max_error_over_budget", "rms_error_over_budget"):
        value = getattr(entry.check, name)
        if not 0 <= value <= 1:
            return f"field `check.{name}` is {value}, expected 0 to 1: only results within their budget are stored"
    for index, acceptance in enumerate(entry.accepted):
        if problem := find_problem(acceptance):
            return f"field `accepted[{index}]`: {problem}"
    return _find_summary_problem(entry)


def _find_summary_problem(entry: Entry) -> str:
    """Returns what is wrong if the entry's `summary`, a line for reviewers, does not match its fields; '' if it does
    or is absent."""
    true = format_summary(entry)
    if entry.summary in ("", true, true.replace("+dirty", "", 1)):  # 0.1.0 left '+dirty' out
        return ""
    return (
        f"field `summary` is {entry.summary[:200]!r}, but its content gives {true!r}: it was edited by hand, or merged "
        "line by line; take the entry of one side from version control, or record or accept it again"
    )


def _json_lines(value: Any, open_levels: int) -> list[str]:
    """Returns the lines of a value's JSON: objects of the first levels and lists of objects opened, the rest inline."""
    is_open = isinstance(value, dict) and value and open_levels > 0
    is_table = isinstance(value, list) and value and isinstance(value[0], dict)
    if not (is_open or is_table):
        return [_inline_json(value)]
    pairs = (
        [(f"{_inline_json(key)}: ", part) for key, part in value.items()] if is_open else [("", part) for part in value]
    )
    lines = ["{" if is_open else "["]
    for position, (prefix, part) in enumerate(pairs):
        first, *rest = _json_lines(part, open_levels - 1)
        block = [f"  {prefix}{first}", *(f"  {line}" for line in rest)]
        block[-1] += "," if position < len(pairs) - 1 else ""
        lines += block
    return [*lines, "}" if is_open else "]"]


def _inline_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def format_summary(entry: Entry) -> str:
    """Returns '154.4 us, 7 processes within 0.41 %, error 0.38 of budget, recorded 2026-11-20 from 0123abcdef12'.

    The time is the median over processes; 'within' is the difference between the fastest and the slowest of them. The
    last acceptance follows, with its evidence: ', accepted 2026-12-01 (7 processes): REASON'.

    Made at every writing and checked at every reading, so that nobody can change only one of line and entry. Its
    wording belongs to the schema: with other words, every stored line would look false.
    """
    error = max(entry.check.max_error_over_budget, entry.check.rms_error_over_budget)
    parts = [
        *_format_times([p.median_us for p in entry.processes]),
        f"error {format_digits(error, 2)} of budget",
        _format_origin(entry),
    ]
    if entry.accepted:
        last = entry.accepted[-1]
        parts.append(f"accepted {last.date} ({last.how}): {last.reason}")
    return ", ".join(parts)


def format_digits(value: float, significant: int = 4) -> str:
    """Returns a number with at least `significant` digits and without an exponent: 18.84, 0.004100, 104312."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, significant - 1 - math.floor(math.log10(abs(value))))}f}"


def _format_times(medians_us: Sequence[float]) -> tuple[str, str]:
    """Returns median time and spread: ('154.4 us', '7 processes within 0.41 %'); with fewer than two medians, or a
    centre of 0, the count in place of the spread: ('nan us', '0 processes')."""
    centre_us = statistics.median(medians_us) if medians_us else math.nan
    if len(medians_us) < 2 or not centre_us:
        return f"{format_digits(centre_us)} us", f"{len(medians_us)} process{'es' * (len(medians_us) != 1)}"
    apart_percent = 100 * (max(medians_us) - min(medians_us)) / centre_us
    return f"{format_digits(centre_us)} us", f"{len(medians_us)} processes within {format_digits(apart_percent, 2)} %"


def _format_origin(entry: Entry) -> str:
    commit, plus, changed = entry.commit.partition("+")
    return f"recorded {entry.recorded}" + (f" from {commit[:COMMIT_DIGITS]}{plus}{changed}" if commit else "")
