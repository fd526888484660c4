"""results.json: a `RunResult` in its compact form (`compact_form`), the same bytes for the same run, and its JSON
Schema (docs/results.schema.json), which is made from the records.

JSON has no NaN. Measured times and ratios are always finite, and a file with another value is refused. Only the errors
of a wrong output may be NaN or infinite, written as "NaN", "Infinity" and "-Infinity" (as in protobuf's JSON).
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records import ErrorFigures
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.regular_file import read_regular
from pytest_attnperf.records.unique_keys import require_unique_keys
from pytest_attnperf.reports.files.compact_form import (
    COLUMNS,
    COMPACT_SINCE,
    ONE,
    RECORDS,
    SEVERAL,
    CompactFormError,
    compact_values,
    expand_values,
)
from pytest_attnperf.reports.files.noted import (
    KINDS_SINCE,
    change_notes,
    classify_notes,
    describe_notes,
    from_value,
    to_values,
)
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import RESULTS_SCHEMA, RunResult

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
FLOAT_FIELDS = tuple(field.name for field in dataclasses.fields(ErrorFigures) if field.type == "float")
"""Fields of ErrorFigures that may hold a value of NOT_FINITE."""

BYTES_MAX = 1 << 30
"""Most bytes of a results file. One of 10,000 cases has some tens of MB."""

TWICE = "a run writes each once, so the file was edited; make it again with pytest --attnperf"
ERROR_LIMIT = 400
OWN_LINES = 3
"""Levels of JSON with own lines: fields of the run, cases, fields of a case. A diff shows one change as one line."""

Json: TypeAlias = Any

_TEXTS = {"type": "array", "items": {"type": "string"}}


class ResultsFileError(AttnperfError):
    """A results file cannot be read or written. The message names the file, the field, and what to do."""


class _Head(msgspec.Struct):
    """The fields that are checked first."""

    schema: Any = None
    merged: Any = None
    environments: Any = None


def encode(run: RunResult) -> bytes:
    """Returns a run as JSON, a line per field of a case. Raises ResultsFileError naming a field that cannot be stored.

    A lone surrogate, which UTF-8 cannot encode (it may come from a path in another encoding), is written as its escape.
    """
    try:
        try:
            return _encode_values(_to_json_values(run))
        except UnicodeEncodeError:
            return _encode_values(_escape_surrogates(_to_json_values(run)))
    except RecursionError as error:
        raise ResultsFileError(
            "results: some value is nested too deep to be written as JSON; make the values that definition() of a "
            "workload returns flatter"
        ) from error


def _to_json_values(run: RunResult) -> Json:
    values = to_values(run)
    _replace_error_figures(values, spell_number)
    _refuse_not_finite(values, "results: $")
    return {**values, "schema": RESULTS_SCHEMA}


def _encode_values(values: Json) -> bytes:
    return _encode_lines(compact_values(values), OWN_LINES) + b"\n"


def read(path: Path) -> RunResult:
    """Reads a results file of one run. Raises UsageError if it is not regular or too large, OSError,
    ResultsFileError."""
    return decode(read_regular(path, BYTES_MAX), str(path))


def decode(data: bytes, where: str) -> RunResult:
    """Returns the run that `encode` wrote, in this schema or an earlier one. `where` names the file in errors.

    Raises ResultsFileError for other content, several runs, or a later schema.
    """
    try:
        found = _refuse_other_schema(data, where)
        run = _decode_values(data, found)
        require_unique_keys(data, where, ResultsFileError, TWICE)
        return replace(run, schema=RESULTS_SCHEMA)
    except (msgspec.MsgspecError, CompactFormError, UnicodeDecodeError, RecursionError) as error:
        _refuse_not_finite_literals(data, where)
        why = one_line(str(error), ERROR_LIMIT) if data else "it is empty"
        raise ResultsFileError(
            f"{where} is not a results file of this version: {why}; make it again with pytest --attnperf"
        ) from error


def _decode_values(data: bytes, schema_found: int) -> RunResult:
    values = msgspec.json.decode(data)
    if schema_found >= COMPACT_SINCE:
        values = expand_values(values)
    _replace_error_figures(values, _from_text)
    give_kinds(values, schema_found)
    return msgspec.convert(values, RunResult)


def give_kinds(values: Json, schema_found: int) -> None:
    """Turns notes in a run's builtins into `Note`s, in place: by stored kinds, or in old files by their texts."""
    if schema_found >= KINDS_SINCE:
        change_notes(values, from_value)
    else:
        classify_notes(values)


