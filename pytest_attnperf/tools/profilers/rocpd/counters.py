"""Hardware counters of a rocpd database, by kernel and grid."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict

from pytest_attnperf.records.counters import plain_name
from pytest_attnperf.tools.profilers.rocpd.cells import size3_of, text_of
from pytest_attnperf.tools.profilers.rocpd.schema import (
    COUNTER_NAMES,
    COUNTER_VALUES,
    DISPATCHES,
    SYMBOLS,
    Tables,
    rows_of,
)

Key = tuple[str, "int | None", str]
"""Kernel, work-items of its grid, counter."""


def counter_values(connection: sqlite3.Connection, tables: Tables) -> tuple[dict[Key, list[float]], int]:
    """One value per dispatch, and how many values were no numbers.

    Values of one counter and dispatch are added up, as rocpd's own view does: there is a row per instance of a unit.
    Those without a dispatch are events of the driver.
    """
    values, odd = _sums(connection, tables)
    found: dict[Key, list[float]] = defaultdict(list)
    if not values:
        return found, odd
    names = {row[0]: text_of(row[1]) for row in rows_of(connection, tables, COUNTER_NAMES, ("id", "name"))}
    symbols = {
        row[0]: text_of(row[1]) or text_of(row[2])
        for row in rows_of(connection, tables, SYMBOLS, ("id", "display_name", "kernel_name"))
    }
    columns = ("event_id", "kernel_id", "grid_size_x", "grid_size_y", "grid_size_z")
    launches = {row[0]: row[1:] for row in rows_of(connection, tables, DISPATCHES, columns) if row[0] is not None}
    for (event, counter), value in values.items():
        if event in launches and names.get(counter):
            kernel, *grid = launches[event]
            sizes = size3_of(tuple(grid))
            name = plain_name(symbols.get(kernel) or f"kernel {kernel!r}")
            found[name, math.prod(sizes) if sizes else None, names[counter]].append(value)
    return found, odd


def _sums(connection: sqlite3.Connection, tables: Tables) -> tuple[dict[tuple[object, object], float], int]:
    """The sum for each event and counter, and how many values were no numbers."""
    values: dict[tuple[object, object], float] = defaultdict(float)
    odd = 0
    columns = ("event_id", "pmc_id", "value", "sample_id")
    for event, counter, value, sample in rows_of(connection, tables, COUNTER_VALUES, columns):
        if sample is not None:
            continue  # of a stream of samples in time, not of a dispatch
        if isinstance(value, (int, float)) and math.isfinite(value):
            values[event, counter] += value
        else:
            odd += 1
    return values, odd
