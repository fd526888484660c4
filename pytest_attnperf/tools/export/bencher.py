"""Bencher Metric Format, for `bencher run --adapter json`: {benchmark: {measure: {value, lower_value, upper_value}}}.

`latency` (nanoseconds) and `throughput` (operations per second, here floating-point ones) are Bencher's own measures;
`gb-per-s` is one that it adds when it first sees it. A benchmark's name has 1 to 1,024 bytes; an ending such as
`_bencher_ignore` would switch its alerts off. (bencher_valid/src/benchmark_name.rs, bencher_json/src/project/measure)
"""

from __future__ import annotations

from pytest_attnperf.tools.export.exported_cases import Exported, ExportedCase, require_cases
from pytest_attnperf.tools.export.strict_json import to_json

NS_PER_US = 1e3
FLOP_PER_TFLOP = 1e12
DIGITS = 10
"""Significant ones, more than are measured: 65.142 us is 65142 ns, and not 65141.99999999999."""

IGNORED_ENDINGS = ("_bencher_ignore", "BencherIgnore", "-bencher-ignore")

Metric = dict[str, float]


def render_bencher(exported: Exported) -> str:
    """Returns latency, throughput and bytes per second of the cases. Raises UsageError without any."""
    return to_json({_make_name(one): _list_measures(one) for one in require_cases(exported)})


def _make_name(exported: ExportedCase) -> str:
    return f"{exported.name}." if exported.name.endswith(IGNORED_ENDINGS) else exported.name


def _list_measures(exported: ExportedCase) -> dict[str, Metric]:
    measures = {"latency": _make_metric(NS_PER_US, exported.median_us, exported.low_us, exported.high_us)}
    for rate in exported.rates:
        name, factor = ("throughput", FLOP_PER_TFLOP) if rate.unit == "TFLOP/s" else ("gb-per-s", 1.0)
        measures[name] = _make_metric(factor, rate.value, rate.low, rate.high)
    return measures


def _make_metric(factor: float, value: float, low: float | None, high: float | None) -> Metric:
    ends = {} if low is None or high is None else {"lower_value": low, "upper_value": high}
    return {name: float(f"{one * factor:.{DIGITS}g}") for name, one in {"value": value, **ends}.items()}
