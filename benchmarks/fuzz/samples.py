"""Small sound files of every kind that is read, made from those of this repository."""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_attnperf.plugin.report_inputs import read_run
from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.journal import JOURNAL_SCHEMA, JournalEntry, JournalHeader, case_line, header_line
from pytest_attnperf.reports.files.merged import encode_merged
from pytest_attnperf.testing.sample_runs import sample_run

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "tests" / "data"
STORED = REPOSITORY / "baselines"
ENTRIES = 2

ROCPD = {
    "metadata": ("tag TEXT, value TEXT", [("schema_version", "3"), ("uuid", "_u"), ("guid", "u")]),
    "string": ("string TEXT", [("kernel_a",), ("copy",)]),
    "info_node": ("hash INTEGER, machine_id TEXT, hostname TEXT", [(5, "m1", "host")]),
    "info_process": (
        "nid INTEGER, ppid INTEGER, pid INTEGER, init INTEGER, fini INTEGER, start INTEGER, end INTEGER, command TEXT",
        [(1, 1, 11, 0, 10**9, 0, 10**9, "run")],
    ),
    "info_agent": (
        "nid INTEGER, pid INTEGER, type TEXT, absolute_index INTEGER, logical_index INTEGER, type_index INTEGER, "
        "name TEXT, product_name TEXT, extdata TEXT",
        [(1, 11, "GPU", 0, 0, 0, "gfx942", "MI300X", '{"cu_count": 304, "wave_front_size": 64}')],
    ),
    "info_kernel_symbol": (
        "nid INTEGER, pid INTEGER, code_object_id INTEGER, kernel_name TEXT, display_name TEXT, group_segment_size "
        "INTEGER, private_segment_size INTEGER, sgpr_count INTEGER, arch_vgpr_count INTEGER, accum_vgpr_count INTEGER",
        [(1, 11, 1, "kernel_a", "kernel_a", 1024, 0, 32, 64, 0)],
    ),
    "kernel_dispatch": (
        "nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER, queue_id "
        "INTEGER, stream_id INTEGER, start INTEGER, end INTEGER, private_segment_size INTEGER, group_segment_size "
        "INTEGER, workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER, grid_size_x INTEGER, "
        "grid_size_y INTEGER, grid_size_z INTEGER, event_id INTEGER",
        [(1, 11, 11, 1, 1, i, 1, 1, 1000 * i, 1000 * i + 600, 0, 1024, 256, 1, 1, 65536, 1, 1, i) for i in range(1, 9)],
    ),
}
"""Table -> columns and rows of a small database of rocprofv3, schema version 3."""


def timed_baselines() -> list[bytes]:
    """Files of two entries each."""
    names = ("rope", "softmax", "gemm", "decode")
    return [_with_few_entries(STORED / "sm_90" / "h200" / f"{name}.json") for name in names]


def stored_kernels() -> list[bytes]:
    """Files of two compiled kernels each."""
    return [_with_few_entries(STORED / arch / "code_objects.json") for arch in ("gfx942", "gfx1201")]


def results(scratch: Path) -> list[bytes]:
    """Runs of few cases: of every verdict, and one whose cases are those of a stored baseline."""
    made = [json_results.encode(sample_run(4)), json_results.encode(sample_run(3, seed=1, verdicts=tuple(Verdict)))]
    for data in timed_baselines():
        file = scratch / "stored.json"
        file.write_bytes(data)
        run = read_run(file)
        cases = tuple(replace(case, verdict=Verdict.SAME) for case in run.cases)
        made.append(json_results.encode(replace(run, mode="gate", cases=cases, gated=len(cases))))
    return made


def merged_files(runs: list[bytes]) -> list[bytes]:
    """Two and three runs in one file."""
    found = [json_results.decode(data, "sample") for data in runs]
    return [encode_merged(found[:2]), encode_merged(found[1:4])]


def journals(runs: list[bytes]) -> list[bytes]:
    """What an interrupted run left: its header, cases, one carried over from the run that it resumed."""
    header = JournalHeader(JOURNAL_SCHEMA, "0.1", 1, "h" * 64, "gate", {"--attnperf-pairs": "8"}, 9, 8,
                           "pytest --attnperf", "c" * 40, "2026-01-01T00:00:00+00:00", 7)  # fmt: skip
    made = []
    for data in runs[:3]:
        kept = [JournalEntry(case, {"suites": "d"}) for case in json_results.decode(data, "sample").cases]
        lines = [case_line(one, carried=number == 0) for number, one in enumerate(kept)]
        made.append(b"".join([header_line(header), *lines]))
    return made


def github_answers() -> list[bytes]:
    """A pull request, lists of them, of comments, statuses and artifacts, a branch, a commit, a user, a refusal."""
    sha = "a" * 40
    pull = {"number": 3, "state": "open", "head": {"sha": sha, "repo": {"full_name": "o/r"}},
            "base": {"ref": "main", "repo": {"default_branch": "main"}}}  # fmt: skip
    stamp = '<!-- attnperf-run: {"sha": "b", "run": 2, "attempt": 1, "measured": true} -->'
    comment = {"id": 7, "body": f"<!-- m -->\n{stamp}\ntext", "user": {"login": "a"}}
    status = {"context": "attnperf", "description": "passed [run 3.1]", "state": "success"}
    artifact = {"id": 5, "name": "h200", "expired": False, "size_in_bytes": 100}
    answers = [pull, [pull], [comment], [status], {"total_count": 1, "artifacts": [artifact]}, {"login": "a"},
               {"object": {"sha": sha}}, {"sha": sha, "parents": [{"sha": "b" * 40}, {"sha": sha}]},
               {"message": "no", "errors": [{"field": "f", "code": "c"}]}]  # fmt: skip
    return [json.dumps(answer).encode() for answer in answers]


