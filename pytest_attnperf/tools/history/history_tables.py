"""Defines the tables of a store. Long texts are found by a digest, because a server cannot index a text of 100 kB.

The points of one case in order are one range of the primary key of `attnperf_measurements` (case, start, run). On
SQLite that table is stored in this order; on PostgreSQL the key's index also holds what the course of a case needs
(`store_schema.py`), so that times of processes, most of a row's bytes, are read only of points that are shown.

What would need a scan of all measurements is kept beside them: `attnperf_totals` (a row for each case) and
`attnperf_uses` (which facts a run refers to). Measurements are not partitioned. A run adds to the last leaf of each
case's range, so that the pages which are written stay in memory, whatever the size; and old runs are found by the
index of `run_id`, so that deleting a day takes what a day has.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table

SCHEMA_VERSION = 2
"""Version of these tables. A new version needs a step in `store_schema.STEPS`."""

PART = "history"
"""Name of the row of `attnperf_schema` that holds the version."""

DIGEST_LENGTH = 64


@dataclass(frozen=True)
class HistoryTables:
    """The tables. `facts` holds each mapping of names to texts once: machines and environments."""

    metadata: MetaData
    schema: Table
    facts: Table
    cases: Table
    runs: Table
    measurements: Table
    totals: Table
    uses: Table


@functools.cache
def define_tables() -> HistoryTables:
    """Returns the store's tables. Makes them at the first call, so that importing this file needs no SQLAlchemy."""
    from sqlalchemy import Column, Integer, MetaData, String, Table

    metadata = MetaData()
    schema = Table(
        "attnperf_schema",
        metadata,
        Column("part", String(20), primary_key=True),
        Column("version", Integer, nullable=False),
    )
    return HistoryTables(
        metadata,
        schema,
        _define_facts(metadata),
        _define_cases(metadata),
        _define_runs(metadata),
        _define_measurements(metadata),
        _define_totals(metadata),
        _define_uses(metadata),
    )


def _define_facts(metadata: MetaData) -> Table:
    from sqlalchemy import JSON, Column, Integer, String, Table

    return Table(
        "attnperf_facts",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("digest", String(DIGEST_LENGTH), nullable=False, unique=True),
        Column("facts", JSON, nullable=False),
    )


def _define_cases(metadata: MetaData) -> Table:
    """Returns the table of cases. `digest` is a hash of suite, backend, workload, label, arch and product; `key_digest`
    one of the first four only; `nodeid` is the pytest node id of the newest run."""
    from sqlalchemy import Column, Integer, String, Table, Text

    names = [Column(name, Text, nullable=False) for name in ("suite", "backend", "workload", "label")]
    places = [Column(name, Text, nullable=False) for name in ("arch", "product", "nodeid")]
    return Table(
        "attnperf_cases",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("digest", String(DIGEST_LENGTH), nullable=False, unique=True),
        Column("key_digest", String(DIGEST_LENGTH), nullable=False, index=True),
        *names,
        *places,
    )


def _define_runs(metadata: MetaData) -> Table:
    """Returns the table of runs. `digest` is a hash of `run_id`; `started` is in seconds since 1970, `started_text` the
    same time as the run wrote it."""
    from sqlalchemy import JSON, Boolean, Column, Double, Integer, String, Table, Text

    texts = ("run_id", "started_text", "commit_id", "branch", "source", "version", "mode", "appended")
    return Table(
        "attnperf_runs",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("digest", String(DIGEST_LENGTH), nullable=False, unique=True),
        Column("started", Double, nullable=False),
        *[Column(name, Text, nullable=False) for name in texts],
        Column("complete", Boolean, nullable=False),
        Column("provenance", JSON, nullable=False),
    )


def _define_measurements(metadata: MetaData) -> Table:
    """Returns the table of measurements. `median_us` is NULL if a case was wrong, without a time; `started` is a copy
    of the run's. Facts are no foreign keys, which would need an index each: `attnperf_uses` has them."""
    from sqlalchemy import JSON, Column, Double, ForeignKey, Integer, String, Table

    return Table(
        "attnperf_measurements",
        metadata,
        Column("case_id", Integer, ForeignKey("attnperf_cases.id"), primary_key=True, autoincrement=False),
        Column("started", Double, primary_key=True),
        Column("run_id", Integer, ForeignKey("attnperf_runs.id"), primary_key=True, autoincrement=False, index=True),
        Column("machine_id", Integer, nullable=False),
        Column("environment_id", Integer, nullable=False),
        Column("verdict", String(40), nullable=False),
        Column("median_us", Double),
        Column("baseline_us", Double),
        Column("ratio", Double),
        Column("process_us", JSON, nullable=False),
        sqlite_with_rowid=False,
    )


def _define_totals(metadata: MetaData) -> Table:
    """Returns the table of what each case has: measurements with a time and without (`wrong`), and the starts of its
    oldest and newest run. A case without measurements has no row."""
    from sqlalchemy import Column, Double, ForeignKey, Integer, Table

    return Table(
        "attnperf_totals",
        metadata,
        Column("case_id", Integer, ForeignKey("attnperf_cases.id"), primary_key=True, autoincrement=False),
        Column("timed", Integer, nullable=False),
        Column("wrong", Integer, nullable=False),
        Column("oldest", Double, nullable=False),
        Column("newest", Double, nullable=False),
    )


def _define_uses(metadata: MetaData) -> Table:
    """Returns the table of which facts the measurements of a run refer to."""
    from sqlalchemy import Column, ForeignKey, Integer, Table

    return Table(
        "attnperf_uses",
        metadata,
        Column("run_id", Integer, ForeignKey("attnperf_runs.id"), primary_key=True, autoincrement=False),
        Column("facts_id", Integer, ForeignKey("attnperf_facts.id"), primary_key=True, autoincrement=False, index=True),
        sqlite_with_rowid=False,
    )
