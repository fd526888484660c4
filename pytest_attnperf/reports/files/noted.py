"""Notes with a kind in JSON: {"kind": ..., "text": ...}, with "about" if there is one. A plain note is its text.

In files before schema 3 a note is text only; its kind is found by the beginning of the text. Only this file may derive
a fact from a text, and no text is added here, because new notes have a kind.
"""

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
"""Fields of a run, its cases and its compiled kernels that hold notes."""

_Record = TypeVar("_Record")
_KNOWN = {kind.value for kind in NoteKind}


def to_values(record: object) -> Json:
    """Returns a run, case or kernel as builtins for JSON; notes become {'kind', 'text', 'about'} or plain texts."""
    return msgspec.to_builtins(record, order="deterministic", enc_hook=_encode_note)


def from_values(values: Json, record: type[_Record]) -> _Record:
    """Returns the case or compiled kernel (`record`) of the builtins that `to_values` made."""
    part = "code" if record is CodeResult else "cases"
    run = {part: [dict(values)]}
    change_notes(run, from_value)
    return msgspec.convert(run[part][0], record)


def change_notes(values: Json, change: Callable[[Json], Json]) -> None:
    """Replaces every note in a run's builtins by `change(note)`, in place. Skips malformed parts."""
    for part, names in NOTED.items():
        for held in _list_objects(values, part):
            for name in names:
                if isinstance(held.get(name), (list, tuple)):
                    held[name] = [change(item) for item in held[name]]


def from_value(value: Json) -> Json:
    """Returns a `Note` from {'kind', 'text'}; its text if the kind is unknown (later version); else the value."""
    if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in ("kind", "text")):
        return value
    text, about = value["text"], value.get("about", "")
    return Note(NoteKind(value["kind"]), text, about) if value["kind"] in _KNOWN else text


def describe_notes(definitions: dict[str, Json]) -> None:
    """Changes a JSON Schema's fields that hold notes, in place: a note may be a text, or an object with a kind."""
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


def _encode_note(value: object) -> Json:
    if isinstance(value, str) and not isinstance(value, Note):
        return str(value)  # torch.__version__ has its own subclass of str
    if not isinstance(value, Note):
        raise NotImplementedError(f"no JSON is known of {type(value)}")
    if kind_of(value) is NoteKind.PLAIN:
        return value.text
    about = {"about": value.about} if value.about else {}
    return {"kind": value.kind.value, "text": value.text, **about}


def _list_objects(values: Json, part: str) -> list[dict[str, Json]]:
    held = [values] if not part else values.get(part) if isinstance(values, dict) else None
    return [one for one in held if isinstance(one, dict)] if isinstance(held, (list, tuple)) else []


BEGINNINGS = (
    ("policy loosened since the baseline:", NoteKind.LOOSENED),
    ("crept:", NoteKind.CREPT),
    ("configuration differs from the baseline's:", NoteKind.DRIFTED),
    ("what ran has changed since the baseline", NoteKind.CHANGED),
    ("what ran differs from the base side", NoteKind.CHANGED_SIDE),
    ("unchanged: the same machine code", NoteKind.UNCHANGED),
    ("the same work was launched as when the baseline was recorded", NoteKind.SAME_LAUNCHES),
    ("both sides ran the same files", NoteKind.SAME_FILES),
    ("toolchain, base side -> here: ", NoteKind.RELEASES),
    ("baseline under .attnperf/local, recorded in this run", NoteKind.LOCAL_NEW),
    ("baseline under .attnperf/local,", NoteKind.LOCAL),
    ("near the floor:", NoteKind.NEAR_FLOOR),
    ("quarantined until", NoteKind.NEEDLESS),
    ("not profiled:", NoteKind.NOT_PROFILED),
    ("not timed: its test says", NoteKind.PROVEN_ONLY),
    ("candidate:", NoteKind.CANDIDATE),
    ("of another commit:", NoteKind.OTHER_COMMIT),
    ("shards of different", NoteKind.MIXED_SHARDS),
    ("shards missing:", NoteKind.MISSING_SHARDS),
    ("code from another tree ran", NoteKind.FOREIGN),
    ("a baseline is stored for ", NoteKind.OTHER_PRODUCT),
    ("another path ran: ", NoteKind.OTHER_PATH),
    ("not every process took the same path", NoteKind.MIXED_PATHS),
    ("workload ", NoteKind.WORKLOAD),
    ("processes: ", NoteKind.PROCESSES),
    ("quarantine expired", NoteKind.EXPIRED),
    ("unsupported now, but ", NoteKind.GONE),
    ("skipped now, but ", NoteKind.GONE),
    ("not timed any more, but ", NoteKind.GONE),
    ("the budget of", NoteKind.BUDGET),
    ("threshold ", NoteKind.LIMIT),
    ("noise:", NoteKind.NOISE),
    ("cards:", NoteKind.CARDS),
    ("in cycles", NoteKind.CYCLES),
    ("the canary ", NoteKind.CANARY),
    ("the first look saw", NoteKind.FIRST_LOOK),
    ("a slowdown of", NoteKind.DETECTS),
)

