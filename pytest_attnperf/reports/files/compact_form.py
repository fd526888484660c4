"""Makes results.json small without losing anything: three rules for how a run is written and read again.

    shared     what cases and kernels have in common is stored once, in `shared` at the top; a case holds its number
    rows       a comparison with a reference is a list of values, whose names are `shared.columns`
    defaults   a field of a case or a kernel that has its default is left out

The tables of `shared` are named after fields. A case refers with one number to `fingerprint`, `policy`, `config`,
`figures`, `sources` and `reproduce`, and with a list of numbers to `launches` and `code`. A compiled kernel refers to
the same tables; its `stored` refers to `code`, and its `stored_occupancy` to `occupancy`. An entry of `sources` is a
list of numbers of `files`, which are [path, hash]. An entry of `reproduce` is the text before and after the case's node
id. The first value of a row is the number of its [check, output] in `compared`.

A short file must not expand to more memory than a long one could, so the bytes that it refers to are counted. Written
since schema 2; a file of schema 1 holds everything in full, in its place.
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
"""The first schema with this form."""

ONE = {
    "cases": {name: name for name in ("fingerprint", "policy", "config", "figures")},
    "code": {
        **{name: name for name in ("policy", "config", "occupancy", "code")},
        "stored": "code",
        "stored_occupancy": "occupancy",
    },
}
"""Fields of cases and of compiled kernels whose value is stored in a table, and the table's name."""

SEVERAL = {"cases": ("launches", "code"), "code": ()}
"""Fields that hold a list of entries of the table with their name."""

RECORDS = {"cases": CaseResult, "code": CodeResult}

VALUES = ("fingerprint", "policy", "config", "figures", "launches", "code", "occupancy")
"""Tables whose entries are values that a case or a kernel would hold itself."""

SELDOM = (
    *("around_first", "around_got", "around_expected", "nan_count", "inf_count", "finite_count"),
    *("beyond_count", "beyond_first", "beyond_last"),
)
"""Columns that are 0 or empty for a right output. They come last, so that a row may end before them."""

COMPARED = ("check", "output")
"""Fields of ErrorFigures that a row holds as one number."""

COLUMNS = (
    "compared",
    *(field.name for field in dataclasses.fields(ErrorFigures) if field.name not in (*COMPARED, *SELDOM)),
    *SELDOM,
)
"""Names of the values of a row."""

TABLES = ("columns", "files", "sources", "reproduce", "compared", *VALUES)

FULL_BYTES_MAX = 1 << 30
"""Most bytes that a file may expand to. A file itself may be that long."""


class _ValueTable:
    """Values without duplicates, numbered in the order in which they are added."""

    def __init__(self) -> None:
        self.values: list[Json] = []
        self._numbers: dict[bytes, int] = {}

    def add_value(self, value: Json, stored: Callable[[], Json] | None = None) -> int:
        """Returns the number of a value in this table, adding it if it is new. `stored` makes the form to keep;
        default: itself."""
        key = msgspec.json.encode(value)
        if key not in self._numbers:
            kept = stored() if stored else value
            self._numbers[key] = len(self.values)
            self.values.append(kept)
        return self._numbers[key]


def compact_values(values: Json) -> Json:
    """Returns a run's builtins without defaults and repeated values. Changes the cases in `values` in place."""
    tables = {name: _ValueTable() for name in ("files", "sources", "reproduce", "compared", *VALUES)}
    for kind, record in RECORDS.items():
        for case in values[kind]:
            _leave_out_defaults(case, record)
            _replace_by_numbers(case, kind, tables)
    shared = {"columns": list(COLUMNS), **{name: table.values for name, table in tables.items() if table.values}}
    return {"schema": values.pop("schema"), "shared": shared, **values}


