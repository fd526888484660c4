"""Databases as rocprofv3 writes them, row by row.

Tables and columns are those of schema version 3 as rocprofiler-sdk 1.0.0 writes it (ROCm/rocm-systems, branch
release/rocm-rel-7.0, 64cf36d, source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql; MIT), short of foreign keys and of
tables that are not read. Where its writer (source/lib/output/generateRocpd.cpp) fills a column, so do the rows here.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.rocpd.reader import read_rocpd

A, B = "_0190a1b2_c3d4_7e5f_8a9b_0c1d2e3f4a5b", "_0190a1b2_ffff_7e5f_8a9b_0c1d2e3f4a5b"
"""Suffixes of two processes: underscore and UUID, dashes replaced."""

AXES = [f"{of}_size_{axis}" for of in ("workgroup", "grid") for axis in "xyz"]
SIZES = ", ".join(f'"{name}" INTEGER NOT NULL' for name in AXES)
WHO = '"nid" INTEGER NOT NULL, "pid" INTEGER NOT NULL'
WHEN = '"start" BIGINT NOT NULL, "end" BIGINT NOT NULL'
TABLES = {
    "metadata": '"tag" TEXT NOT NULL, "value" TEXT NOT NULL',
    "string": '"string" TEXT NOT NULL UNIQUE ON CONFLICT ABORT',
    "info_node": '"hash" BIGINT NOT NULL UNIQUE, "machine_id" TEXT NOT NULL UNIQUE, "hostname" TEXT',
    "info_process": '"nid" INTEGER NOT NULL, "ppid" INTEGER, "pid" INTEGER NOT NULL, "init" BIGINT, "fini" BIGINT, '
    '"start" BIGINT, "end" BIGINT, "command" TEXT, "environment" JSONB DEFAULT "{}" NOT NULL',
    "info_agent": f"{WHO}, \"type\" TEXT CHECK (\"type\" IN ('CPU', 'GPU')), "
    '"absolute_index" INTEGER, "logical_index" INTEGER, "type_index" INTEGER, "uuid" INTEGER, "name" TEXT, '
    '"model_name" TEXT, "vendor_name" TEXT, "product_name" TEXT, "user_name" TEXT, "extdata" JSONB DEFAULT "{}"',
    "info_kernel_symbol": f'{WHO}, "code_object_id" INTEGER NOT NULL, "kernel_name" TEXT, "display_name" TEXT, '
    '"group_segment_size" INTEGER, "private_segment_size" INTEGER, "sgpr_count" INTEGER, "arch_vgpr_count" INTEGER, '
    '"accum_vgpr_count" INTEGER',
    "info_pmc": f'{WHO}, "agent_id" INTEGER, "name" TEXT NOT NULL, "symbol" TEXT NOT NULL',
    "event": '"category_id" INTEGER, "stack_id" INTEGER, "correlation_id" INTEGER',
    "pmc_event": '"event_id" INTEGER, "pmc_id" INTEGER NOT NULL, "value" REAL DEFAULT 0.0',
    "region": f'{WHO}, "tid" INTEGER NOT NULL, {WHEN}, "name_id" INTEGER NOT NULL, "event_id" INTEGER',
    "kernel_dispatch": f'{WHO}, "tid" INTEGER, "agent_id" INTEGER NOT NULL, "kernel_id" INTEGER NOT NULL, '
    f'"dispatch_id" INTEGER NOT NULL, "queue_id" INTEGER NOT NULL, "stream_id" INTEGER NOT NULL, {WHEN}, '
    f'"private_segment_size" INTEGER, "group_segment_size" INTEGER, {SIZES}, "event_id" INTEGER',
    "memory_copy": f'{WHO}, "tid" INTEGER, {WHEN}, "name_id" INTEGER NOT NULL, "dst_agent_id" INTEGER, '
    '"src_agent_id" INTEGER, "size" INTEGER NOT NULL, "stream_id" INTEGER, "event_id" INTEGER',
}
KEY = '"id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT'
EXTRA = {"cu_count": 304, "wave_front_size": 64, "max_engine_clk_fcompute": 2100}
DISPATCH: dict[str, object] = {
    **dict.fromkeys(("nid", "pid", "tid", "queue_id", "stream_id"), 1),
    "agent_id": 4,
    "kernel_id": 7,
    "private_segment_size": 0,
    "group_segment_size": 33000,
    **dict(zip(AXES, (256, 1, 1, 65536, 2, 1), strict=True)),
}


class Database:
    """A database as one process of rocprofv3 leaves it, and more processes beside it."""

    def __init__(self, path: Path, *, version: str = "3") -> None:
        self.path = path
        self.connection = sqlite3.connect(path)
        self.process(A, version=version)

    def process(self, suffix: str, *, pid: int = 11, version: str = "3", machine: str = "m1", alive: int = 0) -> None:
        """Tables of one process, with a node, a CPU, a GPU, a kernel and some strings; alive for a second."""
        for name, columns in TABLES.items():
            guid = "" if name == "metadata" else f'"guid" TEXT DEFAULT "{suffix[1:]}" NOT NULL, '
            self.connection.execute(f'CREATE TABLE "rocpd_{name}{suffix}" ({KEY}, {guid}{columns})')
        self.add("metadata", suffix, tag="schema_version", value=version)
        self.add("info_node", suffix, id=5, hash=5, machine_id=machine)
        life: dict[str, object] = {"init": alive, "fini": alive + 10**9}
        self.add("info_process", suffix, id=pid, nid=5, ppid=1, pid=pid, **life, environment='{"TOKEN": "secret"}')
        agent: dict[str, object] = {"nid": 5, "pid": pid, "extdata": json.dumps(EXTRA)}
        self.add("info_agent", suffix, **agent, id=0, type="CPU", logical_index=0, name="EPYC", product_name="EPYC")
        gpu: dict[str, object] = {
            "absolute_index": 4,
            "logical_index": 1,
            "name": "gfx942",
            "product_name": "AMD Instinct MI300X",
        }
        self.add("info_agent", suffix, **agent, **gpu, id=4, type="GPU")
        symbol: dict[str, object] = {
            "nid": 5,
            "pid": pid,
            "code_object_id": 1,
            "sgpr_count": 112,
            "arch_vgpr_count": 96,
        }
        names = {"kernel_name": "_Z5flashPf.kd", "display_name": "flash(float*)"}
        self.add("info_kernel_symbol", suffix, **symbol, **names, id=7, accum_vgpr_count=0)
        strings = ("", "MEMORY_COPY_HOST_TO_DEVICE", "HIP_RUNTIME_API_EXT", "hipLaunchKernel", "MARKER_CORE_RANGE_API")
        for number, string in enumerate((*strings, "HSA_CORE_API", "hsa_signal_wait"), 1):
            self.add("string", suffix, id=number, string=string)

    def add(self, table: str, suffix: str = A, /, **values: object) -> None:
        """One row."""
        columns, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
        statement = f'INSERT INTO "rocpd_{table}{suffix}" ({columns}) VALUES ({marks})'
        self.connection.execute(statement, tuple(values.values()))

    def dispatch(self, start: object, end: object, suffix: str = A, **others: object) -> None:
        """One kernel dispatch, its id that of its event."""
        number = self.connection.execute(f'SELECT COUNT(*) FROM "rocpd_kernel_dispatch{suffix}"').fetchone()[0] + 1
        row = {**DISPATCH, "event_id": number, "dispatch_id": number, **others}
        self.add("kernel_dispatch", suffix, start=start, end=end, **row)

    def run(self, statement: str) -> None:
        """A statement of its own, in which {A} is the suffix."""
        self.connection.commit()
        self.connection.execute(statement.replace("{A}", A))

    def read(self) -> Profile:
        """Closes it and reads it."""
        self.connection.commit()
        self.connection.close()
        return read_rocpd(self.path)
