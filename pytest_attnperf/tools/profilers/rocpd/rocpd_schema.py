"""Examines a rocpd database before its rows are read: its tables, their processes, and which processes belong to one
run.

Every process has its own set of tables with a suffix. Views of the same names without the suffix may exist; they are
not used. Also parses single values, because SQLite does not enforce declared types, and sums hardware counters by
kernel and grid.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.records.counters import plain_name
from pytest_attnperf.records.profiles import Size3
from pytest_attnperf.tools.profilers.timed_rows import LONGEST_NS

MAGIC = b"SQLite format 3\0"
_WAL = 2
"""Value of the header's byte 18 if the journal is a write-ahead log."""

_WAIT_S = 0.3
"""Seconds to wait for a process that is writing; such a file is incomplete anyway."""

MAJOR = "3"
"""Major number of the known schema versions: 3 (ROCm 7.0) to 3.0.5."""

DISPATCHES, COPIES, REGIONS = "rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region"
EVENTS, STRINGS, PROCESSES, NODES = "rocpd_event", "rocpd_string", "rocpd_info_process", "rocpd_info_node"
AGENTS, SYMBOLS, METADATA = "rocpd_info_agent", "rocpd_info_kernel_symbol", "rocpd_metadata"
COUNTER_NAMES, COUNTER_VALUES = "rocpd_info_pmc", "rocpd_pmc_event"
_READ = (
    *(DISPATCHES, COPIES, REGIONS, EVENTS, STRINGS, PROCESSES, NODES),
    *(AGENTS, SYMBOLS, METADATA, COUNTER_NAMES, COUNTER_VALUES),
)
_NAME = re.compile(rf"({'|'.join(_READ)})(_[0-9A-Za-z_]{{1,80}})?")
"""Matches the only names that become part of a statement. rocprofv3 adds an underscore and a UUID with underscores."""

_OTHER = re.compile(r"rocpd_(api|op|kernelapi|monitor)")
"""Tables of rocmProfileData (.rpd), an older format with similar names."""

Key = tuple[str, "int | None", str]
"""(kernel, work-items of its grid, counter)."""


@dataclass(frozen=True)
class ProcessTables:
    """The tables of one process: columns by table name without the suffix."""

    suffix: str
    columns: dict[str, frozenset[str]]

    def list_missing(self, table: str, wanted: Sequence[str]) -> list[str]:
        """Returns the wanted columns that the table lacks; all of them if there is no such table."""
        return [column for column in wanted if column not in self.columns.get(table, ())]

    def quote_name(self, table: str) -> str:
        """Returns the quoted SQL name of an existing table, with the suffix of the process."""
        assert table in self.columns
        return f'"{table}{self.suffix}"'


@dataclass(frozen=True)
class Process:
    """One process of the file. `begin` and `end` are nanoseconds of its machine's clock; None if not known."""

    tables: ProcessTables
    pid: int | None = None
    machine: str = ""
    begin: int | None = None
    end: int | None = None
    version: str = ""
    dispatches: int = 0

    def can_share_run(self, other: Process) -> bool:
        """Returns whether this process and `other` can be of one run: on one machine and, if known, at one time."""
        if self.machine != other.machine:
            return False
        if self.begin is None or self.end is None or other.begin is None or other.end is None:
            return True
        return self.begin <= other.end and other.begin <= self.end


def is_sqlite(path: Path) -> bool:
    """Returns whether a file begins like every SQLite database."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def open_database(path: Path) -> sqlite3.Connection:
    """Opens a database read-only. SQLite may make a -shm file next to it if it has a -wal file, but no other. Raises
    ProfileError if it is no SQLite database, or cannot be opened."""
    if not is_sqlite(path):
        raise ProfileError(
            f"{path} is no SQLite database: it does not begin with 'SQLite format 3'. Give the _results.db of "
            "rocprofv3; CSV files need no conversion"
        )
    with path.open("rb") as file:
        write_ahead = file.read(19)[18:] == bytes([_WAL])
    log = path.with_name(f"{path.name}-wal")
    # A closed database in this mode has no log; opening it without `immutable` would make one.
    closed = write_ahead and not (log.is_file() and log.stat().st_size)
    uri = f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if closed else ''}"
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=_WAIT_S)
    except sqlite3.Error as error:
        raise make_read_error(path, error) from error
    connection.text_factory = lambda text: text.decode("utf-8", errors="replace")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    return connection


def make_read_error(path: Path, error: sqlite3.Error) -> ProfileError:
    """Returns an error with SQLite's message and advice: the file is being written, was not closed, or is damaged."""
    said = str(error)
    if "locked" in said or "busy" in said:
        todo = "another process is writing it: wait until rocprofv3 has ended"
    elif "unable to open" in said or "readonly" in said:
        todo = (
            "it was not closed: the files next to it (-wal, -journal) belong to it. Copy all of them into a folder "
            "that can be written, and open and close the copy once with: sqlite3 COPY 'SELECT 1'"
        )
    else:
        todo = (
            "it is cut short or damaged. Copy it again and compare the sizes; or convert what is left: "
            "sqlite3 FILE .recover | sqlite3 NEW"
        )
    return ProfileError(f"{path}: SQLite says {said!r}; {todo}")


