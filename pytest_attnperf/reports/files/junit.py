"""A case as JUnit properties: plain builtins, because pytest-xdist and JUnit writers carry nothing else."""

from __future__ import annotations

from pytest_attnperf.reports.text.commands import repeatable
from pytest_attnperf.results import CaseResult

Property = tuple[str, str | float | int]


def properties(case: CaseResult) -> list[Property]:
    """('attnperf.verdict', 'SLOWER'), ('attnperf.median_us', 106.1), ...: what is known, unrounded; units in names."""
    low, high = case.interval or (None, None)
    figures = case.figures
    values: dict[str, str | float | int | None] = {
        "verdict": case.verdict.value,
        "summary": case.summary,
        "suite": case.key.suite,
        "backend": case.key.backend,
        "workload": case.key.workload,
        "label": case.key.label or None,
        "median_us": case.median_us,
        "baseline_us": case.baseline_us,
        "ratio": case.ratio,
        "ratio_low": low,
        "ratio_high": high,
        "threshold": case.threshold,
        "processes": len(case.first) + len(case.second) or None,
        "pairs": len(case.pairs) or None,
        "against": case.against or None,
        "flops": figures.flops if figures else None,
        "bytes_min": figures.bytes_min if figures else None,
        "floor_us": case.floor_us,
        "peak_memory_bytes": case.peak_memory_bytes,
        "reproduce": repeatable(case.reproduce, case.nodeid) or None,
        "quarantined": case.quarantined or None,
        "unchanged": "yes" if case.unchanged else None,
    }
    return [(f"attnperf.{name}", value) for name, value in values.items() if value is not None]