def write(path: Path, run: RunResult) -> None:
    """Writes the run to `path` as JSON, atomically (readers see the old or the new file, complete). Creates folders."""
    write_atomically(path, encode(run))


def build_schema() -> dict[str, Json]:
    """Returns the JSON Schema (2020-12) of results.json, made from the records and their docstrings."""
    described = msgspec.json.schema(RunResult)
    for definition in described["$defs"].values():
        definition["description"] = inspect.cleandoc(definition.get("description", ""))
        for described_field in definition.get("properties", {}).values():
            # msgspec 0.23 and later say what a default_factory of dict gives, older ones do not.
            if described_field.get("default") == {}:
                del described_field["default"]
    figures = described["$defs"][ErrorFigures.__name__]["properties"]
    for name in FLOAT_FIELDS:
        default = {key: figures[name].pop(key) for key in ("default",) if key in figures[name]}
        figures[name] = {"anyOf": [figures[name], {"enum": list(NOT_FINITE)}], **default}
    described["$defs"][RunResult.__name__]["properties"]["schema"] = {"const": RESULTS_SCHEMA}
    describe_notes(described["$defs"])
    describe_compact(described["$defs"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:pytest-attnperf:results:{RESULTS_SCHEMA}",
        "title": f"pytest-attnperf results, schema {RESULTS_SCHEMA}",
        **described,
    }


def schema_text() -> str:
    """Returns the schema of results.json as indented JSON: the content of docs/results.schema.json."""
    return msgspec.json.format(msgspec.json.encode(build_schema(), order="deterministic"), indent=2).decode() + "\n"


def _encode_lines(value: Json, levels: int, margin: str = "") -> bytes:
    """Returns `value` as JSON. Items of its first `levels` levels have a line each; deeper ones share a line."""
    if not levels or not value or not isinstance(value, (dict, list, tuple)):
        return msgspec.json.encode(value)
    inner = f"{margin} "
    if isinstance(value, dict):
        items = [
            msgspec.json.encode(key) + b": " + _encode_lines(item, levels - 1, inner) for key, item in value.items()
        ]
        opening, closing = b"{", b"}"
    else:
        items = [_encode_lines(item, levels - 1, inner) for item in value]
        opening, closing = b"[", b"]"
    between = f"\n{inner}".encode()
    return b"".join((opening, between, (b"," + between).join(items), f"\n{margin}".encode(), closing))


def _escape_surrogates(value: Json) -> Json:
    """Returns the value with each lone surrogate in its texts and keys replaced by an escape ('\\udc80')."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_escape_surrogates(key): _escape_surrogates(item) for key, item in value.items()}
    return [_escape_surrogates(item) for item in value] if isinstance(value, (list, tuple)) else value


def _refuse_other_schema(data: bytes, where: str) -> int:
    """Returns the file's schema number. Raises ResultsFileError for none, a later one, and a file of merged runs."""
    try:
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.ValidationError:  # not an object
        head = _Head()
    found = head.schema
    if not isinstance(found, int) or isinstance(found, bool):
        raise ResultsFileError(f"{where} has no integer field 'schema'; it is not a results file of pytest-attnperf")
    if found > RESULTS_SCHEMA:
        raise ResultsFileError(
            f"{where}: field 'schema' is {found}, this version reads up to {RESULTS_SCHEMA}; upgrade pytest-attnperf"
        )
    if found < 1:
        raise ResultsFileError(f"{where}: field 'schema' is {found}; known: 1 to {RESULTS_SCHEMA}")
    if head.environments is not None:
        raise ResultsFileError(f"{where} holds stored baselines, not results; attnperf report {where} shows them")
    if head.merged is not None:
        raise ResultsFileError(
            f"{where} holds the runs of several devices, joined by attnperf report --out. attnperf report, compare "
            "and gate read them, but this needs one run: name the results file of one of them"
        )
    return found


def _replace_error_figures(values: Json, change: Callable[[Json], Json]) -> None:
    """Applies `change` to all float fields of ErrorFigures in a run's builtins, in place. Skips malformed parts."""
    for case in _list_items(values, "cases"):
        for check in _list_items(case, "checks"):
            for figures in _list_items(check, "figures"):
                if isinstance(figures, dict):
                    figures.update({name: change(figures[name]) for name in FLOAT_FIELDS if name in figures})


def _list_items(value: Json, name: str) -> list[Json]:
    items = value.get(name) if isinstance(value, dict) else None
    return list(items) if isinstance(items, (list, tuple)) else []


def spell_number(value: float) -> float | str:
    """Returns a number, or the word for one that JSON has not."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _from_text(value: Json) -> Json:
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _refuse_not_finite(value: Json, path: str) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ResultsFileError(
                f"{one_line(path, ERROR_LIMIT)} is {value}, which is not a measured figure and not JSON"
            )
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, (float, dict, list, tuple)):
                _refuse_not_finite(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)) and not _is_finite(value):
        for index, item in enumerate(value):
            _refuse_not_finite(item, f"{path}[{index}]")


def _is_finite(values: Sequence[Json]) -> bool:
    """Returns whether all values are finite numbers, because their sum is: fast for a file's long lists of times."""
    try:
        return math.isfinite(sum(values))
    except (TypeError, OverflowError):
        return False


def _refuse_not_finite_literals(data: bytes, where: str) -> None:
    """Raises ResultsFileError naming a field with the literal NaN or Infinity, which some write but JSON lacks."""
    with contextlib.suppress(ValueError, RecursionError):
        _refuse_not_finite(json.loads(data), f"{where}: $")


def describe_compact(definitions: dict[str, Json]) -> None:
    """Changes a schema's `definitions` of run, case, kernel and comparison to the compact form, in place."""
    cases = {kind: definitions[record.__name__]["properties"] for kind, record in RECORDS.items()}
    shared = {
        "columns": _TEXTS,
        "files": {"type": "array", "items": {**_TEXTS, "minItems": 2, "maxItems": 2}},
        "sources": {"type": "array", "items": {"type": "array", "items": _describe_number("files")}},
        "reproduce": {"type": "array", "items": {**_TEXTS, "minItems": 1, "maxItems": 2}},
        "compared": {"type": "array", "items": {**_TEXTS, "minItems": 2, "maxItems": 2}},
    }
    for kind, case in cases.items():
        for name, table in ONE[kind].items():
            shared[table] = {"type": "array", "items": _without_null(case[name])}
            case[name] = _describe_optional_number(table) if _may_be_null(case[name]) else _describe_number(table)
        for name in SEVERAL[kind]:
            shared[name] = {"type": "array", "items": case[name]["items"]}
            case[name] = {"type": "array", "items": _describe_number(name)}
        for name in ("sources", "reproduce"):
            case[name] = _describe_number(name)
    run = definitions[RunResult.__name__]
    run["properties"] = {
        "schema": run["properties"].pop("schema"),
        "shared": _describe_shared(shared),
        **run["properties"],
    }
    run["required"] = ["shared", *run["required"]]
    figures = definitions[ErrorFigures.__name__]
    cells = [_describe_number("compared"), *(figures["properties"][name] for name in COLUMNS[1:])]
    required = 1 + max(COLUMNS.index(name) for name in figures["required"] if name in COLUMNS)
    definitions[ErrorFigures.__name__] = {
        "title": figures["title"],
        "description": f"{figures['description']}\n\nA row; its columns: {', '.join(COLUMNS)}.",
        "type": "array",
        "prefixItems": cells,
        "minItems": required,
    }


def _describe_shared(tables: dict[str, Json]) -> Json:
    said = "What several cases or kernels have in common, each once; they refer to it by its number, from 0."
    return {"type": "object", "description": said, "properties": tables, "required": ["columns"]}


def _describe_number(table: str) -> Json:
    return {"type": "integer", "minimum": 0, "description": f"number of an entry of shared.{table}"}


def _describe_optional_number(table: str) -> Json:
    return {"anyOf": [_describe_number(table), {"type": "null"}]}


def _may_be_null(described: Json) -> bool:
    return {"type": "null"} in described.get("anyOf", [])


def _without_null(described: Json) -> Json:
    if not _may_be_null(described):
        return {name: value for name, value in described.items() if name != "default"}
    (held,) = [one for one in described["anyOf"] if one != {"type": "null"}]
    return held