ABOUT = (NoteKind.RELEASES, NoteKind.OTHER_PATH, NoteKind.GONE)
"""Kinds whose `about` is the text after the first ': '."""

WITHIN = {
    "SUSPICIOUS": (
        ("faster than this device can be", NoteKind.BELOW_FLOOR),
        ("remembers its results", NoteKind.REMEMBERS),
        ("no store of any kind", NoteKind.NO_STORE),
        ("promises matrix instructions", NoteKind.NO_MATRIX),
    ),
    "ERROR": (
        ("figures contradict each other", NoteKind.CONTRADICTED),
        ("out of memory", NoteKind.OUT_OF_MEMORY),
        ("did not answer", NoteKind.NO_ANSWER),
        ("died during", NoteKind.DIED),
        ("ended before", NoteKind.DIED),
    ),
}
"""Texts that occur anywhere in the summary or the reasons of a case, by verdict, and their kinds."""

FOREIGN, WITH_BASE, UNLIKE = "code from another tree ran", "not comparable with ", "not comparable: "
STAGES, TOOLCHAIN = "stages were not timed:", ", but the toolchain changed: "


def classify_notes(values: Json) -> None:
    """Replaces the texts of notes in an old file's builtins by Notes, in place; the kind follows from the text."""
    change_notes(values, _classify_text)
    cases = values.get("cases") if isinstance(values, dict) else None
    for case in cases if isinstance(cases, list) else ():
        if isinstance(case, dict) and isinstance(case.get("summary"), str):
            reasons = case.get("reasons", [])
            if isinstance(reasons, list) and all(isinstance(reason, str) for reason in reasons):
                case["reasons"] = _classify_reasons(case, reasons)


def _classify_text(text: Json) -> Json:
    if not isinstance(text, str):
        return text
    if kind := next((kind for beginning, kind in BEGINNINGS if text.startswith(beginning)), None):
        return Note(kind, text, text.partition(": ")[2] if kind in ABOUT else "")
    stages = next((part for part in text.split("; ") if part.startswith(STAGES)), "")
    return Note(NoteKind.NO_STAGES, text, stages) if stages else text


def _classify_reasons(case: dict[str, Json], reasons: list[str]) -> list[str]:
    """Returns a case's reasons; the first plain one, or a new first one, gets the kind that only the summary shows."""
    summary, verdict = case["summary"], case.get("verdict")
    if verdict == "INCOMPARABLE" and not case.get("against") and summary.startswith(UNLIKE):
        return [_with_kind(reason, NoteKind.MACHINE) for reason in reasons]
    kind, about = _classify_summary(summary, verdict, [summary, *reasons])
    if kind is NoteKind.FOREIGN:
        return [Note(kind, reason) for reason in reasons or [summary]]
    if kind is None or kind in map(kind_of, reasons):
        return reasons
    place = next((at for at, reason in enumerate(reasons) if kind_of(reason) is NoteKind.PLAIN), None)
    if place is None:
        return [Note(kind, summary, about), *reasons]
    return [*reasons[:place], Note(kind, reasons[place], about), *reasons[place + 1 :]]


def _classify_summary(summary: str, verdict: Json, said: list[str]) -> tuple[NoteKind | None, str]:
    """Returns (kind, its `about`) that a summary shows; (None, '') if it adds nothing to the reasons."""
    if summary.startswith(FOREIGN) or (summary.startswith(WITH_BASE) and any(FOREIGN in text for text in said)):
        return NoteKind.FOREIGN, ""
    if summary.startswith(WITH_BASE):
        return NoteKind.BASE_SIDE, ""
    if verdict == "ENVIRONMENT" and TOOLCHAIN in summary:
        return NoteKind.TOOLCHAIN, summary.partition(TOOLCHAIN)[2]
    text = " ".join(said).lower()
    kind = next((kind for mark, kind in WITHIN.get(verdict, ()) if mark in text), None)
    return (
        (kind, "")
        if kind
        else (kind_of(_classify_text(summary)) if kind_of(_classify_text(summary)) in _ALONE else None, "")
    )


def _with_kind(reason: str, kind: NoteKind) -> str:
    return reason if kind_of(reason) is not NoteKind.PLAIN else Note(kind, reason)


_ALONE = (NoteKind.EXPIRED, NoteKind.BUDGET, NoteKind.OTHER_PRODUCT, NoteKind.MIXED_PATHS)
"""Kinds that a summary can show without the reasons."""
