"""CSV of stored results: a row per case and per compiled kernel, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.reports.run.error_shares import compute_error_share
from pytest_attnperf.reports.run.joined import Joined
from pytest_attnperf.reports.run.tables import compute_gb_s, compute_tflops
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult, RunResult

COLUMNS = (
    *("key", "suite", "backend", "workload", "label", "arch", "product", "verdict"),
    *("median_us", "interval_low_us", "interval_high_us", "processes"),
    *("change_percent", "change_low_percent", "change_high_percent", "baseline_us"),
    *("tflops", "gbytes_per_s", "error_share", "reason", "commit"),
)
"""The header. A figure that is not known is an empty cell. Intervals are of 95 %: of the change, and the times that it
means beside the baseline. `error_share` is the largest error over its budget, 'inf' for NaN and Inf."""

TEXT_LIMIT = 2_000
FORMULA_STARTS = ("=", "+", "-", "@")
"""Letters by which a spreadsheet takes a text for a formula. A results file may come from anywhere."""


def render_csv(joined: Joined) -> str:
    """Returns the cases as CSV, a row each under a header, then the compiled kernels, which have no times."""
    made = io.StringIO()
    writer = csv.DictWriter(made, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for shown in joined.cases:
        writer.writerow(_make_case_row(shown.case, shown.run))
    commits = {id(result): run.commit for run in joined.runs for result in run.code}
    for result in joined.code:
        reasons = [finding.text for finding in result.findings] or [result.summary]
        row = _make_row(result, reasons, commits[id(result)])
        writer.writerow({**row, "arch": _escape(result.key.label)})
    return made.getvalue()


def _make_case_row(case: CaseResult, run: RunResult) -> dict[str, str]:
    low, high = case.interval or (None, None)
    base = case.baseline_us
    figures = {
        "median_us": case.median_us,
        "interval_low_us": None if base is None or low is None else base * low,
        "interval_high_us": None if base is None or high is None else base * high,
        "change_percent": _to_percent(case.ratio),
        "change_low_percent": _to_percent(low),
        "change_high_percent": _to_percent(high),
        "baseline_us": base,
        "tflops": compute_tflops(case),
        "gbytes_per_s": compute_gb_s(case),
        "error_share": compute_error_share(case),
    }
    return {
        **_make_row(case, case.reasons or [case.summary], run.commit),
        "arch": _escape(run.device.arch if run.device else ""),
        "product": _escape(run.device.product if run.device else ""),
        "processes": str(len(case.pairs or case.second or case.first)),
        **{name: "" if value is None else f"{value:.10g}" for name, value in figures.items()},
    }


def _make_row(result: CaseResult | CodeResult, reasons: Sequence[str], commit: str) -> dict[str, str]:
    """Returns the cells that cases and compiled kernels have in common."""
    key = result.key
    texts = {
        "key": str(key),
        "suite": key.suite,
        "backend": key.backend,
        "workload": key.workload,
        "label": key.label,
        "verdict": result.verdict.value,
        "reason": "; ".join(reasons),
        "commit": commit,
    }
    return {name: _escape(text) for name, text in texts.items()}


def _to_percent(ratio: float | None) -> float | None:
    return None if ratio is None else (ratio - 1) * 100


def _escape(text: str) -> str:
    """Returns a text as one line without control characters; an apostrophe before what would be a formula."""
    line = one_line(text, TEXT_LIMIT)
    return f"'{line}" if line.startswith(FORMULA_STARTS) else line
