from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.dispatch.decisions import ALONE, CLEAR, TIE, Choice, Judge
from pytest_attnperf.tools.dispatch.points import Timed, points_of

Make = Callable[..., Timed]


def only(times: list[Timed], margin: float = 0.02, incumbent: str = "") -> Choice:
    """The choice of the first point."""
    points, _ = points_of(times)
    return Judge(points, margin, incumbent).choice(points[0])


def test_a_clear_winner_beats_the_incumbent(timed: Make) -> None:
    """10 % faster with an interval far from 1: chosen, with margin and interval over the next."""
    choice = only([timed("new", 10.0), timed("old", 11.0)], incumbent="old")
    assert (choice.backend, choice.confidence, choice.sampled, choice.against) == ("new", CLEAR, True, "old")
    assert choice.margin == pytest.approx(0.1)
    assert choice.interval is not None
    assert 0.09 < choice.interval[0] < 0.1 < choice.interval[1] < 0.11


def test_within_the_margin_the_incumbent_stays(timed: Make) -> None:
    """1 % faster without any noise is a tie at a margin of 2 %, and a win at one of half a percent."""
    times = [timed("new", 10.0), timed("old", 10.1)]
    assert (only(times, incumbent="old").backend, only(times, incumbent="old").confidence) == ("old", TIE)
    assert only(times, incumbent="old").margin == pytest.approx(-0.1 / 10.1)
    assert (only(times, 0.005, "old").backend, only(times, 0.005, "old").confidence) == ("new", CLEAR)


def test_a_noisy_lead_is_a_tie(timed: Make) -> None:
    """6 % faster, but processes scatter by 5 %: the interval reaches 1, so the incumbent stays."""
    choice = only([timed("new", 10.0, spread=0.05), timed("old", 10.6, spread=0.05)], incumbent="old")
    assert (choice.backend, choice.confidence) == ("old", TIE)
    assert only([timed("new", 10.0), timed("old", 10.6)], incumbent="old").backend == "new"


def test_the_noise_of_the_noisier_side_counts(timed: Make) -> None:
    """A steady backend does not make the other's scatter small, nor do many steady cases beside them."""
    steady = [timed("new", 10.0, seq=1000 + step) for step in range(20)]
    for first, second in ((0.0001, 0.08), (0.08, 0.0001)):
        times = [timed("new", 10.0, spread=first), timed("old", 10.6, spread=second), *steady]
        assert only(times, incumbent="old").confidence == TIE


def test_one_process_each_takes_the_noise_of_others(timed: Make, process: Callable[..., object]) -> None:
    """Spread is pooled over all cases; where no case has two processes there are no samples."""
    single = [timed(name, us, processes=(process(us),)) for name, us in (("new", 10.0), ("old", 11.0))]
    assert only(single).sampled is False
    pooled = only([*single, timed("new", 20.0, seq=1024), timed("old", 21.0, seq=1024)])
    assert (pooled.sampled, pooled.confidence) == (True, CLEAR)


def test_without_samples_the_margin_decides_and_it_is_said(timed: Make) -> None:
    """A published figure has no interval: 1.3 % is a tie, 11.7 % a choice, neither is sampled."""
    tie = only([timed("ck", 154.0, spread=0), timed("triton", 152.0, spread=0)], incumbent="ck")
    assert (tie.backend, tie.confidence, tie.sampled, tie.interval) == ("ck", TIE, False, None)
    won = only([timed("ck", 181.0, spread=0), timed("triton", 162.0, spread=0)], incumbent="ck")
    assert (won.backend, won.confidence, won.sampled) == ("triton", CLEAR, False)


def test_one_figure_without_samples_leaves_the_confidence_unknown(timed: Make) -> None:
    """Whatever is known of the others."""
    choice = only([timed("a", 1.0), timed("b", 2.0), timed("published", 3.0, processes=())])
    assert (choice.backend, choice.sampled) == ("a", False)


def test_a_single_backend_is_alone(timed: Make) -> None:
    """It is chosen, and nothing is said of a margin."""
    choice = only([timed("a", 1.0)])
    assert (choice.backend, choice.confidence, choice.against, choice.margin) == ("a", ALONE, "", None)


def test_the_incumbent_is_the_one_fastest_most_often(timed: Make) -> None:
    """Of each family, over its points with several backends: being alone at many sizes is no merit."""
    times = [timed("a", 1.0), timed("b", 2.0), *(timed("b", 1.0, seq=size) for size in (64, 128, 256))]
    times += [timed("c", 1.0, workload="softmax-r8-c64-f16")]
    points, _ = points_of(times)
    assert Judge(points).incumbents == {"prefill": "a", "softmax": "c"}
    assert Judge(points, incumbent="b").incumbents == {"prefill": "b", "softmax": "c"}


def test_a_tie_without_the_incumbent_goes_to_the_one_fastest_most_often(timed: Make) -> None:
    """So that neighbouring sizes do not flip between two that cannot be told apart."""
    elsewhere = [timed("b", 1.0, seq=64), timed("c", 2.0, seq=64)]
    points, _ = points_of([timed("c", 1.0), timed("b", 1.001), timed("old", 2.0), *elsewhere])
    choice = Judge(points, incumbent="old").choice(points[1])
    assert (choice.backend, choice.confidence) == ("b", TIE)


@pytest.mark.parametrize("margin", [-0.1, 1.0, float("nan")])
def test_a_margin_that_is_none_is_refused(timed: Make, margin: float) -> None:
    """Negative, 100 % and NaN."""
    with pytest.raises(UsageError, match="--margin is"):
        only([timed("a", 1.0)], margin)


def test_an_incumbent_that_was_not_measured_is_refused(timed: Make) -> None:
    """With the backends that were."""
    with pytest.raises(UsageError, match="--incumbent 'x' was not measured; measured were: a, b"):
        only([timed("a", 1.0), timed("b", 2.0)], incumbent="x")
