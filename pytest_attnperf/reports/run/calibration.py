"""What a calibration shows: how far processes of unchanged code lie apart, and what the gate would make of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pytest_attnperf.reports.text.figures import ABSENT, one_line
from pytest_attnperf.reports.text.wide_tables import plain_table

NAME_LIMIT = 72


class CalibratedCase(Protocol):
    """A case's figures; fractions but for the name and the percentage."""

    @property
    def case(self) -> str: ...  # noqa: D102
    @property
    def processes(self) -> int: ...  # noqa: D102
    @property
    def relative_sd(self) -> float: ...  # noqa: D102
    @property
    def sd_interval95(self) -> tuple[float, float]: ...  # noqa: D102
    @property
    def first_noise(self) -> float | None: ...  # noqa: D102
    @property
    def second_noise(self) -> float | None: ...  # noqa: D102
    @property
    def second_look_share(self) -> float | None: ...  # noqa: D102
    @property
    def slower_share(self) -> float | None: ...  # noqa: D102
    @property
    def smallest_threshold_percent(self) -> float | None: ...  # noqa: D102
    @property
    def tighter(self) -> bool: ...  # noqa: D102


def calibration_table(cases: Sequence[CalibratedCase]) -> str:
    """One line per case: its spread, the noise thresholds of both looks, and what unchanged code would fire."""
    rows = [
        [
            one_line(case.case, NAME_LIMIT),
            _percent(case.relative_sd),
            f"{_percent(case.sd_interval95[0])}..{_percent(case.sd_interval95[1])}",
            _percent(case.first_noise),
            _percent(case.second_noise),
            _percent(case.second_look_share),
            _percent(case.slower_share),
            ABSENT if case.smallest_threshold_percent is None else f"{case.smallest_threshold_percent:.1f} %",
        ]
        for case in cases
    ]
    headers = ["case", "sd", "95 %", "noise 1st", "noise 2nd", "suspect", "SLOWER", "least threshold"]
    aligns = ("left", *("right" for _ in headers[1:]))
    return plain_table(headers, rows, aligns)


def tighter_lines(cases: Sequence[CalibratedCase]) -> list[str]:
    """Cases whose threshold no gate here can keep, worst first."""
    tight = sorted((case for case in cases if case.tighter), key=lambda case: -(case.second_noise or 0.0))
    return [
        f"{one_line(case.case, NAME_LIMIT)}: its threshold is tighter than the {_percent(case.second_noise)} that "
        "noise alone makes: slowdowns in between are UNDECIDED; allow more, or settle them with --attnperf-against"
        for case in tight
    ]


def _percent(fraction: float | None) -> str:
    return ABSENT if fraction is None else f"{100 * fraction:.2f} %"
