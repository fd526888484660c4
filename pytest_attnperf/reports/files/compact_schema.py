"""The compact form (`compact_form`) in the JSON Schema of results.json, which is made from the records."""

from __future__ import annotations

from typing import Any, TypeAlias

from pytest_attnperf.records import ErrorFigures
from pytest_attnperf.reports.files.compact_form import COLUMNS, ONE, RECORDS, SEVERAL
from pytest_attnperf.results import RunResult

Json: TypeAlias = Any

_TEXTS = {"type": "array", "items": {"type": "string"}}


def describe_compact(definitions: dict[str, Json]) -> None:
    """Change the definitions of a run, a case, a kernel and a comparison in place."""
    cases = {kind: definitions[record.__name__]["properties"] for kind, record in RECORDS.items()}
    shared = {
        "columns": _TEXTS,
        "files": {"type": "array", "items": {**_TEXTS, "minItems": 2, "maxItems": 2}},
        "sources": {"type": "array", "items": {"type": "array", "items": _number("files")}},
        "reproduce": {"type": "array", "items": {**_TEXTS, "minItems": 1, "maxItems": 2}},
        "compared": {"type": "array", "items": {**_TEXTS, "minItems": 2, "maxItems": 2}},
    }
    for kind, case in cases.items():
        for name, table in ONE[kind].items():
            shared[table] = {"type": "array", "items": _without_null(case[name])}
            case[name] = _number_or_null(table) if _may_be_null(case[name]) else _number(table)
        for name in SEVERAL[kind]:
            shared[name] = {"type": "array", "items": case[name]["items"]}
            case[name] = {"type": "array", "items": _number(name)}
        for name in ("sources", "reproduce"):
            case[name] = _number(name)
    run = definitions[RunResult.__name__]
    run["properties"] = {"schema": run["properties"].pop("schema"), "shared": _shared(shared), **run["properties"]}
    run["required"] = ["shared", *run["required"]]
    figures = definitions[ErrorFigures.__name__]
    cells = [_number("compared"), *(figures["properties"][name] for name in COLUMNS[1:])]
    required = 1 + max(COLUMNS.index(name) for name in figures["required"] if name in COLUMNS)
    definitions[ErrorFigures.__name__] = {
        "title": figures["title"],
        "description": f"{figures['description']}\n\nA row; its columns: {', '.join(COLUMNS)}.",
        "type": "array",
        "prefixItems": cells,
        "minItems": required,
    }


def _shared(tables: dict[str, Json]) -> Json:
    said = "What several cases or kernels have in common, each once; they refer to it by its number, from 0."
    return {"type": "object", "description": said, "properties": tables, "required": ["columns"]}


def _number(table: str) -> Json:
    return {"type": "integer", "minimum": 0, "description": f"number of an entry of shared.{table}"}


def _number_or_null(table: str) -> Json:
    return {"anyOf": [_number(table), {"type": "null"}]}


def _may_be_null(described: Json) -> bool:
    return {"type": "null"} in described.get("anyOf", [])


def _without_null(described: Json) -> Json:
    if not _may_be_null(described):
        return {name: value for name, value in described.items() if name != "default"}
    (held,) = [one for one in described["anyOf"] if one != {"type": "null"}]
    return held
