from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.gate.calibration import CaseCalibration
from pytest_attnperf.reports.run.calibration import CalibratedCase, calibration_table, tighter_lines


@dataclass(frozen=True)
class Row:
    """A case as a calibration gives it; by default with too few processes for decisions."""

    case: str = "prefill/ck/w"
    processes: int = 8
    relative_sd: float = 0.00312
    sd_interval95: tuple[float, float] = (0.0021, 0.0063)
    first_noise: float | None = None
    second_noise: float | None = None
    second_look_share: float | None = None
    slower_share: float | None = None
    smallest_threshold_percent: float | None = None
    tighter: bool = False


DEALT = Row("prefill/triton.flash/w", 22, 0.0055, (0.004, 0.008), 0.0211, 0.0134, 0.12, 0.004, 1.7)


def test_every_figure_has_its_column() -> None:
    """Spread with its interval, both noise thresholds, what unchanged code fires, and the least threshold."""
    lines = calibration_table([DEALT, Row()]).splitlines()
    assert [heading.strip() for heading in lines[0].split("  ") if heading.strip()] == [
        "case", "sd", "95 %", "noise 1st", "noise 2nd", "suspect", "SLOWER", "least threshold",
    ]  # fmt: skip
    assert lines[2].split("  ")[0] == "prefill/triton.flash/w"
    assert " ".join(lines[2].split()[1:]) == "0.55 % 0.40 %..0.80 % 2.11 % 1.34 % 12.00 % 0.40 % 1.7 %"
    assert " ".join(lines[3].split()[1:]) == "0.31 % 0.21 %..0.63 % - - - - -"


def test_names_are_made_safe() -> None:
    """A name with control characters stays in its line, and a long one is cut."""
    table = calibration_table([Row("a\nb\x1b[2J" + "x" * 200)])
    assert len(table.splitlines()) == 3
    assert "\x1b" not in table
    assert "..." in table


def test_thresholds_that_cannot_be_kept_are_said_worst_first() -> None:
    """Each names the noise and the two ways out; a case whose threshold holds is not named."""
    tight = [
        Row("a", second_noise=0.011, tighter=True),
        Row("b", second_noise=0.03, tighter=True),
        Row("c", second_noise=0.2),
    ]
    assert tighter_lines(tight) == [
        f"{name}: its threshold is tighter than the {noise} that noise alone makes: slowdowns in between are "
        "UNDECIDED; allow more, or settle them with --attnperf-against"
        for name, noise in (("b", "3.00 %"), ("a", "1.10 %"))
    ]


def test_what_the_gate_makes_is_what_the_table_takes() -> None:
    """A `gate.calibration.CaseCalibration` has every figure of a row."""
    case: CalibratedCase = CaseCalibration("prefill/ck/w", 8, 0.00312, (0.0021, 0.0063))
    assert calibration_table([case]) == calibration_table([Row()])
