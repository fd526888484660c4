"""results.json: a `RunResult` field by field, the same bytes for the same run; docs/results.schema.json describes it.

JSON has no NaN. Measured times and ratios are never one, and a file that holds one is refused; only the errors of a
wrong output may be, and those are written as the strings "NaN", "Infinity" and "-Infinity" (as protobuf's JSON does).
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from pytest_attnperf.atomic_file import write_atomically
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records import ErrorFigures
from pytest_attnperf.results import RESULTS_SCHEMA, RunResult

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
FLOAT_FIELDS = tuple(field.name for field in dataclasses.fields(ErrorFigures) if field.type == "float")
"""Fields of ErrorFigures that may hold one of NOT_FINITE."""

Json: TypeAlias = Any


class ResultsFileError(AttnperfError):
    """A results file cannot be read or written; names the file, the field, and what to do."""


def encode(run: RunResult) -> bytes:
    """Indented JSON, keys of mappings sorted. Raises ResultsFileError naming a field that is not finite."""
    values = msgspec.to_builtins(run, order="deterministic")
    _replace_error_figures(values, _to_text)
    _refuse_not_finite(values, "$")
    return msgspec.json.format(msgspec.json.encode(values), indent=2) + b"\n"


def decode(data: bytes, where: str) -> RunResult:
    """Read what `encode` wrote; `where` names the file in errors. Raises ResultsFileError."""
    try:
        values = msgspec.json.decode(data)
        _refuse_other_schema(values, where)
        _replace_error_figures(values, _from_text)
        return msgspec.convert(values, RunResult)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ResultsFileError(
            f"{where} is no results file of this version: {error}; make it again with pytest --attnperf"
        ) from error


def write(path: Path, run: RunResult) -> None:
    """Write atomically: at any moment the old file or the new one is there, whole. Folders are made."""
    write_atomically(path, encode(run))


def schema() -> dict[str, Json]:
    """JSON Schema of a results file (2020-12)."""
    described = msgspec.json.schema(RunResult)
    for definition in described["$defs"].values():
        definition["description"] = inspect.cleandoc(definition.get("description", ""))
    figures = described["$defs"][ErrorFigures.__name__]["properties"]
    for name in FLOAT_FIELDS:
        default = {key: figures[name].pop(key) for key in ("default",) if key in figures[name]}
        figures[name] = {"anyOf": [figures[name], {"enum": list(NOT_FINITE)}], **default}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"pytest-attnperf results, schema {RESULTS_SCHEMA}",
        **described,
    }


def schema_text() -> str:
    """The schema as docs/results.schema.json holds it."""
    return msgspec.json.format(msgspec.json.encode(schema(), order="deterministic"), indent=2).decode() + "\n"


def _refuse_other_schema(values: Json, where: str) -> None:
    found = values.get("schema") if isinstance(values, dict) else None
    if not isinstance(found, int) or isinstance(found, bool):
        raise ResultsFileError(f"{where} has no integer field 'schema'; it is no results file of pytest-attnperf")
    if found > RESULTS_SCHEMA:
        raise ResultsFileError(
            f"{where}: field 'schema' is {found}, this version reads up to {RESULTS_SCHEMA}; upgrade pytest-attnperf"
        )
    if found < 1:
        raise ResultsFileError(f"{where}: field 'schema' is {found}; known: 1 to {RESULTS_SCHEMA}")


def _replace_error_figures(values: Json, change: Callable[[Json], Json]) -> None:
    """Apply `change` to the float fields of every ErrorFigures in place; msgspec names what is malformed."""
    for case in _items(values, "cases"):
        for check in _items(case, "checks"):
            for figures in _items(check, "figures"):
                if isinstance(figures, dict):
                    figures.update({name: change(figures[name]) for name in FLOAT_FIELDS if name in figures})


def _items(value: Json, name: str) -> list[Json]:
    items = value.get(name) if isinstance(value, dict) else None
    return list(items) if isinstance(items, (list, tuple)) else []


def _to_text(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _from_text(value: Json) -> Json:
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _refuse_not_finite(value: Json, path: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ResultsFileError(f"results: {path} is {value}, which no measured figure can be and JSON cannot hold")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_not_finite(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_not_finite(item, f"{path}[{index}]")