def list_processes(connection: sqlite3.Connection, path: Path) -> list[Process]:
    """Returns every process that has a table of dispatches. Raises ProfileError if the database is no rocpd."""
    try:
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = sorted(str(name) for (name,) in listed)
    except UnicodeDecodeError as error:  # SQLite's own message quotes a damaged name
        raise make_read_error(path, sqlite3.DatabaseError("malformed database schema")) from error
    by_suffix: dict[str, dict[str, frozenset[str]]] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match:
            columns = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
            by_suffix.setdefault(match[2] or "", {})[match[1]] = frozenset(str(column[1]) for column in columns)
    found = [_read_process(connection, ProcessTables(suffix, tables), path) for suffix, tables in by_suffix.items()]
    found = [process for process in found if DISPATCHES in process.tables.columns]
    if not found:
        raise _make_format_error(path, names)
    return found


def _make_format_error(path: Path, names: Sequence[str]) -> ProfileError:
    listed = ", ".join(repr(name) for name in names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    hint = "Make one with: rocprofv3 --kernel-trace --output-format rocpd -- PROGRAM (ROCm 7.0 or later)"
    if any(_OTHER.fullmatch(name) for name in names):
        hint = f"It looks like a trace of rocmProfileData (.rpd), another format. {hint}"
    return ProfileError(
        f"{path} is a SQLite database but no rocpd: it has no table rocpd_kernel_dispatch, with or without a process's "
        f"suffix; it has {listed or 'no tables'}. {hint}"
    )


def _read_process(connection: sqlite3.Connection, tables: ProcessTables, path: Path) -> Process:
    said = {str(tag): str(value) for tag, value in read_rows(connection, tables, METADATA, ("tag", "value"))}
    version = said.get("schema_version", "")
    if version and version.partition(".")[0] != MAJOR:
        raise ProfileError(
            f"{path} has rocpd schema version {version!r}; known is version {MAJOR}, of ROCm 7.0 and later. Convert it "
            f"with the ROCm that wrote it, and read the folder of CSV files: rocpd convert -i {path.name} -f csv"
        )
    columns = ("pid", "nid", "init", "start", "fini", "end")
    process = next(read_rows(connection, tables, PROCESSES, columns), (None,) * len(columns))
    pid, node, *times = (value if isinstance(value, int) else None for value in process)
    init, start, fini, end = times
    machines = {row[0]: str(row[1]) for row in read_rows(connection, tables, NODES, ("id", "machine_id"))}
    count = 0
    if DISPATCHES in tables.columns:
        (count,) = connection.execute(f"SELECT COUNT(*) FROM {tables.quote_name(DISPATCHES)}").fetchone()
    return Process(
        tables=tables,
        pid=pid,
        machine=machines.get(node, str(node or "")),
        begin=init if init is not None else start,
        end=fini if fini is not None else end,
        version=version,
        dispatches=count,
    )


def split_by_run(processes: Sequence[Process]) -> tuple[list[Process], list[Process]]:
    """Returns the processes of the run with the most dispatches, and the processes of all other runs."""
    runs: list[list[Process]] = []
    for process in processes:
        met = [run for run in runs if any(process.can_share_run(other) for other in run)]
        runs = [run for run in runs if run not in met] + [[process, *(one for run in met for one in run)]]
    largest = max(runs, key=lambda run: sum(process.dispatches for process in run))
    chosen = [process for process in processes if process in largest]
    return chosen, [process for process in processes if process not in largest]


def read_rows(
    connection: sqlite3.Connection, tables: ProcessTables, table: str, columns: Sequence[str]
) -> Iterator[tuple[object, ...]]:
    """Yields the wanted columns of all rows, None for a missing column; nothing if the process has no such table."""
    if table not in tables.columns:
        return iter(())
    lacking = tables.list_missing(table, columns)
    # SQLite reads a quoted name that is no column as a text.
    listed = ", ".join("NULL" if column in lacking else f'"{column}"' for column in columns)
    return connection.execute(f"SELECT {listed} FROM {tables.quote_name(table)}")


def parse_text(value: object) -> str:
    """Returns a database value if it is a text, '' otherwise."""
    return value if isinstance(value, str) else ""


def parse_count(value: object) -> int | None:
    """Returns a database value if it is a whole number from 0, None otherwise."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def parse_size3(values: tuple[object, ...]) -> Size3 | None:
    """Returns three database values as (x, y, z) if all are whole numbers from 0, None otherwise."""
    x, y, z = (parse_count(value) for value in values)
    return None if x is None or y is None or z is None else (x, y, z)


class Times:
    """Checks starts and ends of one table, and counts unusable ones by what is wrong with them.

    first    the first row of each kind of error: its id, start and end as text
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.good = 0
        self.bad: Counter[str] = Counter()
        self.first: dict[str, str] = {}

    def is_usable(self, start: object, end: object, number: object) -> bool:
        """Returns whether `start` and `end` are nanoseconds, in order and at most a day apart; counts the row as good,
        or as bad with the reason. `number` is the row's id."""
        if type(start) is not int or type(end) is not int or start < 0:
            how = "have a start or end that is no whole number from 0"
        elif not end:
            how = "have no times"
        elif end < start:
            how = "end before they start"
        elif end - start > LONGEST_NS:
            how = "take more than a day"
        else:
            self.good += 1
            return True
        self.bad[how] += 1
        self.first.setdefault(how, f"id {number!r:.40}: start {start!r:.40}, end {end!r:.40}")
        return False


def read_counter_values(connection: sqlite3.Connection, tables: ProcessTables) -> tuple[dict[Key, list[float]], int]:
    """Returns (kernel, work-items, counter) -> values, one per dispatch, and how many values are no numbers.

    Values of one counter and dispatch are summed, as rocpd's own view does, because each instance of a unit has a row.
    Rows without a dispatch are events of the driver."""
    values, odd = _sum_counters(connection, tables)
    found: dict[Key, list[float]] = defaultdict(list)
    if not values:
        return found, odd
    names = {row[0]: parse_text(row[1]) for row in read_rows(connection, tables, COUNTER_NAMES, ("id", "name"))}
    symbols = {
        row[0]: parse_text(row[1]) or parse_text(row[2])
        for row in read_rows(connection, tables, SYMBOLS, ("id", "display_name", "kernel_name"))
    }
    columns = ("event_id", "kernel_id", "grid_size_x", "grid_size_y", "grid_size_z")
    launches = {row[0]: row[1:] for row in read_rows(connection, tables, DISPATCHES, columns) if row[0] is not None}
    for (event, counter), value in values.items():
        if event in launches and names.get(counter):
            kernel, *grid = launches[event]
            sizes = parse_size3(tuple(grid))
            name = plain_name(symbols.get(kernel) or f"kernel {kernel!r}")
            found[name, math.prod(sizes) if sizes else None, names[counter]].append(value)
    return found, odd


def _sum_counters(
    connection: sqlite3.Connection, tables: ProcessTables
) -> tuple[dict[tuple[object, object], float], int]:
    """Returns (event id, counter id) -> sum of values, and how many values are no numbers. Skips values that
    were sampled over time, because they belong to no dispatch."""
    values: dict[tuple[object, object], float] = defaultdict(float)
    odd = 0
    columns = ("event_id", "pmc_id", "value", "sample_id")
    for event, counter, value, sample in read_rows(connection, tables, COUNTER_VALUES, columns):
        if sample is not None:
            continue  # belongs to samples over time, not to a dispatch
        if isinstance(value, (int, float)) and math.isfinite(value):
            values[event, counter] += value
        else:
            odd += 1
    return values, odd
