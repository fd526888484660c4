"""Defines the tables of a store. Long texts are found by a digest, because a server cannot index a text of 100 kB.

The points of one case in order are one range of the primary key of `attnperf_measurements` (case, start, run); on
SQLite that table is stored in this order.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table

SCHEMA_VERSION = 1
"""Version of these tables. A new version needs a step in `store.STEPS`."""

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
    of the run's."""
    from sqlalchemy import JSON, Column, Double, ForeignKey, Integer, String, Table

    return Table(
        "attnperf_measurements",
        metadata,
        Column("case_id", Integer, ForeignKey("attnperf_cases.id"), primary_key=True, autoincrement=False),
        Column("started", Double, primary_key=True),
        Column("run_id", Integer, ForeignKey("attnperf_runs.id"), primary_key=True, autoincrement=False, index=True),
        Column("machine_id", Integer, ForeignKey("attnperf_facts.id"), nullable=False, index=True),
        Column("environment_id", Integer, ForeignKey("attnperf_facts.id"), nullable=False, index=True),
        Column("verdict", String(40), nullable=False),
        Column("median_us", Double),
        Column("baseline_us", Double),
        Column("ratio", Double),
        Column("process_us", JSON, nullable=False),
        sqlite_with_rowid=False,
    )
