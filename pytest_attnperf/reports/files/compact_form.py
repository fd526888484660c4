"""What makes results.json small without leaving anything out: three rules for how a run is written.

    shared     what cases and kernels have in common stands once, at the top, in `shared`; a case holds its number there
    rows       a comparison with a reference is a list of values, whose names are `shared.columns`
    defaults   a field of a case or a kernel that has its default is left out

The tables of `shared` have the names of fields: `fingerprint`, `policy`, `config`, `figures`, `sources` and `reproduce`
hold what a case refers to with one number, `launches` and `code` what it refers to with a list of numbers. A compiled
kernel refers to the same tables, and with `stored` to `code`, with `stored_occupancy` to `occupancy`. An entry of
`sources` is a list of numbers of `files`, which are [path, hash]; one of `reproduce` is what stands before and after
the case's node id. The first value of a row is the number of its [check, output] in `compared`.

Written since schema 2. A file of schema 1 holds everything in full, in its place.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import typing
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from pytest_attnperf.records import ErrorFigures
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.results import CaseResult

Json: TypeAlias = Any

COMPACT_SINCE = 2
"""The first schema of this form."""

ONE = {
    "cases": {name: name for name in ("fingerprint", "policy", "config", "figures")},
    "code": {
        **{name: name for name in ("policy", "config", "occupancy", "code")},
        "stored": "code",
        "stored_occupancy": "occupancy",
    },
}
"""Of cases and of compiled kernels: fields whose value stands in a table, and the table's name."""

SEVERAL = {"cases": ("launches", "code"), "code": ()}
"""Fields that list entries of the table of their name."""

RECORDS = {"cases": CaseResult, "code": CodeResult}

VALUES = ("fingerprint", "policy", "config", "figures", "launches", "code", "occupancy")
"""Tables whose entries are what a case or a kernel would hold."""

SELDOM = (
    *("around_first", "around_got", "around_expected", "nan_count", "inf_count", "finite_count"),
    *("beyond_count", "beyond_first", "beyond_last"),
)
"""Columns that are 0 or empty for what is right: last, so that a row may end before them."""

COMPARED = ("check", "output")
"""Fields of ErrorFigures that a row has as one number."""

COLUMNS = (
    "compared",
    *(field.name for field in dataclasses.fields(ErrorFigures) if field.name not in (*COMPARED, *SELDOM)),
    *SELDOM,
)
"""What the values of a row are."""


class _Table:
    """Values, each once, numbered in the order in which they come."""

    def __init__(self) -> None:
        self.values: list[Json] = []
        self._numbers: dict[bytes, int] = {}

    def number(self, value: Json, stored: Callable[[], Json] | None = None) -> int:
        """The number of a value. What is kept of a new one is `stored`, itself by default."""
        key = msgspec.json.encode(value)
        if key not in self._numbers:
            kept = stored() if stored else value
            self._numbers[key] = len(self.values)
            self.values.append(kept)
        return self._numbers[key]


def compact(values: Json) -> Json:
    """A run as `msgspec.to_builtins` gives it, in the form that is written. The cases of `values` are changed."""
    tables = {name: _Table() for name in ("files", "sources", "reproduce", "compared", *VALUES)}
    for kind, record in RECORDS.items():
        for case in values[kind]:
            _leave_out_defaults(case, record)
            _refer(case, kind, tables)
    shared = {"columns": list(COLUMNS), **{name: table.values for name, table in tables.items() if table.values}}
    return {"schema": values.pop("schema"), "shared": shared, **values}


def _refer(case: dict[str, Json], kind: str, tables: dict[str, _Table]) -> None:
    """Put numbers in the place of what is shared."""
    for name, table in ONE[kind].items():
        if case.get(name) is not None:
            case[name] = tables[table].number(case[name])
    for name in SEVERAL[kind]:
        if name in case:
            case[name] = [tables[name].number(item) for item in case[name]]
    if "sources" in case:
        files = case["sources"].items()
        case["sources"] = tables["sources"].number(
            case["sources"], lambda: [tables["files"].number([path, digest]) for path, digest in files]
        )
    if "reproduce" in case:
        before, named, after = case["reproduce"].partition(case["nodeid"])
        case["reproduce"] = tables["reproduce"].number([before, after] if named else [before])
    for check in case.get("checks", ()):
        if "figures" in check:
            check["figures"] = [_row(figures, tables["compared"]) for figures in check["figures"]]


def _row(figures: dict[str, Json], compared: _Table) -> list[Json]:
    """Values by column; what is left out at the end has its default."""
    last = max(number for number, name in enumerate(COLUMNS) if name in figures)
    first = compared.number([figures[name] for name in COMPARED])
    return [first, *(figures.get(name, _DEFAULT_CELLS.get(name)) for name in COLUMNS[1 : last + 1])]


def _leave_out_defaults(value: dict[str, Json], record: type) -> None:
    """Remove the fields of a record that have their defaults, and those of the records that it holds."""
    for name, default, inner, mapped in _fields(record):
        held = value.get(name)
        if held == default and type(held) is type(default):
            value.pop(name, None)
        elif inner is not None and held:
            several = itertools.chain.from_iterable(held.values()) if mapped else held
            for one in several if mapped or isinstance(held, (list, tuple)) else (held,):
                _leave_out_defaults(one, inner)


_REQUIRED = object()
"""Stands for the default of a field that has none: equal to nothing that a file holds."""


@functools.cache
def _fields(record: type) -> list[tuple[str, Json, type | None, bool]]:
    """(name, default as JSON has it, the record that it holds or None, whether in a mapping) of each field that has a
    default or holds records."""
    hints = typing.get_type_hints(record)
    found = []
    for field in dataclasses.fields(record):
        default, inner = _default(field), _held_record(hints[field.name])
        if default is not _REQUIRED or inner is not None:
            found.append((field.name, default, inner, typing.get_origin(hints[field.name]) is dict))
    return found


def _default(field: dataclasses.Field[Any]) -> Json:
    if field.default is not dataclasses.MISSING:
        return msgspec.to_builtins(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return msgspec.to_builtins(field.default_factory())
    return _REQUIRED


def _held_record(hint: Json) -> type | None:
    """The dataclass that a type is, or is a union, tuple or mapping of."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    return next(filter(None, map(_held_record, typing.get_args(hint))), None)


_DEFAULT_CELLS = {name: default for name, default, _, _ in _fields(ErrorFigures)}
