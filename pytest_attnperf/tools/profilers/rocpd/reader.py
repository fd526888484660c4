"""Reads rocprofv3's SQLite output (rocpd, the default since ROCm 7.0): dispatches, copies, API calls, agents, counters.

Every table is read once from end to end and names are looked up in Python, so that the cost grows with the file and not
with joins. Only names of known tables become part of a statement, nothing else of the file.

LDS is what each dispatch requested, including dynamic LDS (`group_segment_size` of the dispatch); rocprofv3's own CSV
has the static size of the kernel instead.
"""

from __future__ import annotations

import functools
import json
import sqlite3
import statistics
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.profiles import Agent, KernelShape, Problem, ProfileSource, Spread, StatsRow
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.rocpd.rocpd_schema import (
    AGENTS,
    COPIES,
    DISPATCHES,
    EVENTS,
    REGIONS,
    STRINGS,
    SYMBOLS,
    Process,
    ProcessTables,
    Times,
    list_processes,
    make_read_error,
    open_database,
    parse_count,
    parse_size3,
    parse_text,
    read_counter_values,
    read_rows,
    split_by_run,
)

_SIZES = ("workgroup_size_x", "workgroup_size_y", "workgroup_size_z", "grid_size_x", "grid_size_y", "grid_size_z")
_SHAPE = ("kernel_id", "agent_id", "private_segment_size", "group_segment_size", *_SIZES)
_NEEDED = ("kernel_id", "start", "end")
_NOT_CALLS = ("MARKER", "KFD")
"""Prefixes of categories of regions that are no API calls: ranges of roctx, events of the driver."""


