"""Reads runs from files: results.json of this package, and files of pytest-benchmark 4 and 5."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, ProcessSummary, Verdict
from pytest_attnperf.records.regular_file import describe_os_error, read_regular
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_rows import parse_seconds

Decode = Callable[[bytes, str], RunResult]
"""Function that decodes a results.json; its second argument names the file in errors."""

BENCHMARK_SUITE = "benchmark"
UNGROUPED = "ungrouped"
US_PER_SECOND = 1e6
OUR_TIMER = "attnperf_device_clock"
"""Timer name of cases that pytest-attnperf passes to pytest-benchmark. They are timed on a GPU, not on this CPU."""

TEXT_LIMIT = 200
BYTES_MAX = 1 << 30
"""Largest file that is read: decoded JSON takes about five times its size in memory."""

ADVICE = "; store runs of pytest-benchmark without the single times (no --benchmark-save-data), or split the file"

MACHINE = ("system", "machine")
ENVIRONMENT = {"python": "python_version", "implementation": "python_implementation", "kernel": "release"}
"""Our name of a fact -> pytest-benchmark's field of `machine_info`."""


@dataclass(frozen=True)
class Imported:
    """A run from a file. `skipped` has a line for each part that was left out, with the reason."""

    path: Path
    run: RunResult
    source: str
    skipped: tuple[str, ...] = ()


def import_runs(path: Path, decode: Decode) -> Iterator[Imported | str]:
    """Yields the runs of a file, or of every .json file below a folder (such as .benchmarks). In a folder, an unusable
    file gives a line with the reason.

    Raises HistoryError for a single file without a run, and for a folder without .json files."""
    if not path.is_dir():
        yield _import_file(path, decode)
        return
    files = sorted(path.rglob("*.json"))
    if not files:
        raise HistoryError(f"{path} holds no .json file; give a results.json, or a file of pytest-benchmark")
    for file in files:
        yield _try_import_file(file, decode)


def _try_import_file(path: Path, decode: Decode) -> Imported | str:
    if not path.is_file():
        # The user did not name it, and reading a pipe or device may never end.
        return f"{path} is no file"
    try:
        return _import_file(path, decode)
    except AttnperfError as error:
        return str(error)


def _import_file(path: Path, decode: Decode) -> Imported:
    data = _read_bytes(path)
    fields = _decode_object(path, data)
    if "benchmarks" in fields:
        return _benchmark_run(path, data, fields)
    if {"cases", "schema"} <= fields.keys():
        return Imported(path, decode(data, str(path)), "results.json")
    found = ", ".join(repr(name[:40]) for name in list(fields)[:8]) or "none"
    raise HistoryError(
        f"{path} holds no run: neither the fields of results.json (schema, cases) nor of pytest-benchmark "
        f"(benchmarks); its fields: {found}"
    )


def _read_bytes(path: Path) -> bytes:
    try:
        return read_regular(path, BYTES_MAX, HistoryError, ADVICE)
    except OSError as error:
        raise HistoryError(describe_os_error(error)) from error


