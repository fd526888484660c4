"""Files that say what their own samples do not, each found out; what was measured and judged is believed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.gate.recount import recount_figures
from pytest_attnperf.records import Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.stats.comparison import z_for
from pytest_attnperf.stats.noise import NoiseEstimate
from tests import recorded_cases as cases

HONEST = {
    "slower": cases.slower,
    "slower by pairs": cases.slower_by_pairs,
    "same": cases.same,
    "undecided": cases.undecided,
}


@pytest.mark.parametrize("name", HONEST)
def test_what_an_h200_measured_and_the_gate_judged_is_believed(name: str) -> None:
    """No contradiction; ratio, noise and quantile come out as they went in."""
    case = HONEST[name]()
    found = recount_figures(case, cases.CASES)
    assert found.contradicted == ()
    assert found.ratio == pytest.approx(case.ratio)
    assert found.relative_sd is not None
    assert found.z is not None
    assert found.share == pytest.approx(0.01 / cases.CASES)
    noise = next(reason for reason in case.reasons if reason.startswith("noise:"))
    assert f"noise: {100 * found.relative_sd:.2g} % per" in noise
    assert f"z {found.z:.1f}" in noise


LIARS: dict[str, tuple[dict[str, Any], str]] = {
    "verdict": ({"verdict": Verdict.SAME, "fails": False}, "its verdict is stated as SAME, but the 3 processes"),
    "faster": ({"verdict": Verdict.FASTER, "fails": False}, "give ENVIRONMENT or SLOWER"),
    "passed": ({"fails": False}, "SLOWER fails a test by the file's policy"),
    "ratio": ({"ratio": 1.001}, "its change is stated as +0.10 %, but the 3 processes of its second look give"),
    "time": ({"median_us": 19.0}, "its time is stated as 19.00 us"),
    "base": ({"baseline_us": 21.0}, "its base is stated as 21.00 us"),
    "limit": ({"threshold": 1.30}, "its limit is"),
    "low limit": ({"threshold": 1.001}, "its own policy allows"),
    "interval": ({"interval": (0.99, 1.01)}, "its interval is stated as -1.0 % to +1.0 %"),
    "sensitivity": ({"detection_limit": 0.001}, "it claims to detect 0.1 %"),
    "no second look": (
        {"second": ()},
        "its verdict is stated as SLOWER, but the 1 process of its first look give UNDECIDED",
    ),
    "no samples": ({"first": (), "second": ()}, "no process or pair to compare"),
    "policy": ({"policy": {"threshold_percent": -3}}, "its figures cannot be computed with: policy threshold_percent"),
    "stored": ({"stored_us": (0.0, 0.0)}, "its figures cannot be computed with"),
}


@pytest.mark.parametrize("name", LIARS)
def test_a_file_that_lies_is_named(name: str) -> None:
    """Each figure of a case that is slower by 5 %, changed alone."""
    changes, said = LIARS[name]
    liar = replace(cases.slower(), **changes)
    assert any(said in text for text in recount_figures(liar, cases.CASES).contradicted), recount_figures(
        liar, cases.CASES
    )


def test_pairs_that_say_otherwise_are_named() -> None:
    """UNDECIDED by pairs that say SLOWER; and a change that is not the pairs'."""
    honest = cases.slower_by_pairs()
    for changes in ({"verdict": Verdict.UNDECIDED, "fails": False}, {"ratio": 1.5}):
        liar: CaseResult = replace(honest, **changes)  # type: ignore[arg-type]
        assert "its 8 pairs" in recount_figures(liar, cases.CASES).contradicted[0]


def test_a_limit_of_fewer_cases_is_no_lie() -> None:
    """The judge of a pull request may share the rate among fewer; a limit that no number of these gives is named."""
    strict = Policy(threshold_percent=0.1, floor_us=0.01)  # noise alone sets the limit
    loud = NoiseEstimate(0.03, 18, "given")
    case = cases.by_looks(cases.TRITON, cases.processes(cases.NEW, cases.TRITON, "slow3"), strict, loud)
    assert case.standard_error is not None
    fewer = replace(case, threshold=math.exp(z_for(0.01, 40, case.degrees_of_freedom) * case.standard_error))
    assert recount_figures(fewer, cases.CASES).contradicted == ()
    assert "standard errors" in recount_figures(case, 1).contradicted[0]


def test_a_file_of_an_older_version_is_no_liar() -> None:
    """Files from before the stored processes were kept hold their centre, which the ratio follows from, too."""
    assert recount_figures(replace(cases.slower(), stored_us=()), cases.CASES).contradicted == ()


TWO_CARDS = NoiseEstimate(0.004, 18, "given", card_sd=0.003, card_degrees=13, card_how="given")


def test_noise_between_cards_is_told_apart() -> None:
    """A case that another card measured: its file says what cards make of its standard error, and
    the noise per process comes out of the rest."""
    new = [replace(one, device_id="another") for one in cases.processes(cases.NEW, cases.TRITON, "slow5")]
    case = cases.by_looks(cases.TRITON, new, noise=TWO_CARDS)
    found = recount_figures(case, cases.CASES)
    assert found.contradicted == ()
    assert case.card_error > 0
    assert found.relative_sd == pytest.approx(TWO_CARDS.relative_sd)
    liar = replace(case, card_error=1.0)
    assert recount_figures(liar, cases.CASES).contradicted[0].startswith("its figures cannot be computed with")
