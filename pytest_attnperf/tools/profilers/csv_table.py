"""Reads CSV files of profilers: columns by name. Rows that do not fit are reported and left out; the rest is used."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.records.profiles import Problem
from pytest_attnperf.records.regular_file import open_regular

KEPT = 5
"""Most problems of one kind that are listed; the others are counted."""

HEAD_BYTES = 65536


class Problems:
    """Problems with the rows of one file. The first few of a kind are kept, the others counted."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._kept: list[tuple[int, str, str, bool]] = []
        self._seen: Counter[str] = Counter()

    def add(self, line: int, text: str, *, kind: str, column: str = "", lost: bool = True) -> None:
        """Adds one problem. Problems of one `kind` are counted together; `lost` says that the whole row is left out."""
        self._seen[kind] += 1
        if self._seen[kind] <= KEPT:
            self._kept.append((line, column, text, lost))

    def list_problems(self, rows: int) -> tuple[Problem, ...]:
        """Returns the kept problems by line, then one per kind that counts the others. `rows` is the number of used
        rows."""
        counted = "the other row is used" if rows == 1 else f"the other {rows} rows are used"
        others = counted if rows else "no row of this file can be used"
        found = [
            Problem(self._path, text, f"the row is left out, {others}" if lost else "the row is used", line, column)
            for line, column, text, lost in sorted(self._kept)
        ]
        for kind, count in self._seen.items():
            if count > KEPT:
                found.append(Problem(self._path, f"{count - KEPT} more rows of this kind: {kind}", others))
        return tuple(found)


class CsvTable:
    """An open CSV file. Iterating yields every row with as many values as there are columns; blank lines are skipped.

    `line` is the last line of the current row, counted from 1 with the line of columns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: tuple[str, ...] = read_columns(path)
        self.problems = Problems(path)
        self._file = path.open(encoding="utf-8-sig", errors="replace", newline="")
        self._reader = csv.reader(self._file)
        self._misfit: tuple[int, int] | None = None

    def __enter__(self) -> CsvTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def line(self) -> int:
        """Number of the current row's last line."""
        return self._reader.line_num

    def find_column(self, *names: str) -> str:
        """Returns the first of `names` that is a column of the file; '' if none is."""
        return next((name for name in names if name in self.columns), "")

    def column_index(self, name: str) -> int:
        """Returns the index of a column in every row. Raises ValueError if the file lacks it."""
        return self.columns.index(name)

    def check_columns(self, form: str, names: Sequence[str]) -> None:
        """Raises ProfileError unless each of `names` is a column exactly once. `form` is the file's kind, for the
        error."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise ProfileError(
                f"{self.path}: a {form} needs the columns {', '.join(names)}; missing: {', '.join(missing)}; the file "
                f"has: {', '.join(self.columns)}"
            )
        twice = [name for name in names if self.columns.count(name) > 1]
        if twice:
            count = self.columns.count(twice[0])
            raise ProfileError(f"{self.path}: column {twice[0]} occurs {count} times in line 1; keep one of them")

    def __iter__(self) -> Iterator[list[str]]:
        width = len(self.columns)
        reader = self._reader
        begun = False
        while True:
            try:
                if not begun:
                    next(reader, None)
                    begun = True
                for row in reader:
                    if len(row) == width:
                        yield row
                    elif row:
                        self._report_misfit(last=False)
                        self._misfit = (reader.line_num, len(row))
                break
            except csv.Error as error:
                begun = True
                self.problems.add(reader.line_num, f"cannot be read as CSV: {error}", kind="no CSV")
        self._report_misfit(last=self._misfit is not None and self._misfit[0] == reader.line_num)

    def _report_misfit(self, *, last: bool) -> None:
        """Adds a problem for the last row read if it has another number of values than columns. `last` says that it is
        the file's last row, which may be cut short."""
        if self._misfit is None:
            return
        line, values = self._misfit
        self._misfit = None
        text = f"has {values} values for {len(self.columns)} columns"
        missing = self.columns[values] if values < len(self.columns) else ""
        if last and missing:
            text = f"the last row is cut short: it {text}"
        self.problems.add(line, text, kind="another number of values than columns", column=missing)


def read_columns(path: Path) -> tuple[str, ...]:
    """Returns the column names in the first line. Raises ProfileError for an empty file and for one that is no text."""
    head = read_head(path)
    if not head.strip():
        raise ProfileError(f"{path} is empty ({len(head)} bytes); was the profiler stopped before it wrote?")
    text = head.decode("utf-8-sig", errors="replace")
    if b"\0" in head.partition(b"\n")[0] or text[:4096].count("�") > 16:
        raise ProfileError(f"{path} is no text (it begins with {head[:8]!r}); give a CSV of a profiler")
    try:
        return tuple(name.strip() for name in next(csv.reader(io.StringIO(text, newline="")), []))
    except csv.Error as error:
        raise ProfileError(f"{path}: the line of columns cannot be read: {error}") from error


def read_head(path: Path) -> bytes:
    """Returns the first 64 KiB of a file, or all if it is shorter. Raises ProfileError if it cannot be read."""
    try:
        with open_regular(path, ProfileError) as file:
            return file.read(HEAD_BYTES)
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror or error}") from error


def parse_whole_number(text: str) -> int | None:
    """Returns the number that a text of 1 to 18 digits shows, so that 64 bits hold it; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
