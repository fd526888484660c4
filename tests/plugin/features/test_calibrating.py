from __future__ import annotations

from functools import partial

from pytest_attnperf.gate.calibration import CaseCalibration
from pytest_attnperf.plugin.features.calibrating import render_calibration_table, tighter_lines

ROW = partial(CaseCalibration, processes=8, relative_sd=0.00312, sd_interval95=(0.0021, 0.0063))
"""A case with too few processes for decisions."""

DEALT = CaseCalibration("prefill/triton.flash/w", 22, 0.0055, (0.004, 0.008), 0.0211, 0.0134, 0.12, 0.004, 1.7)


def test_every_figure_has_its_column() -> None:
    """Spread with its interval, both noise thresholds, what unchanged code fires, and the least threshold."""
    lines = render_calibration_table([DEALT, ROW("prefill/ck/w")]).splitlines()
    assert [heading.strip() for heading in lines[0].split("  ") if heading.strip()] == [
        "case", "sd", "95 %", "noise 1st", "noise 2nd", "suspect", "SLOWER", "least threshold",
    ]  # fmt: skip
    assert lines[2] == "prefill/triton.flash/w"
    assert " ".join(lines[3].split()) == "0.55 % 0.40 %..0.80 % 2.11 % 1.34 % 12.00 % 0.40 % 1.7 %"
    assert lines[4] == "prefill/ck/w"
    assert " ".join(lines[5].split()) == "0.31 % 0.21 %..0.63 % - - - - -"


def test_names_are_made_safe() -> None:
    """A name with control characters stays in its line, and a long one is cut."""
    table = render_calibration_table([ROW("a\nb\x1b[2J" + "x" * 200)])
    assert len(table.splitlines()) == 4
    assert "\x1b" not in table
    assert "..." in table


def test_thresholds_that_cannot_be_kept_are_said_worst_first() -> None:
    """Each names the noise and the two ways out; a case whose threshold holds is not named."""
    tight = [
        ROW("a", second_noise=0.011, tighter=True),
        ROW("b", second_noise=0.03, tighter=True),
        ROW("c", second_noise=0.2),
    ]
    assert tighter_lines(tight) == [
        f"{name}: its threshold is smaller than the noise of {noise}: slowdowns in between are "
        "UNDECIDED; raise the threshold, or settle them with --attnperf-against"
        for name, noise in (("b", "3.00 %"), ("a", "1.10 %"))
    ]
