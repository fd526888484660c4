"""`--attnperf-calibrate=N` at the end of a run: what the gate would make of processes of unchanged code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.calibration import Shares, calibrate
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.plugin.features.base import Feature
from pytest_attnperf.records import Measurement, Verdict
from pytest_attnperf.reports.run.calibration import calibration_table, tighter_lines
from pytest_attnperf.results import RunResult


class Calibrating(Feature):
    """Of a run that calibrates, whose second looks are of so many processes."""

    def __init__(self, second_look: int) -> None:
        self._second_look = second_look

    def lines(self, run: RunResult) -> Sequence[str]:
        """What the gate would make of the run's processes."""
        return list(calibration_lines(run, self._second_look))


def calibration_lines(run: RunResult, second_look: int) -> Iterator[str]:
    """The table, what it is worth, and thresholds that cannot be kept; nothing where no case was measured."""
    measured = [case for case in run.cases if case.verdict is Verdict.RIGHT and len(case.first) > 1]
    if not measured:
        return
    calibration = calibrate(
        {str(case.key): Measurement(case.first, case.checks) for case in measured},
        {str(case.key): policy_of(case.policy) for case in measured},
        shares=Shares(second=second_look),
        bounds={str(case.key): case.floor_bound for case in measured},
    )
    yield calibration_table(calibration.cases)
    yield calibration.note
    if calibration.red_share is not None:
        yield f"of {calibration.deals} resampled suite runs over unchanged code {calibration.red_share:.1%} were red"
    yield from tighter_lines(calibration.cases)


def policy_of(record: dict[str, object]) -> Policy:
    """A policy from its record. Raises UsageError for one that no policy can have."""
    try:
        return Policy(**record)  # type: ignore[arg-type]
    except TypeError as error:
        raise UsageError(f"policy record {record!r}: {error}") from error
