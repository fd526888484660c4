"""Splits a workload into a shape and a size. Regions run along the size; the shape is every other field.

Fields are those of the workload's class. A field that repeats another one (kv_heads = heads, seq_kv = seq_q) is left
out, so that regions of self-attention run along seq_q alone.
"""

from __future__ import annotations

import dataclasses
import keyword
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pytest_attnperf.errors import UnknownNameError, WorkloadError
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import parse_workload

Value: TypeAlias = int | float | bool | str | tuple[int, ...]

LINKED = {
    "kv_heads": "heads",
    "seq_kv": "seq_q",
    "head_dim_v": "head_dim",
    "seqs_kv": "seqs_q",
    "value_dim": "nope_dim",
}
"""Field -> the field that it equals by default."""

AXES = {"seq_kv": "kv", "seq_q": "s", "seq": "s", "past": "p", "rows": "r", "size_m": "m", "mib": "mib", "kib": "kib"}
"""Field that regions may run along -> its word in an id. The first one that a shape has is used."""

NEVER_DEFAULT = ("dtype",)
"""Fields that a caller must give, although the workload's class has a default."""


@dataclass(frozen=True)
class WorkloadShape:
    """Every field of a workload except its size.

    fields     by name, sorted; without the axis
    axis       name of the field that the size belongs to; '' if a workload has none (varlen, mixed)
    label      words of its id without family and size, e.g. 'b4 h8 d256 f16 causal'
    defaults   value of each field that a caller may leave out, by name, sorted
    """

    family: str
    fields: tuple[tuple[str, Value], ...]
    axis: str
    label: str = dataclasses.field(compare=False)
    defaults: tuple[tuple[str, Value], ...] = dataclasses.field(compare=False, default=())

    @property
    def order(self) -> tuple[str, ...]:
        """Sort key of a shape: family, label, axis, fields. Numbers in labels count by value, so d64 comes before
        d256."""
        label = re.sub(r"[0-9]+", lambda match: match[0].zfill(12), self.label)
        return self.family, label, self.axis, repr(self.fields)

    def find_value(self, name: str) -> Value | None:
        """Returns the value of the field `name`, None if the shape does not have it."""
        return dict(self.fields).get(name)


def parse_shape(workload: str, definition: Mapping[str, Any]) -> tuple[WorkloadShape, int]:
    """Splits a workload into its size (the value of one field, such as seq_q) and its shape (all other fields).

    Reads them from its id or, if its family is not built in, from its stored definition. The size is 0 if no field is
    one. Raises WorkloadError if an id of a built-in family cannot be read, or a definition holds values that a table
    cannot hold."""
    try:
        parsed = parse_workload(workload)
    except UnknownNameError as error:
        if not definition:
            raise WorkloadError(f"{error}; no definition is stored with it, so make the results again") from error
        return _shape_from_definition(workload, definition)
    return _shape_from_workload(parsed)


def _shape_from_workload(workload: Workload) -> tuple[WorkloadShape, int]:
    fields = {part.name: part for part in dataclasses.fields(workload)}  # type: ignore[arg-type]
    values: dict[str, Value] = {name: getattr(workload, name) for name in fields}
    repeated = _find_repeated(values)
    computed = LINKED.keys() | _usual_values(values).keys()
    defaults: dict[str, Value] = {
        name: part.default
        for name, part in fields.items()
        if part.default is not dataclasses.MISSING and name not in {*computed, *NEVER_DEFAULT}
    }
    kept = {name: value for name, value in values.items() if name not in repeated}
    axis = _choose_axis(kept)
    size = kept.pop(axis) if axis else 0
    word = re.compile(rf"{AXES.get(axis, '')}[0-9]+")
    words = [text for text in workload.id.split("-")[1:] if not (axis and word.fullmatch(text))]
    shape = WorkloadShape(
        workload.family, tuple(sorted(kept.items())), axis, " ".join(words), tuple(sorted(defaults.items()))
    )
    return shape, int(str(size))


def _find_repeated(values: Mapping[str, Value]) -> set[str]:
    """Returns the names of fields whose value is the default that follows from other fields, e.g. kv_heads = heads."""
    linked = {name for name, like in LINKED.items() if name in values and values[name] == values.get(like)}
    return linked | {name for name, usual in _usual_values(values).items() if values[name] == usual}


def _usual_values(values: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the default `room` (length of the KV cache) and `hidden` (elements of a token) of an attention layer,
    from its other fields; {} for other workloads."""
    seq, past, heads, head_dim = (values.get(name) for name in ("seq", "past", "heads", "head_dim"))
    if "room" not in values or not all(isinstance(value, int) for value in (seq, past, heads, head_dim)):
        return {}
    return {"room": int(str(seq)) + int(str(past)), "hidden": int(str(heads)) * int(str(head_dim))}


def _choose_axis(values: Mapping[str, Value]) -> str:
    """Returns the field that the size is taken from: the first of AXES with a positive number, but `past` before them
    if it is not 0; '' if there is none."""
    order = ("past", *AXES) if values.get("past") else AXES
    return next((name for name in order if _is_size(values.get(name))), "")


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _shape_from_definition(workload: str, definition: Mapping[str, Any]) -> tuple[WorkloadShape, int]:
    """Returns shape and size (0 without a size field) of a workload whose family is not built in, from its stored
    definition. The shape's defaults are its texts and floats, except dtype. Raises WorkloadError for invalid values."""
    family = definition.get("family", workload.split("-")[0])
    if not isinstance(family, str):
        raise WorkloadError(
            f"the stored definition of {workload!r} has the family {family!r}, which is no text; make the results again"
        )
    values = {name: _check_value(workload, name, value) for name, value in definition.items() if name != "family"}
    kept = {name: value for name, value in values.items() if name not in _find_repeated(values)}
    axis = _choose_axis(kept)
    size = kept.pop(axis) if axis else 0
    label = " ".join(f"{name}={value}" for name, value in sorted(kept.items()))
    defaults = {name: value for name, value in kept.items() if isinstance(value, (str, float))}
    usual = tuple(sorted((name, value) for name, value in defaults.items() if name not in NEVER_DEFAULT))
    return WorkloadShape(family, tuple(sorted(kept.items())), axis, label or family, usual), int(str(size))


def _check_value(workload: str, name: object, value: Any) -> Value:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise WorkloadError(
            f"the stored definition of {workload!r} has a field {name!r}; a name is a Python identifier, "
            "no keyword, and does not begin with _"
        )
    if isinstance(value, (list, tuple)) and all(isinstance(part, int) for part in value):
        return tuple(value)
    if isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise WorkloadError(
        f"the stored definition of {workload!r} has {name}={value!r}; a table takes numbers, texts and lists of numbers"
    )
