"""What github-action-benchmark reads: `BenchmarkResult` and `extractCustomBenchmarkResult` of its src/extract.ts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.export.github_action import render_rates, render_times
from tests.tools.export.export_samples import HOSTILE, export, hostile_run, list_texts, mixed_run, read_strictly

FIELDS = {"name": str, "value": (int, float), "unit": str, "range": str, "extra": str}
OPTIONAL = {"range", "extra"}


def read(text: str) -> list[dict[str, Any]]:
    """The entries, as its reader takes them: an array that is not empty, known fields of their types."""
    entries = read_strictly(text)
    assert isinstance(entries, list)
    assert entries
    for entry in entries:
        assert FIELDS.keys() - OPTIONAL <= entry.keys() <= FIELDS.keys()
        assert all(isinstance(value, FIELDS[name]) for name, value in entry.items())  # type: ignore[arg-type]
        assert math.isfinite(entry["value"])
    names = [entry["name"] for entry in entries]
    assert len({*names}) == len(names)
    return entries


def test_times_are_smaller_is_better() -> None:
    """An entry per case with a time, in us, with the range of its processes; the verdict is in `extra`."""
    exported = export(mixed_run())
    entries = read(render_times(exported))
    assert [(entry["name"], entry["unit"], entry["value"]) for entry in entries] == [
        (one.name, "us", one.median_us) for one in exported.cases
    ]
    slow = exported.cases[1]
    low, _, high = entries[1]["range"].partition(" .. ")
    assert (float(low), float(high)) == pytest.approx((slow.low_us, slow.high_us), rel=1e-4)
    assert "verdict: SLOWER" in entries[1]["extra"].splitlines()


def test_rates_are_bigger_is_better() -> None:
    """TFLOP/s and GB/s of each case are charts of their own; a case without known work has none."""
    run = mixed_run()
    first = replace(run.cases[0], figures=None)
    entries = read(render_rates(export(replace(run, cases=(first, *run.cases[1:])))))
    name = f"{run.cases[1].key} on sm_90/sample"
    assert [(entry["name"], entry["unit"]) for entry in entries] == [
        (f"{name} TFLOP/s", "TFLOP/s"),
        (f"{name} GB/s", "GB/s"),
    ]


def test_no_rates_is_an_error() -> None:
    """Its reader refuses an empty array; the message says which format has the times."""
    run = mixed_run()
    cases = tuple(replace(case, figures=None) for case in run.cases)
    with pytest.raises(UsageError, match=r"of no case the FLOPs or bytes are known, .* --to github-action-benchmark"):
        render_rates(export(replace(run, cases=cases)))


def test_hostile_names_are_entries() -> None:
    """Each its own, on one line; only `extra` has line breaks, which are ours."""
    for render, each in ((render_times, 1), (render_rates, 2)):
        text = render(export(hostile_run()))
        entries = read(text)
        assert len(entries) == each * len(HOSTILE)
        texts = [line for one in list_texts(entries) for line in one.split("\n")]
        assert all(line.isprintable() for line in texts)
        assert "\x1b" not in text
