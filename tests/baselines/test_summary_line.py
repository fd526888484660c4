"""The line that a reviewer of a baseline's diff reads."""

from __future__ import annotations

import dataclasses
import math

import pytest

from pytest_attnperf.baselines.acceptance import Acceptance
from pytest_attnperf.baselines.schema import Check, Entry
from pytest_attnperf.baselines.summary_line import digits, summary_of
from pytest_attnperf.records import ProcessSummary


def entry(*medians_us: float) -> Entry:
    """An entry of processes with these medians."""
    processes = tuple(ProcessSummary(us, us, us, (us,), 1, "graph") for us in medians_us)
    check = Check(0.126, 0.413)
    return Entry({}, environment="e", policy="p", processes=processes, check=check, recorded="2026-11-20",
                 harness_version="0.1.0", commit="0123abcdef123456")  # fmt: skip


def test_it_says_what_a_reviewer_must_know() -> None:
    """Time, how many processes and how far apart, the worse error, when and from what; then the last acceptance."""
    line = "154.4 us, 3 processes within 0.39 %, error 0.41 of budget, recorded 2026-11-20 from 0123abcdef12"
    assert summary_of(entry(154.4, 154.9, 154.3)) == line
    accepted = tuple(Acceptance(reason, "Ada", "2026-12-01", "7 processes", 1.0) for reason in ("first", "last"))
    one = dataclasses.replace(entry(18.0), commit="", accepted=accepted)
    expected = "18.00 us, 1 process, error 0.41 of budget, recorded 2026-11-20, accepted 2026-12-01 (7 processes): last"
    assert summary_of(one) == expected


@pytest.mark.parametrize("medians_us", [(), (0.0, 0.0), (math.nan, 1.0)])
def test_an_unsound_entry_has_a_line_too(medians_us: tuple[float, ...]) -> None:
    """What is no time is refused when the text is read, by name, and not by a crash here."""
    assert "us, " in summary_of(entry(*medians_us))


@pytest.mark.parametrize(
    ("value", "text"),
    [(18.841, "18.84"), (104312.0, "104312"), (0.0041, "0.004100"), (0.0, "0"), (1e-9, "0.000000001000")],
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    """Four significant digits, as many decimals as they need."""
    assert digits(value) == text
