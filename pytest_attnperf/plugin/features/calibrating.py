"""`--attnperf-calibrate=N`: reports at the end how the gate would judge processes of unchanged code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.calibration import CaseCalibration, Shares, calibrate
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.plugin.features.feature import Feature
from pytest_attnperf.records import Measurement, Verdict
from pytest_attnperf.reports.text.figures import ABSENT, one_line
from pytest_attnperf.reports.text.wide_tables import plain_table
from pytest_attnperf.results import RunResult

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.on import FeatureContext

NAME_LIMIT = 200
WIDTH = 80


class Calibrating(Feature):
    """Prints how often the gate would fail unchanged code. `second_look`: processes of a second look."""

    def __init__(self, second_look: int) -> None:
        self._second_look = second_look

    def render_lines(self, run: RunResult) -> Sequence[str]:
        """Returns the table of noise and false alarms per case, with notes; [] if no case was measured."""
        return list(render_calibration(run, self._second_look))


def make_feature(given: FeatureContext) -> Calibrating:
    """Returns the feature that prints how often the gate would fail unchanged code."""
    return Calibrating(given.settings.second_look)


def render_calibration(run: RunResult, second_look: int) -> Iterator[str]:
    """Yields the table of noise per case, its note, the share of false alarms, and lines on thresholds below the noise;
    nothing if no case was measured."""
    measured = [case for case in run.cases if case.verdict is Verdict.RIGHT and len(case.first) > 1]
    if not measured:
        return
    calibration = calibrate(
        {str(case.key): Measurement(case.first, case.checks) for case in measured},
        {str(case.key): policy_of(case.policy) for case in measured},
        shares=Shares(second=second_look),
        bounds={str(case.key): case.floor_bound for case in measured},
    )
    yield render_calibration_table(calibration.cases)
    yield calibration.note
    if calibration.red_share is not None:
        yield f"of {calibration.deals} resampled suite runs over unchanged code {calibration.red_share:.1%} were red"
    yield from tighter_lines(calibration.cases)


def policy_of(record: dict[str, object]) -> Policy:
    """Returns the Policy whose fields are `record`. Raises UsageError for unknown fields or invalid values."""
    try:
        return Policy(**record)  # type: ignore[arg-type]
    except TypeError as error:
        raise UsageError(f"policy record {record!r}: {error}") from error


def render_calibration_table(cases: Sequence[CaseCalibration]) -> str:
    """Returns a table of cases: noise, noise thresholds of first and repeated measurement, shares of suspect and SLOWER
    verdicts for unchanged code, and the least threshold."""
    rows = [
        [
            one_line(case.case, NAME_LIMIT),
            _format_percent(case.relative_sd),
            f"{_format_percent(case.sd_interval95[0])}..{_format_percent(case.sd_interval95[1])}",
            _format_percent(case.first_noise),
            _format_percent(case.second_noise),
            _format_percent(case.second_look_share),
            _format_percent(case.slower_share),
            ABSENT if case.smallest_threshold_percent is None else f"{case.smallest_threshold_percent:.1f} %",
        ]
        for case in cases
    ]
    headers = ["case", "sd", "95 %", "noise 1st", "noise 2nd", "suspect", "SLOWER", "least threshold"]
    aligns = ("left", *("right" for _ in headers[1:]))
    return plain_table(headers, rows, aligns, WIDTH)


def tighter_lines(cases: Sequence[CaseCalibration]) -> list[str]:
    """Returns lines on cases whose threshold is smaller than their noise, noisiest first; [] if there are none."""
    tight = sorted((case for case in cases if case.tighter), key=lambda case: -(case.second_noise or 0.0))
    return [
        f"{one_line(case.case, NAME_LIMIT)}: its threshold is smaller than the "
        f"noise of {_format_percent(case.second_noise)}: "
        "slowdowns in between are UNDECIDED; raise the threshold, or settle them with --attnperf-against"
        for case in tight
    ]


def _format_percent(fraction: float | None) -> str:
    return ABSENT if fraction is None else f"{100 * fraction:.2f} %"