def _replace_by_numbers(case: dict[str, Json], kind: str, tables: dict[str, _ValueTable]) -> None:
    """Replaces a case's shared values by their numbers in `tables`, in place; adds new values to `tables`."""
    for name, table in ONE[kind].items():
        if case.get(name) is not None:
            case[name] = tables[table].add_value(case[name])
    for name in SEVERAL[kind]:
        if name in case:
            case[name] = [tables[name].add_value(item) for item in case[name]]
    if "sources" in case:
        files = case["sources"].items()
        case["sources"] = tables["sources"].add_value(
            case["sources"], lambda: [tables["files"].add_value([path, digest]) for path, digest in files]
        )
    if "reproduce" in case:
        before, named, after = case["reproduce"].partition(case["nodeid"])
        case["reproduce"] = tables["reproduce"].add_value([before, after] if named else [before])
    for check in case.get("checks", ()):
        if "figures" in check:
            check["figures"] = [_build_row(figures, tables["compared"]) for figures in check["figures"]]


def _build_row(figures: dict[str, Json], compared: _ValueTable) -> list[Json]:
    """Returns the figures of one compared output as a list in the order of COLUMNS, without defaults at its end."""
    last = max(number for number, name in enumerate(COLUMNS) if name in figures)
    first = compared.add_value([figures[name] for name in COMPARED])
    return [first, *(figures.get(name, _DEFAULT_CELLS.get(name)) for name in COLUMNS[1 : last + 1])]


def _leave_out_defaults(value: dict[str, Json], record: type) -> None:
    """Removes the fields of `value`, the builtins of a `record`, that have their defaults, in place and recursively."""
    for name, default, inner, mapped in _list_fields(record):
        held = value.get(name)
        if held == default and type(held) is type(default):
            value.pop(name, None)
        elif inner is not None and held:
            several = itertools.chain.from_iterable(held.values()) if mapped else held
            for one in several if mapped or isinstance(held, (list, tuple)) else (held,):
                _leave_out_defaults(one, inner)


_REQUIRED = object()
"""Default of a field that has none. It equals nothing that a file can hold."""


@functools.cache
def _list_fields(record: type) -> list[tuple[str, Json, type | None, bool]]:
    """Returns (name, default in JSON, record type that it holds or None, whether in a mapping) for each field that has
    a default or holds records."""
    hints = typing.get_type_hints(record)
    found = []
    for field in dataclasses.fields(record):
        default, inner = _read_default(field), _find_record_type(hints[field.name])
        if default is not _REQUIRED or inner is not None:
            found.append((field.name, default, inner, typing.get_origin(hints[field.name]) is dict))
    return found