@dataclass
class _Read:
    """Data read so far, of all processes."""

    path: str
    builder: DispatchesBuilder = field(default_factory=DispatchesBuilder)
    agents: list[Agent] = field(default_factory=list)
    calls: dict[str, list[Spread]] = field(default_factory=lambda: defaultdict(list))
    categories: set[str] = field(default_factory=set)
    counters: dict[tuple[str, int | None, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    problems: list[Problem] = field(default_factory=list)
    rows: int = 0
    replayed: int = 0

    def add_problem(self, text: str, used: str = "", column: str = "") -> None:
        """Adds a problem of the file, unless an equal one is there. `used` is a sentence on what is used in spite of
        it, or left out."""
        problem = Problem(self.path, text, used, column=column)
        if problem not in self.problems:
            self.problems.append(problem)


def read_rocpd(path: Path) -> Profile:
    """Returns the content of a rocpd database; of several runs, that of the one with the most dispatches.

    Raises ProfileError if it is no rocpd, has another schema, is damaged or being written, or holds nothing."""
    with closing(open_database(path)) as connection:
        try:
            return _read_database(connection, path)
        except sqlite3.Error as error:
            raise make_read_error(path, error) from error


def _read_database(connection: sqlite3.Connection, path: Path) -> Profile:
    processes, others = split_by_run(list_processes(connection, path))
    read = _Read(str(path))
    for process in processes:
        _read_process(connection, process.tables, read)
    if not len(read.builder) and not read.calls and not read.counters:
        raise ProfileError(
            f"{path} holds no kernel dispatch, no copy and no call of an API that can be used"
            + "".join(f"; {problem.text}" for problem in read.problems)
            + ". Record them with: rocprofv3 --kernel-trace --memory-copy-trace -- PROGRAM"
        )
    if others:
        pids = ", ".join(str(process.pid) for process in others)
        read.add_problem(
            f"processes {pids} belong to another run: on another machine, or ended before the others began",
            f"the {len(processes)} of the run with the most dispatches are used; merge the files of one run only",
        )
    return Profile(
        name=path.stem.removesuffix("_results"),
        sources=(ProfileSource(str(path), "rocpd", _format_version(processes), read.rows),),
        dispatches=read.builder.build(),
        stats=_make_stats(read),
        agents=tuple(dict.fromkeys(read.agents)),
        counters=_make_counters(read),
        problems=tuple(read.problems),
        notes=tuple(_list_notes(processes, read)),
    )


def _format_version(processes: list[Process]) -> str:
    versions = sorted({process.version for process in processes if process.version})
    return f"rocpd schema {' and '.join(versions)}, ROCm 7.0 or later" if versions else "rocpd"


def _list_notes(processes: list[Process], read: _Read) -> list[str]:
    notes = []
    if len(processes) > 1:
        pids = ", ".join(str(process.pid) for process in processes)
        notes.append(f"this file has {len(processes)} processes, and all are used: {pids}")
    if not any(process.dispatches for process in processes):
        notes.append("no kernel dispatch is in this file: rocprofv3 records them with --kernel-trace")
    if read.counters:
        notes.append(
            "hardware counters were read in this run, so kernels ran one at a time: take times from another run"
        )
    if read.replayed:
        notes.append(f"{read.replayed} dispatches are replays for further counters and are left out of the times")
    if {"HIP", "HSA"} <= {category.partition("_")[0] for category in read.categories}:
        notes.append("calls of HSA lie within calls of HIP: their times do not add up")
    return notes


def _read_process(connection: sqlite3.Connection, tables: ProcessTables, read: _Read) -> None:
    strings = {row[0]: parse_text(row[1]) for row in read_rows(connection, tables, STRINGS, ("id", "string"))}
    agents = _read_agents(connection, tables)
    read.agents += agents.values()
    if _has_columns(tables, DISPATCHES, _NEEDED, "dispatches", read):
        _read_dispatches(connection, tables, agents, read)
        _read_counters(connection, tables, read)
    if _has_columns(tables, COPIES, ("start", "end"), "copies", read):
        _read_copies(connection, tables, strings, agents, read)
    if _has_columns(tables, REGIONS, ("start", "end", "name_id"), "calls of APIs", read):
        _read_calls(connection, tables, strings, read)


def _has_columns(tables: ProcessTables, table: str, needed: tuple[str, ...], what: str, read: _Read) -> bool:
    """Returns whether a table has the needed columns; if not, adds a problem. `what` is the table's content, in
    words."""
    lacks = tables.list_missing(table, needed)
    if lacks and table not in tables.columns:
        read.add_problem(f"there is no table {table}{tables.suffix}", f"no {what} are read from it")
    elif lacks:
        has = ", ".join(sorted(tables.columns[table]))
        read.add_problem(f"{table} has no column {', '.join(lacks)}; it has: {has}", f"its {what} are not used")
    return not lacks


def _read_agents(connection: sqlite3.Connection, tables: ProcessTables) -> dict[object, Agent]:
    columns = ("id", "logical_index", "absolute_index", "type", "name", "product_name", "model_name", "extdata")
    found: dict[object, Agent] = {}
    for number, logical, absolute, kind, name, product, model, extra in read_rows(connection, tables, AGENTS, columns):
        more = _parse_json(extra)
        # rocprofv3 uses these names in CSV files unless --agent-index changes them.
        index = next(value for value in (logical, absolute, number, "?") if value is not None)
        arch = parse_text(name)
        gpu = parse_text(kind).lower() != "cpu"
        found[number] = Agent(
            name=f"Agent {index}",
            kind=parse_text(kind).lower() or "gpu",
            arch=arch if arch.startswith("gfx") else "",
            product=parse_text(product) or parse_text(model),
            compute_units=parse_count(more.get("cu_count")) or None if gpu else None,
            wave_size=parse_count(more.get("wave_front_size")) or None,
        )
    return found


def _parse_json(text: object) -> dict[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        value = {}
    return value if isinstance(value, dict) else {}


def _read_dispatches(
    connection: sqlite3.Connection, tables: ProcessTables, agents: dict[object, Agent], read: _Read
) -> None:
    columns = ("id", "kernel_name", "display_name", "arch_vgpr_count", "accum_vgpr_count", "sgpr_count")
    symbols = {row[0]: row[1:] for row in read_rows(connection, tables, SYMBOLS, columns)}
    numbers: dict[tuple[object, ...], int] = {}
    times = Times("dispatches")
    add, number_of, first_pass = read.builder.add, read.builder.number_of, _first_pass(connection, tables)
    cut = len(_SHAPE)
    queue_of = functools.cache(lambda stream, queue: read.builder.queue_number_of(_name_queue(stream, queue)))
    wanted = (*_SHAPE, "start", "end", "replay_pass", "id", "stream_id", "queue_id")
    for row in read_rows(connection, tables, DISPATCHES, wanted):
        start, end = row[cut], row[cut + 1]
        if not times.is_usable(start, end, row[cut + 3]):
            continue
        if row[cut + 2] not in (None, first_pass):
            read.replayed += 1
            continue
        key = row[:cut]
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = number_of(_make_shape(key, symbols.get(key[0]), agents, read))
        add(number, start, end, queue_of(row[cut + 4], row[cut + 5]))  # type: ignore[arg-type]  # checked by `usable`
    _add_times(times, read)


def _name_queue(stream: object, queue: object) -> str:
    """Returns 'stream 1', else 'queue 1'; '' if neither is a number."""
    for word, number in (("stream", stream), ("queue", queue)):
        if isinstance(number, int):
            return f"{word} {number}"
    return ""


def _first_pass(connection: sqlite3.Connection, tables: ProcessTables) -> object:
    """Returns the lowest replay pass: only its dispatches count, since later ones repeat them for further
    counters. None if the table has no such column or no number in it."""
    if tables.list_missing(DISPATCHES, ("replay_pass",)):
        return None
    return connection.execute(f"SELECT MIN(replay_pass) FROM {tables.quote_name(DISPATCHES)}").fetchone()[0]


def _make_shape(
    key: tuple[object, ...], symbol: tuple[object, ...] | None, agents: dict[object, Agent], read: _Read
) -> KernelShape:
    kernel, agent, scratch, lds = key[:4]
    name, vgprs, accum, sgprs = "", None, None, None
    if symbol is not None:
        name = parse_text(symbol[1]) or parse_text(symbol[0])
        vgprs, accum, sgprs = (parse_count(value) for value in symbol[2:])
    if not name:
        read.add_problem(f"kernel {kernel!r} has no name in {SYMBOLS}", f"it is called 'kernel {kernel!r}'")
    if agent is not None and agent not in agents:
        read.add_problem(f"agent {agent!r} of dispatches is not in {AGENTS}", "they are used, without a device")
    return KernelShape(
        name=name or f"kernel {kernel!r}",
        agent=agents[agent].name if agent in agents else "",
        workgroup=parse_size3(key[4:7]),
        grid_items=parse_size3(key[7:10]),
        lds_bytes=parse_count(lds),
        scratch_bytes=parse_count(scratch),
        vgprs=vgprs,
        accum_vgprs=accum,
        sgprs=sgprs,
    )


def _read_copies(
    connection: sqlite3.Connection,
    tables: ProcessTables,
    strings: dict[object, str],
    agents: dict[object, Agent],
    read: _Read,
) -> None:
    times = Times("copies")
    columns = ("start", "end", "name_id", "src_agent_id", "dst_agent_id", "size", "id", "stream_id", "queue_id")
    for start, end, name, source, target, size, number, *ran in read_rows(connection, tables, COPIES, columns):
        if not times.is_usable(start, end, number):
            continue
        ends = [agents[one] for one in (target, source) if one in agents]
        device = next((agent for agent in ends if agent.kind == "gpu"), None)
        direction = strings.get(name) or "MEMORY_COPY"
        shape = KernelShape(direction, "copy", agent=device.name if device else "", bytes=parse_count(size))
        queue = read.builder.queue_number_of(_name_queue(*ran))
        read.builder.add(read.builder.number_of(shape), start, end, queue)  # type: ignore[arg-type]  # `is_usable`
    _add_times(times, read)


def _read_calls(connection: sqlite3.Connection, tables: ProcessTables, strings: dict[object, str], read: _Read) -> None:
    categorised = not tables.list_missing(EVENTS, ("id", "category_id")) and not tables.list_missing(
        REGIONS, ("event_id",)
    )
    category, join = "NULL", ""
    if categorised:
        category, join = "E.category_id", f"LEFT JOIN {tables.quote_name(EVENTS)} E ON E.id = R.event_id"
    statement = (
        f'SELECT R.name_id, {category}, R."end" >= R."start", COUNT(*), SUM(R."end" - R."start"), '
        f'MIN(R."end" - R."start"), MAX(R."end" - R."start") FROM {tables.quote_name(REGIONS)} R {join} '
        "WHERE typeof(R.\"end\") = 'integer' AND typeof(R.\"start\") = 'integer' GROUP BY 1, 2, 3"
    )
    for name_id, category_id, usable, calls, total, shortest, longest in connection.execute(statement):
        kind = strings.get(category_id, "")
        if kind.startswith(_NOT_CALLS):
            continue
        name = strings.get(name_id) or f"call {name_id!r}"
        if not usable:
            read.add_problem(f"{calls} calls of {name} end before they start", "they are left out")
            continue
        read.categories.add(kind)
        read.rows += calls
        read.calls[name].append(Spread(calls, total, min_ns=shortest, max_ns=longest))


def _make_stats(read: _Read) -> tuple[StatsRow, ...]:
    rows = []
    for name, spreads in read.calls.items():
        calls, total = sum(one.calls for one in spreads), sum(one.total_ns for one in spreads)
        shortest = min(one.min_ns for one in spreads if one.min_ns is not None)
        longest = max(one.max_ns for one in spreads if one.max_ns is not None)
        rows.append(StatsRow("api", name, Spread(calls, total, min_ns=shortest, max_ns=longest)))
    return tuple(sorted(rows, key=lambda row: (-row.spread.total_ns, row.name)))


def _read_counters(connection: sqlite3.Connection, tables: ProcessTables, read: _Read) -> None:
    found, odd = read_counter_values(connection, tables)
    if odd:
        read.add_problem(f"{odd} values of counters are no numbers", "they are left out")
    for key, values in found.items():
        read.counters[key] += values
        read.rows += len(values)


def _add_times(times: Times, read: _Read) -> None:
    """Adds the number of usable times to `read.rows`, and a problem with a count for each kind of unusable ones."""
    read.rows += times.good
    for how, count in times.bad.items():
        counted = f"{count} of {times.good + times.bad.total()} {times.what} {how}"
        read.add_problem(f"{counted}, the first of them {times.first[how]}", "the others are used", "start, end")


def _make_counters(read: _Read) -> tuple[KernelCounter, ...]:
    return tuple(
        KernelCounter(kernel, items, counter, statistics.median(values), len(values))
        for (kernel, items, counter), values in read.counters.items()
    )
