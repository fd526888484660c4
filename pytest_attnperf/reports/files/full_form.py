"""A run in full from its compact form (`compact_form`), as far as a stranger's numbers refer to anything.

A short file must not stand for more memory than a long one could: what it refers to is counted.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from pytest_attnperf.reports.files.compact_form import COMPARED, ONE, SEVERAL, VALUES

Json: TypeAlias = Any

TABLES = ("columns", "files", "sources", "reproduce", "compared", *VALUES)

FULL_BYTES_MAX = 1 << 30
"""What a file may stand for, written in full: as much as a file may be long."""


class BadReferenceError(ValueError):
    """A number that refers to nothing, or a table of another form; says the field and what it must be."""


def in_full(values: Json) -> Json:
    """What `compact` made, with everything in its place; cases share parts, and defaults stay away.

    Raises BadReferenceError. What is malformed otherwise is left for the reader of the whole run, who names it.
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
            raise BadReferenceError("$.shared must be an object of tables")
        self._bytes = 0
        self._tables = {name: _list(shared.get(name, []), f"$.shared.{name}") for name in TABLES}
        self._columns = _names(self._tables["columns"], "$.shared.columns")
        if len(set(self._columns)) < len(self._columns):
            raise BadReferenceError("$.shared.columns names a column twice")
        for name, parts in (("files", (2,)), ("compared", (len(COMPARED),)), ("reproduce", (1, 2))):
            for place, entry in enumerate(self._tables[name]):
                _texts(entry, parts, f"$.shared.{name}[{place}]")
        sets = self._tables["sources"]
        self._tables["sources"] = [self._files(one, f"$.shared.sources[{at}]") for at, one in enumerate(sets)]
        self._sizes = {
            name: [len(msgspec.json.encode(entry)) for entry in entries] for name, entries in self._tables.items()
        }

    def put_back(self, case: dict[str, Json], kind: str, where: str) -> None:
        """Everything that a case, or a compiled kernel, refers to by numbers, in their places."""
        for name, table in (("sources", "sources"), *ONE[kind].items()):
            if case.get(name) is not None:
                case[name] = self._entry(table, case[name], f"{where}.{name}")
        for name in SEVERAL[kind]:
            if name in case:
                numbers = _list(case[name], f"{where}.{name}")
                case[name] = [self._entry(name, one, f"{where}.{name}[{at}]") for at, one in enumerate(numbers)]
        if "reproduce" in case and isinstance(case.get("nodeid"), str):
            case["reproduce"] = case["nodeid"].join(self._entry("reproduce", case["reproduce"], f"{where}.reproduce"))
        checks = case.get("checks")
        for number, check in enumerate(checks if isinstance(checks, list) else ()):
            rows = check.get("figures") if isinstance(check, dict) else None
            if isinstance(rows, list):
                place = f"{where}.checks[{number}].figures"
                check["figures"] = [self._figures(row, f"{place}[{at}]") for at, row in enumerate(rows)]

    def _figures(self, row: Json, where: str) -> Json:
        if not isinstance(row, list):
            return row
        if len(row) > len(self._columns):
            raise BadReferenceError(
                f"{where} has {len(row)} values, and $.shared.columns names {len(self._columns)} of them"
            )
        figures = dict(zip(self._columns, row, strict=False))
        compared = self._entry("compared", figures.pop("compared", None), where)
        return {**figures, **dict(zip(COMPARED, compared, strict=True))}

    def _files(self, numbers: Json, where: str) -> dict[str, str]:
        """A set of files, by their paths."""
        found: dict[str, str] = {}
        files = self._tables["files"]
        for place, number in enumerate(_list(numbers, where)):
            path, digest = files[_number(number, files, f"{where}[{place}]", "files")]
            if path in found:
                raise BadReferenceError(f"{where} names {path[:100]!r} twice")
            self._spend(len(path) + len(digest), where)
            found[path] = digest
        return found

    def _entry(self, name: str, number: Json, where: str) -> Json:
        entry = _number(number, self._tables[name], where, name)
        self._spend(self._sizes[name][entry], where)
        return self._tables[name][entry]

    def _spend(self, count: int, where: str) -> None:
        self._bytes += count
        if self._bytes > FULL_BYTES_MAX:
            raise BadReferenceError(f"{where} and what stands before it refer to more than {FULL_BYTES_MAX} bytes")


def _list(value: Json, where: str) -> list[Json]:
    if not isinstance(value, list):
        raise BadReferenceError(f"{where} must be a list")
    return value


def _names(values: list[Json], where: str) -> list[str]:
    for place, value in enumerate(values):
        if not isinstance(value, str):
            raise BadReferenceError(f"{where}[{place}] must be a text")
    return values


def _texts(entry: Json, counts: tuple[int, ...], where: str) -> None:
    if len(_names(_list(entry, where), where)) not in counts:
        raise BadReferenceError(f"{where} must hold {' or '.join(map(str, counts))} texts")


def _number(number: Json, table: list[Json], where: str, name: str) -> int:
    """The number of an entry of a table; where it stands and what the table is called are for errors."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise BadReferenceError(f"{where} must be the number of an entry of $.shared.{name}")
    if not 0 <= number < len(table):
        raise BadReferenceError(f"{where} is {number}, and $.shared.{name} has {len(table)} entries, numbered from 0")
    return number