def _read_default(field: dataclasses.Field[Any]) -> Json:
    if field.default is not dataclasses.MISSING:
        return msgspec.to_builtins(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return msgspec.to_builtins(field.default_factory())
    return _REQUIRED


def _find_record_type(hint: Json) -> type | None:
    """Returns the dataclass that a type is or contains (in a union, tuple or mapping), else None."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    return next(filter(None, map(_find_record_type, typing.get_args(hint))), None)


_DEFAULT_CELLS = {name: default for name, default, _, _ in _list_fields(ErrorFigures)}


class CompactFormError(ValueError):
    """A number refers to no entry, or a table has another form. The message names the field and what it must be."""


def expand_values(values: Json) -> Json:
    """Returns the run's builtins with the shared values back in place of numbers; defaults stay left out.

    Raises CompactFormError for an invalid `shared`, and for a number that refers to no entry of it. Other invalid parts
    are left to the reader of the whole run, which names them.
    """
    tables = _Tables(values.pop("shared", {}))
    for kind in ONE:
        cases = values.get(kind)
        for number, case in enumerate(cases if isinstance(cases, list) else ()):
            if isinstance(case, dict):
                tables.put_back(case, kind, f"$.{kind}[{number}]")
    return values


class _Tables:
    """The tables of one file."""

    def __init__(self, shared: Json) -> None:
        if not isinstance(shared, dict):
            raise CompactFormError("$.shared must be an object of tables")
        self._bytes = 0
        self._tables = {name: _require_list(shared.get(name, []), f"$.shared.{name}") for name in TABLES}
        self._columns = _require_texts(self._tables["columns"], "$.shared.columns")
        if len(set(self._columns)) < len(self._columns):
            raise CompactFormError("$.shared.columns names a column twice")
        for name, parts in (("files", (2,)), ("compared", (len(COMPARED),)), ("reproduce", (1, 2))):
            for place, entry in enumerate(self._tables[name]):
                _check_text_count(entry, parts, f"$.shared.{name}[{place}]")
        sets = self._tables["sources"]
        self._tables["sources"] = [self._restore_files(one, f"$.shared.sources[{at}]") for at, one in enumerate(sets)]
        self._sizes = {
            name: [len(msgspec.json.encode(entry)) for entry in entries] for name, entries in self._tables.items()
        }

    def put_back(self, case: dict[str, Json], kind: str, where: str) -> None:
        """Replaces, in place, all numbers in a case or kernel by the values they refer to. Raises CompactFormError
        naming `where`."""
        for name, table in (("sources", "sources"), *ONE[kind].items()):
            if case.get(name) is not None:
                case[name] = self._read_entry(table, case[name], f"{where}.{name}")
        for name in SEVERAL[kind]:
            if name in case:
                numbers = _require_list(case[name], f"{where}.{name}")
                case[name] = [self._read_entry(name, one, f"{where}.{name}[{at}]") for at, one in enumerate(numbers)]
        if "reproduce" in case and isinstance(case.get("nodeid"), str):
            case["reproduce"] = case["nodeid"].join(
                self._read_entry("reproduce", case["reproduce"], f"{where}.reproduce")
            )
        checks = case.get("checks")
        for number, check in enumerate(checks if isinstance(checks, list) else ()):
            rows = check.get("figures") if isinstance(check, dict) else None
            if isinstance(rows, list):
                place = f"{where}.checks[{number}].figures"
                check["figures"] = [self._restore_figures(row, f"{place}[{at}]") for at, row in enumerate(rows)]

    def _restore_figures(self, row: Json, where: str) -> Json:
        if not isinstance(row, list):
            return row
        if len(row) > len(self._columns):
            raise CompactFormError(
                f"{where} has {len(row)} values, but $.shared.columns names only {len(self._columns)}"
            )
        figures = dict(zip(self._columns, row, strict=False))
        compared = self._read_entry("compared", figures.pop("compared", None), where)
        return {**figures, **dict(zip(COMPARED, compared, strict=True))}

    def _restore_files(self, numbers: Json, where: str) -> dict[str, str]:
        """Returns path -> hash of the files that `numbers` refer to. Raises CompactFormError for a duplicate path."""
        found: dict[str, str] = {}
        files = self._tables["files"]
        for place, number in enumerate(_require_list(numbers, where)):
            path, digest = files[_require_number(number, files, f"{where}[{place}]", "files")]
            if path in found:
                raise CompactFormError(f"{where} names {path[:100]!r} twice")
            self._spend_bytes(len(path) + len(digest), where)
            found[path] = digest
        return found

    def _read_entry(self, name: str, number: Json, where: str) -> Json:
        entry = _require_number(number, self._tables[name], where, name)
        self._spend_bytes(self._sizes[name][entry], where)
        return self._tables[name][entry]

    def _spend_bytes(self, count: int, where: str) -> None:
        self._bytes += count
        if self._bytes > FULL_BYTES_MAX:
            raise CompactFormError(f"{where} and the parts before it refer to more than {FULL_BYTES_MAX} bytes")


def _require_list(value: Json, where: str) -> list[Json]:
    if not isinstance(value, list):
        raise CompactFormError(f"{where} must be a list")
    return value


def _require_texts(values: list[Json], where: str) -> list[str]:
    for place, value in enumerate(values):
        if not isinstance(value, str):
            raise CompactFormError(f"{where}[{place}] must be a text")
    return values


def _check_text_count(entry: Json, counts: tuple[int, ...], where: str) -> None:
    if len(_require_texts(_require_list(entry, where), where)) not in counts:
        raise CompactFormError(f"{where} must hold {' or '.join(map(str, counts))} texts")


def _require_number(number: Json, table: list[Json], where: str, name: str) -> int:
    """Returns `number` if it is an index of `table`; else raises CompactFormError with `where` and the table's name."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise CompactFormError(f"{where} must be the number of an entry of $.shared.{name}")
    if not 0 <= number < len(table):
        raise CompactFormError(f"{where} is {number}, but $.shared.{name} has {len(table)} entries, numbered from 0")
    return number