def benchmark_results() -> list[bytes]:
    """What pytest-benchmark stores."""
    case = {"group": None, "name": "test_a", "fullname": "t.py::test_a", "options": {"timer": "perf_counter"},
            "stats": {"median": 1e-5, "data": [1e-5, 1.1e-5]}}  # fmt: skip
    machine = {"node": "n", "machine": "x86_64", "system": "Linux", "cpu": {"brand_raw": "CPU", "count": 2}}
    run = {"machine_info": machine, "commit_info": {"id": "a" * 40, "dirty": False, "branch": "main"},
           "benchmarks": [case, {**case, "fullname": "b"}], "datetime": "2026-01-01T00:00:00+00:00",
           "version": "5.0"}  # fmt: skip
    return [json.dumps(run).encode()]


def chrome_traces() -> list[bytes]:
    """What torch.profiler writes."""

    def event(name: str, at: int, **more: Any) -> dict[str, Any]:
        return {"ph": "X", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": 10, **more}

    kernel = {"device": 0, "stream": 7, "correlation": 1, "grid": [256, 1, 1], "block": [128, 1, 1],
              "registers per thread": 64, "shared memory": 1024}  # fmt: skip
    events = [event(f"kernel_{i % 3}", 100 * i, cat="kernel", args=kernel) for i in range(9)]
    events += [event("aten::mm", 100 * i, cat="cpu_op", args={"External id": i}) for i in range(5)]
    events += [event("Memcpy HtoD", 990, cat="gpu_memcpy", args={"bytes": 4096, "device": 0})]
    events += [event("ProfilerStep#1", 0, cat="user_annotation", args={})]
    device = {"id": 0, "name": "GPU", "totalGlobalMem": 2**34, "numSms": 132}
    trace = {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events, "displayTimeUnit": "ms"}
    return [json.dumps(trace).encode(), json.dumps(events).encode()]


def rocpd_database(scratch: Path) -> bytes:
    """A small database."""
    path = scratch / "sample.db"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    for name, (columns, rows) in ROCPD.items():
        table = f'"rocpd_{name}_0190a1b2_c3d4"'
        connection.execute(
            f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, guid TEXT DEFAULT '0190a1b2_c3d4', {columns})"
        )
        names = [column.split()[0] for column in columns.split(", ")]
        marks = ", ".join("?" * len(names))
        connection.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", rows)
    connection.commit()
    connection.close()
    return path.read_bytes()


def zip_archives() -> list[bytes]:
    """An artifact with results in it, packed and as it is."""
    made = []
    for packed in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", packed) as archive:
            archive.writestr("results.json", json_results.encode(sample_run(1)))
            archive.writestr("other.txt", b"x" * 100)
        made.append(stream.getvalue())
    return made


def code_objects() -> list[bytes]:
    """Bare objects of AMD and NVIDIA, and a bundle of several."""
    names = ("saxpy.gfx942.co", "lines5.gfx942.co", "lines4.gfx942.co", "mfma.gfx942.co", "kernels.sm_90.cubin",
             "saxpy.bundle", "two_kernels.gfx90a.co", "host.o")  # fmt: skip
    return [(DATA / "code_objects" / name).read_bytes() for name in names]


def profiler_tables() -> list[tuple[str, bytes]]:
    """(name, content) of the CSV files of every profiler that is known; long ones cut."""
    files = sorted((DATA / "profiles").rglob("*.csv"))
    return [(file.name, b"".join(file.read_bytes().splitlines(keepends=True)[:25])) for file in files]


def worker_lines() -> list[bytes]:
    """Answers of a worker: what it says when ready, and to open, check, block, finish and close."""
    key = {"suite": "prefill", "backend": "fake.a", "workload": "w", "label": ""}
    device = {"kind": "cpu", "arch": "fake", "product": "fake1", "device_id": "0"}
    fingerprint = {"must_match": {"arch": "fake"}, "named": {"torch": "2.9"}}
    ready = {"event": "ready", "protocol": 4, "harness": "0.1.0", "method": 1, "pid": 7, "role": "device",
             "device": device, "fingerprint": fingerprint, "cases": [key]}  # fmt: skip
    figure = {"check": "timed inputs", "output": "out", "max_error": 1e-4, "max_budget": 1e-3, "rms_error": 1e-5,
              "rms_budget": 1e-4}  # fmt: skip
    answers: list[dict[str, Any]] = [
        {"state": "open", "unsupported": [], "figures": None},
        {"figures": [figure], "problems": []},
        {"block_us": [10.0, 10.1], "calls_per_block": 60, "timer": "host", "cache_state": "hot"},
        {"check": {"figures": [figure], "problems": []}, "peak_memory_bytes": 10, "config": {"a": "1"}, "launches": []},
        {"outcome": "passed", "text": ""},
    ]
    lines = [ready, *({"id": 1, "ok": answer} for answer in answers)]
    lines.append({"id": 1, "error": {"kind": "case", "message": "m", "traceback": "t", "report": {"figures": []}}})
    return [json.dumps(line).encode() for line in lines]


def _with_few_entries(path: Path) -> bytes:
    """The first entries of a baseline file, and what they name."""
    file = json.loads(path.read_bytes())
    entries = dict(list(file["entries"].items())[:ENTRIES])
    file["entries"] = entries
    for field, name in (("policies", "policy"), ("environments", "environment"), ("canaries", "canary")):
        used = {entry.get(name) for entry in entries.values()}
        used |= {(entry.get("anchor") or {}).get(name) for entry in entries.values()}
        if field in file:
            file[field] = {key: value for key, value in file[field].items() if key in used}
    return json.dumps(file, indent=1).encode()
