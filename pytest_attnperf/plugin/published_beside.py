"""Published figures beside those of a run: of the run's device, or with -v of every device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.baselines.published import PublishedFigure, figures_for, load_published
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.reports.run.tables import published_table
from pytest_attnperf.reports.text.colour import Ink
from pytest_attnperf.results import CaseResult

UNNAMED = "a device that is not named"


@dataclass(frozen=True)
class ShownRow:
    """A figure from a published report, as text for a table."""

    config: str
    backend: str
    time: str
    source: str

    @classmethod
    def from_figure(cls, figure: PublishedFigure) -> ShownRow:
        """Returns a published figure as texts: its time, and its report's title, date, device and method."""
        row, report = figure.row, figure.report
        source = ", ".join(part for part in (report.title, report.date, report.device, report.method) if part)
        return cls(row.workload, f"{row.backend} ({row.table})", format_time(row.time_us), source)


def render_published(folder: Path, cases: Sequence[CaseResult], device: DeviceInfo | None, width: int, ink: Ink) -> str:
    """Returns a table of the published figures in `folder` for the workloads of these cases; '' if there are none.

    device   leaves out figures of other devices; None leaves out none

    A file that cannot be read gives its error as text.
    """
    try:
        found = _list_figures(folder, cases)
    except BaselineError as error:
        return str(error)
    shown = [figure for figure in found if device is None or is_of_device(figure, device)]
    return published_table([ShownRow.from_figure(figure) for figure in shown], width=width, ink=ink)


def hidden_line(folder: Path, cases: Sequence[CaseResult], device: DeviceInfo | None) -> str:
    """Returns one line on how many published figures are of other devices, and how to see them; '' for none."""
    try:
        found = _list_figures(folder, cases)
    except BaselineError:
        return ""
    hidden = [figure for figure in found if device is None or not is_of_device(figure, device)]
    names = " and ".join(dict.fromkeys(figure.report.device or UNNAMED for figure in hidden))
    count = f"{len(hidden)} published figure{'s' * (len(hidden) != 1)}"
    return f"{count} of {names} {'is' if len(hidden) == 1 else 'are'} not shown (-v shows all)" if hidden else ""


def is_of_device(figure: PublishedFigure, device: DeviceInfo) -> bool:
    """Returns whether a report names the product and the architecture of `device` as its own device."""
    named = set(re.findall(r"\w+", figure.report.device.lower()))
    return {device.arch.lower(), *device.product.lower().split("-")} <= named


def _list_figures(folder: Path, cases: Iterable[CaseResult]) -> list[PublishedFigure]:
    reports = load_published(folder)
    return [one for name in sorted({case.key.workload for case in cases}) for one in figures_for(reports, name)]
