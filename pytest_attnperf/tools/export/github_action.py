"""JSON for github-action-benchmark's tools customSmallerIsBetter (times) and customBiggerIsBetter (rates).

An array of {name, unit, value, range, extra}, as its README and its `BenchmarkResult` in src/extract.ts say: `name`
names a chart, `range` and `extra` are texts beside a value.
"""

from __future__ import annotations

from typing import Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.export.exported_cases import Exported, ExportedCase, list_facts, require_cases
from pytest_attnperf.tools.export.strict_json import to_json


def render_times(exported: Exported) -> str:
    """Returns the times of the cases in us, for customSmallerIsBetter. Raises UsageError without any."""
    entries = [
        _make_entry(one, one.name, "us", one.median_us, one.low_us, one.high_us) for one in require_cases(exported)
    ]
    return to_json(entries)


def render_rates(exported: Exported) -> str:
    """Returns TFLOP/s and GB/s of the cases, an entry each, for customBiggerIsBetter. Raises UsageError without any."""
    entries = [
        _make_entry(one, f"{one.name} {rate.unit}", rate.unit, rate.value, rate.low, rate.high)
        for one in require_cases(exported)
        for rate in one.rates
    ]
    if not entries:
        raise UsageError(
            "of no case the FLOPs or bytes are known, so there are no rates; export times: --to github-action-benchmark"
        )
    return to_json(entries)


def _make_entry(
    exported: ExportedCase, name: str, unit: str, value: float, low: float | None, high: float | None
) -> dict[str, Any]:
    entry = {"name": name, "unit": unit, "value": value}
    if low is not None and high is not None:
        entry["range"] = f"{low:.5g} .. {high:.5g}"
    return {**entry, "extra": "\n".join(f"{fact}: {text}" for fact, text in list_facts(exported).items())}
