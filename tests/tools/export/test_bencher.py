"""What Bencher's `json` adapter reads: AdapterResults, BenchmarkName and JsonNewMetric of its crates."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from pytest_attnperf.tools.export.bencher import IGNORED_ENDINGS, render_bencher
from tests.tools.export.export_samples import DATA, HOSTILE, export, hostile_run, mixed_run, read_strictly

NAME_BYTES_MOST = 1024
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""A name of this form is looked up as the slug of a benchmark that exists."""


def read(text: str) -> dict[str, dict[str, dict[str, float]]]:
    """The results, as the adapter takes them."""
    results: dict[str, Any] = read_strictly(text)
    for name, measures in results.items():
        assert 1 <= len(name.encode()) <= NAME_BYTES_MOST
        assert measures
        assert all(SLUG.fullmatch(measure) for measure in measures)
        for metric in measures.values():
            assert {"value"} <= metric.keys() <= {"value", "lower_value", "upper_value"}
            assert all(isinstance(value, float) and math.isfinite(value) for value in metric.values())
    return results


def test_its_own_sample_is_read() -> None:
    """The reader of these tests takes what Bencher's tests take."""
    assert len(read((DATA / "bencher_latency.json").read_text())) == 3


def test_latency_and_throughput_in_its_units() -> None:
    """Nanoseconds, floating-point operations per second, and GB/s, each with the ends of its range."""
    exported = export(mixed_run())
    results = read(render_bencher(exported))
    assert [*results] == [one.name for one in exported.cases]
    slow = exported.cases[1]
    measures = results[slow.name]
    assert slow.low_us is not None
    assert slow.case.figures is not None
    assert slow.case.figures.flops is not None
    assert measures["latency"]["value"] == pytest.approx(slow.median_us * 1e3)
    assert measures["latency"]["lower_value"] == pytest.approx(slow.low_us * 1e3)
    assert measures["throughput"]["value"] == pytest.approx(slow.case.figures.flops / (slow.median_us * 1e-6))
    assert measures["throughput"]["upper_value"] == pytest.approx(slow.case.figures.flops / (slow.low_us * 1e-6))
    assert {*measures} == {"latency", "throughput", "gb-per-s"}


def test_hostile_names_are_benchmarks() -> None:
    """Each its own; none is a slug, and none switches its alerts off by its ending."""
    text = render_bencher(export(hostile_run()))
    results = read(text)
    assert len(results) == len(HOSTILE)
    assert not any(SLUG.fullmatch(name) or name.endswith(IGNORED_ENDINGS) for name in results)
    assert json.dumps(text).count("\\u001b") == 0
