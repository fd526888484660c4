"""Notes of a kind in JSON: {"kind": ..., "text": ...}, with "about" where there is one. A plain note is its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import msgspec

from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.notes import Note, NoteKind, kind_of
from pytest_attnperf.reports.files.compact_form import RECORDS
from pytest_attnperf.results import RunResult

Json: TypeAlias = Any

KINDS_SINCE = 3
"""The first schema of results.json whose notes have kinds."""

NOTED: dict[str, tuple[str, ...]] = {"": ("findings", "notes"), "cases": ("reasons", "notes"), "code": ("notes",)}
"""Of a run, its cases and its compiled kernels: fields that hold notes."""

_Record = TypeVar("_Record")
_KNOWN = {kind.value for kind in NoteKind}


def to_values(record: object) -> Json:
    """Builtins of a run, a case or a compiled kernel, with the kinds of its notes."""
    return msgspec.to_builtins(record, order="deterministic", enc_hook=_encoded)


def from_values(values: Json, record: type[_Record]) -> _Record:
    """A case or a compiled kernel from what `to_values` gave of it."""
    part = "code" if record is CodeResult else "cases"
    run = {part: [dict(values)]}
    change_notes(run, from_value)
    return msgspec.convert(run[part][0], record)


def change_notes(values: Json, change: Callable[[Json], Json]) -> None:
    """Apply `change` to every note of a run's builtins in place; what is malformed is left for msgspec to name."""
    for part, names in NOTED.items():
        for held in _objects(values, part):
            for name in names:
                if isinstance(held.get(name), (list, tuple)):
                    held[name] = [change(item) for item in held[name]]


def from_value(value: Json) -> Json:
    """One note from JSON; its text alone where a later version gave it a kind that this one does not know."""
    if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in ("kind", "text")):
        return value
    text, about = value["text"], value.get("about", "")
    return Note(NoteKind(value["kind"]), text, about) if value["kind"] in _KNOWN else text


def describe_notes(definitions: dict[str, Json]) -> None:
    """Say of the fields that hold notes, in a JSON Schema, that one may have a kind."""
    definitions[Note.__name__] = {
        "title": Note.__name__,
        "description": "A text of a kind; `about` is the part of it that is of interest by itself.",
        "type": "object",
        "properties": {
            "kind": {"enum": [kind.value for kind in NoteKind if kind is not NoteKind.PLAIN]},
            "text": {"type": "string"},
            "about": {"type": "string", "default": ""},
        },
        "required": ["kind", "text"],
    }
    noted = {"anyOf": [{"type": "string"}, {"$ref": f"#/$defs/{Note.__name__}"}]}
    for part, record in {"": RunResult, **RECORDS}.items():
        for name in NOTED[part]:
            definitions[record.__name__]["properties"][name]["items"] = noted


def _encoded(value: object) -> Json:
    if not isinstance(value, Note):
        raise NotImplementedError(f"no JSON is known of {type(value)}")
    if kind_of(value) is NoteKind.PLAIN:
        return value.text
    about = {"about": value.about} if value.about else {}
    return {"kind": value.kind.value, "text": value.text, **about}


def _objects(values: Json, part: str) -> list[dict[str, Json]]:
    held = [values] if not part else values.get(part) if isinstance(values, dict) else None
    return [one for one in held if isinstance(one, dict)] if isinstance(held, (list, tuple)) else []
