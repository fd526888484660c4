"""The formats of `attnperf export`. A new one is one file, its import here and one line of `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.reports.files.csv_table import render_csv
from pytest_attnperf.tools.export.bencher import render_bencher
from pytest_attnperf.tools.export.exported_cases import Exported
from pytest_attnperf.tools.export.github_action import render_rates, render_times
from pytest_attnperf.tools.export.perfetto import render_trace
from pytest_attnperf.tools.export.pytest_benchmark import render_pytest_benchmark
from pytest_attnperf.tools.export.pytorch_hud import render_hud


@dataclass(frozen=True)
class TimesFormat:
    """A format of results.

    name         value of --to
    title        what it is, for the help
    render       returns the whole file
    every_case   cases without a time are in the file, too
    """

    name: str
    title: str
    render: Callable[[Exported], str]
    every_case: bool = False


@dataclass(frozen=True)
class TraceFormat:
    """A format of one profile. `render` takes a profiler's file or folder, and returns the whole file."""

    name: str
    title: str
    render: Callable[[Path], bytes]


def _render_table(exported: Exported) -> str:
    return render_csv(exported.joined)


FORMATS: tuple[TimesFormat | TraceFormat, ...] = (
    TimesFormat("bencher", "Bencher Metric Format, for bencher run --adapter json", render_bencher),
    TimesFormat("csv", "a row per case and compiled kernel, for spreadsheets", _render_table, every_case=True),
    TimesFormat("github-action-benchmark", "its tool customSmallerIsBetter: times in us", render_times),
    TimesFormat("github-action-benchmark-rates", "customBiggerIsBetter: TFLOP/s and GB/s", render_rates),
    TraceFormat("perfetto", "a profile as a trace, for ui.perfetto.dev", render_trace),
    TimesFormat("pytest-benchmark", "samples, for pytest-benchmark compare", render_pytest_benchmark),
    TimesFormat("pytorch-hud", "records of PyTorch HUD's benchmark database, schema v3", render_hud),
)
