from __future__ import annotations

import math

import pytest

from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.session.bisect.evidence import CannotMeasureError
from pytest_attnperf.session.blame.blame_result import BlameSettings
from pytest_attnperf.session.blame.effects import NO_EFFECT, OLD, Effect, EffectSize, Ledger, Mixture

A, B = frozenset("a"), frozenset("ab")


def _pairs(ratio: float, scatter: float = 0.001) -> list[PairSummary]:
    ratios = [ratio * math.exp(scatter * (-1) ** pair) for pair in range(4)]
    return [PairSummary(one, 100.0, 100.0 * one, 30, "fake") for one in ratios]


def _ledger(*measured: tuple[Mixture, Mixture, float]) -> Ledger:
    ledger = Ledger(0.05, 5, 4, 16)
    for base, candidate, ratio in measured:
        ledger.open_sample(base, candidate)
        ledger.add_pairs(base, candidate, _pairs(ratio))
    return ledger


def test_a_measured_effect() -> None:
    """It is the mean of the pairs' log ratios with an interval around it, and the inverse the other way round."""
    ledger = _ledger((OLD, A, 1.2))
    effect = ledger.find_effect(OLD, A)
    back = ledger.find_effect(A, OLD)
    assert effect is not None
    assert back is not None
    assert (effect.ratio, effect.pairs) == (pytest.approx(1.2), 4)
    assert effect.interval[0] < 1.2 < effect.interval[1]
    assert back.ratio == pytest.approx(1 / 1.2)
    assert (ledger.count, ledger.pair_count) == (1, 4)


def test_an_effect_that_follows() -> None:
    """From old to new by way of a third environment the ratios multiply, and the half widths add."""
    ledger = _ledger((OLD, B, 1.5), (OLD, A, 1.2))
    whole, part, rest = (ledger.find_effect(*ends) for ends in ((OLD, B), (OLD, A), (A, B)))
    assert whole is not None
    assert part is not None
    assert rest is not None
    assert (rest.ratio, rest.pairs) == (pytest.approx(1.25), 0)
    assert rest.half_width == pytest.approx(whole.half_width + part.half_width)


def test_what_nothing_leads_to() -> None:
    """Environments without a measurement between them have no effect; one against itself has none of any size."""
    ledger = _ledger((OLD, A, 1.2))
    assert ledger.find_effect(OLD, B) is None
    assert ledger.find_effect(A, B) is None
    assert ledger.find_effect(B, B) == NO_EFFECT


def test_no_pairs_are_no_effect() -> None:
    """A measurement without pairs, or with an impossible ratio, is refused and leaves nothing."""
    ledger = _ledger()
    ledger.open_sample(OLD, A)
    for pairs in ([], [PairSummary(math.nan, 1.0, 1.0, 30, "fake")]):
        with pytest.raises(CannotMeasureError):
            ledger.add_pairs(OLD, A, pairs)
    assert ledger.find_effect(OLD, A) is None


@pytest.mark.parametrize(
    ("log_ratio", "half_width", "size"),
    [
        (0.0, 0.009, EffectSize.ABSENT),
        (0.0, 0.011, EffectSize.UNCLEAR),
        (-0.005, 0.004, EffectSize.ABSENT),
        (0.01, 0.004, EffectSize.PRESENT),
        (-0.01, 0.004, EffectSize.PRESENT),
        (0.01, 0.006, EffectSize.UNCLEAR),
        (0.0, math.inf, EffectSize.UNCLEAR),
    ],
)
def test_the_size_of_an_effect(log_ratio: float, half_width: float, size: EffectSize) -> None:
    """Certainly below 1 % is absent, certainly above half of it present, in both directions; else it is unclear."""
    assert Effect(log_ratio, half_width).measure_against(0.01) is size


def test_what_counts_grows_with_the_change() -> None:
    """A component must carry a tenth of the change, and more than the threshold."""
    settings = BlameSettings(threshold_percent=1.0)
    assert settings.limit_of(Effect(0.02, 0.0)) == pytest.approx(math.log(1.01))
    assert settings.limit_of(Effect(-0.4, 0.0)) == pytest.approx(0.04)
