"""Records of PyTorch HUD's benchmark database, schema v3: one per case and metric, as a JSON array.

The fields are those of clickhouse_db_schema/benchmark.oss_ci_benchmark_v3/schema.sql in pytorch/test-infra; maps hold
texts only. Its uploader (.github/scripts/upload_benchmark_results.py) adds what belongs to a workflow: timestamp,
repository, branch, commit, job. It adds runners and dependencies only to records without them; ours are those of the
machine that measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.export.exported_cases import (
    TEXT_LIMIT,
    Exported,
    ExportedCase,
    list_facts,
    make_name,
    require_cases,
)
from pytest_attnperf.tools.export.strict_json import to_json

BENCHMARK = "pytest-attnperf"
REPOSITORIES = {"torch": "pytorch/pytorch", "triton": "triton-lang/triton", "aiter": "ROCm/aiter"}
"""Dependencies by their field of a fingerprint, and where each comes from."""

METRICS = {"TFLOP/s": "tflops", "GB/s": "gb_per_s"}
BYTES_PER_GB = 2**30
UINT32_MOST = 2**32 - 1

Record = dict[str, Any]


def render_hud(exported: Exported) -> str:
    """Returns the records of all cases: latency_us with the median of each process, tflops, gb_per_s. Raises UsageError
    without any case."""
    return to_json([record for one in require_cases(exported) for record in _list_records(one)])


def _list_records(exported: ExportedCase) -> list[Record]:
    shared = {
        "benchmark": _describe_benchmark(exported),
        "model": _describe_model(exported),
        "inputs": _describe_inputs(exported),
        "dependencies": _describe_dependencies(exported),
        "runners": _describe_runners(exported),
    }
    facts = list_facts(exported)
    values = {"latency_us": list(exported.process_us) or [exported.median_us]}
    values |= {METRICS[rate.unit]: [rate.value] for rate in exported.rates}
    return [
        {**shared, "metric": {"name": name, "benchmark_values": found, "extra_info": facts}}
        for name, found in values.items()
    ]


def _describe_benchmark(exported: ExportedCase) -> Record:
    key, figures = exported.case.key, exported.case.figures
    info = {"suite": key.suite, "label": key.label, "cache_state": figures.cache_state if figures else ""}
    return {"name": BENCHMARK, "dtype": _text(figures.dtype if figures else ""), "extra_info": _to_texts(info)}


def _describe_model(exported: ExportedCase) -> Record:
    """Returns suite, workload and label as the model: with the backend they are the case."""
    key = exported.case.key
    named = "/".join(filter(None, (key.suite, key.workload, key.label)))
    return {"name": make_name(named), "type": "kernel", "backend": make_name(key.backend), "origins": [BENCHMARK]}


def _describe_inputs(exported: ExportedCase) -> Record:
    figures = exported.case.figures
    if figures is None:
        return {}
    return {"workload": {"dtype": _text(figures.dtype), "extra_info": _to_texts(figures.definition)}}


def _describe_dependencies(exported: ExportedCase) -> Record:
    case, run = exported.case, exported.run
    fingerprint = case.fingerprint or run.fingerprint
    named = fingerprint.named if fingerprint else {}
    versions = {name: named.get(name, "") for name in REPOSITORIES}
    found = {
        name: {"repo": REPOSITORIES[name], "version": _text(version)}
        for name, version in versions.items()
        if version not in ("", "none")
    }
    return {**found, BENCHMARK: {"version": _text(run.version)}}


def _describe_runners(exported: ExportedCase) -> list[Record]:
    device = exported.run.device
    if device is None:
        return []
    fingerprint = exported.case.fingerprint or exported.run.fingerprint
    info = _to_texts(fingerprint.must_match if fingerprint else {})
    name = _text(device.name or device.product)
    runner = {"name": exported.device, "type": name, "extra_info": {"arch": _text(device.arch), **info}}
    return [{**runner, **({"cpu_info": name} if device.kind == "cpu" else _describe_gpu(device, name))}]


def _describe_gpu(device: DeviceInfo, name: str) -> Record:
    """Returns the one GPU that a case runs on."""
    gigabytes = device.memory_bytes // BYTES_PER_GB
    memory = {"avail_gpu_mem_in_gb": gigabytes} if 0 < gigabytes <= UINT32_MOST else {}
    return {"gpu_info": name, "gpu_count": 1, **memory}


def _to_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns a map of texts, without empty ones and None; what is no text is written as JSON."""
    known = {name: value for name, value in values.items() if value is not None}
    texts = {name: value if isinstance(value, str) else json.dumps(value, default=str) for name, value in known.items()}
    return {_text(name): _text(text) for name, text in texts.items() if text}


def _text(text: str) -> str:
    return one_line(text, TEXT_LIMIT)