def _decode_object(path: Path, data: bytes) -> dict[str, Any]:
    """Returns the JSON object in a file's bytes. Raises HistoryError for anything else. Accepts NaN: figures are
    checked later."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise HistoryError(
            f"{path} is not readable as JSON ({str(error)[:TEXT_LIMIT]}); give a results.json or pytest-benchmark's"
        ) from error
    if not isinstance(fields, dict):
        raise HistoryError(f"{path} holds a JSON {type(fields).__name__} where a run is an object; it holds no run")
    return fields


def _benchmark_run(path: Path, data: bytes, fields: Mapping[str, Any]) -> Imported:
    entries = fields["benchmarks"]
    if not isinstance(entries, list):
        raise HistoryError(f"{path}: field 'benchmarks' is a {type(entries).__name__}, must be a list")
    started = _get_text(fields, "datetime")
    parse_seconds(started, f"run in {path}")
    machine, commit = _get_mapping(fields, "machine_info"), _get_mapping(fields, "commit_info")
    device = _make_device(machine)
    cases: dict[CaseKey, CaseResult] = {}
    skipped = []
    for number, entry in enumerate(entries):
        found = _convert_case(entry, machine) if isinstance(entry, dict) else "is no object"
        if isinstance(found, str):
            skipped.append(f"benchmark {number} of {len(entries)}: {found}")
        elif found.key in cases:
            skipped.append(f"benchmark {number} of {len(entries)}: {str(found.key)[:TEXT_LIMIT]!r} is a repeat")
        else:
            cases[found.key] = found
    branch = _get_text(commit, "branch")
    run = RunResult(
        schema=RESULTS_SCHEMA,
        version=f"pytest-benchmark {_get_text(fields, 'version')}".strip(),
        mode="measure",
        started=started,
        command="",
        commit=_read_commit(commit),
        device=device,
        fingerprint=None,
        cases=tuple(cases.values()),
        run_id=f"benchmark-{hashlib.sha256(data).hexdigest()[:32]}",
        provenance={"branch": branch} if branch else {},
    )
    return Imported(path, run, "pytest-benchmark", tuple(skipped))


def _convert_case(entry: Mapping[str, Any], machine: Mapping[str, Any]) -> CaseResult | str:
    """Returns a benchmark of pytest-benchmark as a case, or a text that says why it cannot be imported."""
    name = _get_text(entry, "fullname") or _get_text(entry, "name")
    if not name:
        return "has no name"
    median = _find_median(_get_mapping(entry, "stats"))
    if median is None:
        return f"{name[:TEXT_LIMIT]!r} has no median that is finite and positive"
    us = median * US_PER_SECOND
    timer = _get_text(_get_mapping(entry, "options"), "timer") or "unknown"
    if timer == OUR_TIMER:
        return f"{name[:TEXT_LIMIT]!r} is a case of pytest-attnperf; import the results.json of its run instead"
    return CaseResult(
        key=CaseKey(BENCHMARK_SUITE, _get_text(entry, "group") or UNGROUPED, name),
        nodeid=name,
        verdict=Verdict.RECORDED,
        summary="recorded by pytest-benchmark",
        median_us=us,
        first=(ProcessSummary(us, us, us, (us,), 1, timer),),
        fingerprint=Fingerprint(_facts_to_match(machine, timer), _named_facts(machine)),
    )


def _find_median(stats: Mapping[str, Any]) -> float | None:
    """Returns the median in seconds, computed from the single times if only they are stored; None if none is valid."""
    median = stats.get("median")
    data = stats.get("data")
    if median is None and isinstance(data, list) and data and all(map(_is_time, data)):
        median = statistics.median(data)
    return None if median is None or not _is_time(median) else float(median)


def _is_time(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return value > 0 and math.isfinite(value * US_PER_SECOND)
    except OverflowError:
        return False


def _make_device(machine: Mapping[str, Any]) -> DeviceInfo:
    return DeviceInfo("cpu", _get_text(machine, "machine") or "unknown", _processor_name(machine))


def _processor_name(machine: Mapping[str, Any]) -> str:
    """Returns the CPU's name, 'unknown' without one. pytest-benchmark 3 and 4 store it as 'brand', 5 as 'brand_raw'."""
    cpu = _get_mapping(machine, "cpu")
    return _get_text(cpu, "brand_raw") or _get_text(cpu, "brand") or _get_text(machine, "processor") or "unknown"


def _facts_to_match(machine: Mapping[str, Any], timer: str) -> dict[str, str]:
    facts = {name: _get_text(machine, name) for name in MACHINE}
    cpus = _get_mapping(machine, "cpu").get("count")
    facts |= {"processor": _processor_name(machine), "cpus": str(cpus)[:TEXT_LIMIT] if cpus else "", "timer": timer}
    return {name: value for name, value in facts.items() if value}


def _named_facts(machine: Mapping[str, Any]) -> dict[str, str]:
    facts = {ours: _get_text(machine, theirs) for ours, theirs in ENVIRONMENT.items()}
    return {name: value for name, value in facts.items() if value}


def _read_commit(commit: Mapping[str, Any]) -> str:
    name = _get_text(commit, "id") or "unknown"
    return f"{name}+dirty" if commit.get("dirty") is True else name


def _get_mapping(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _get_text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
