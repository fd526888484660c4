from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.dispatch.measured_points import BackendTime, LeftOut, make_points
from pytest_attnperf.tools.dispatch.regions import (
    ALONE,
    CLEAR,
    TIE,
    BackendChoice,
    DispatchTable,
    PointJudge,
    list_never_combined,
    make_dispatch_table,
)

Make = Callable[..., BackendTime]
Decide = Callable[..., DispatchTable]


def spans(table: DispatchTable) -> list[tuple[int, int, str, str]]:
    """(first, last, backend, confidence) of every region."""
    return [
        (region.first, region.last, region.backend, region.confidence)
        for group in table.groups
        for region in group.regions
    ]


def test_neighbouring_sizes_with_one_choice_are_one_region(timed: Make, table: Decide) -> None:
    """The first holds up to the last size at which it won; what lies between two choices is a gap."""
    times = [timed("old", us, seq=seq) for seq, us in ((512, 2.0), (1024, 4.0), (2048, 6.0), (4096, 10.0))]
    times += [timed("new", us, seq=seq) for seq, us in ((512, 1.0), (1024, 3.0), (2048, 8.0), (4096, 12.0))]
    found = table(times, incumbent="old")
    assert spans(found) == [(512, 1024, "new", "clear"), (2048, 4096, "old", "clear")]
    assert found.groups[0].gaps == [(1025, 2047)]


def test_a_single_size_between_two_choices_is_a_gap(timed: Make, table: Decide) -> None:
    """And sizes next to each other leave none."""
    times = [timed("a", 1.0), timed("b", 2.0), *(timed("a", 2.0, seq=seq) for seq in (514, 515))]
    times += [timed("b", us, seq=seq) for seq, us in ((514, 1.0), (515, 4.0))]
    assert table(times).groups[0].gaps == [(513, 513)]


def test_a_tie_joins_the_incumbents_region_and_is_named(timed: Make, table: Decide) -> None:
    """Its size stands in the confidence, its margin among the margins."""
    times = [timed("old", us, seq=seq) for seq, us in ((512, 1.01), (1024, 1.0), (2048, 1.0))]
    times += [timed("new", us, seq=seq) for seq, us in ((512, 1.0), (1024, 1.5), (2048, 1.25))]
    found = table(times, incumbent="old")
    assert spans(found) == [(512, 2048, "old", "clear, tie at 512")]
    assert found.groups[0].regions[0].margins == pytest.approx((1 / 1.01 - 1, 0.5))


def test_a_size_with_a_single_backend_stands_by_itself(timed: Make, table: Decide) -> None:
    """It shows that the backend works there, not that it wins up to there."""
    found = table([timed("a", 1.0), timed("b", 2.0), timed("a", 9.0, seq=4096)])
    assert spans(found) == [(512, 512, "a", "clear"), (4096, 4096, "a", "alone")]
    assert found.groups[0].gaps == [(513, 4095)]
    assert found.groups[0].absent == {4096: ["b"]}


def test_shapes_do_not_mix(timed: Make, table: Decide) -> None:
    """Another batch, dtype or feature is another group."""
    ids = ("b4-s512-h8-d256-f16", "b1-s512-h8-d256-f16", "b4-s512-h8-d256-bf16", "b4-s512-h8-d256-f16-causal")
    found = table([timed("a", 1.0, workload=f"prefill-{workload}") for workload in ids])
    assert len(found.groups) == 4


def test_combinations_that_were_never_measured_are_named(timed: Make, table: Decide) -> None:
    """Those of dtypes, head dimensions and batches that occur, but not together."""
    ids = ("b4-s512-h8-d256-f16", "b1-s512-h8-d64-f16", "b1-s512-h4-d64-bf16")
    found = table([timed("a", 1.0, workload=f"prefill-{workload}") for workload in ids])
    assert [tuple(fields.values()) for _, fields in list_never_combined(found.groups)] == [
        ("bf16", 64, 4),
        ("bf16", 256, 1),
        ("bf16", 256, 4),
        ("f16", 64, 4),
        ("f16", 256, 1),
    ]


def test_one_family_can_be_shown(timed: Make, table: Decide) -> None:
    """Its groups, its incumbent and what was left out of it."""
    times = [timed("a", 1.0), timed("c", 1.0, workload="softmax-r8-c64-f16"), timed("c", 1.0, workload="prefill-b1")]
    found = table(times, family="softmax")
    assert ([group.shape.family for group in found.groups], found.incumbents, found.left_out) == (
        ["softmax"],
        {"softmax": "c"},
        (),
    )
    assert len(table(times, family="prefill").left_out) == 1


def test_an_unknown_family_is_refused(timed: Make, table: Decide) -> None:
    """With those that were measured."""
    with pytest.raises(UsageError, match="--family 'gemm' has no measured case; families with some: prefill"):
        table([timed("a", 1.0)], family="gemm")


def test_nothing_measured_is_refused_with_the_first_reason() -> None:
    """Empty results say what to do; results without a right case say why."""
    with pytest.raises(UsageError, match=r"nothing can be chosen\. Measure some"):
        make_dispatch_table([], margin=0.02)
    with pytest.raises(UsageError, match="Left out were 1; the first: a on 'w', INCORRECT"):
        make_dispatch_table([], [LeftOut("a", "w", "INCORRECT")], margin=0.02)


def only(times: list[BackendTime], margin: float = 0.02, incumbent: str = "") -> BackendChoice:
    """The choice of the first point."""
    points, _ = make_points(times)
    return PointJudge(points, margin, incumbent).decide_point(points[0])


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
    points, _ = make_points(times)
    assert PointJudge(points).incumbents == {"prefill": "a", "softmax": "c"}
    assert PointJudge(points, incumbent="b").incumbents == {"prefill": "b", "softmax": "c"}


def test_a_tie_without_the_incumbent_goes_to_the_one_fastest_most_often(timed: Make) -> None:
    """So that neighbouring sizes do not flip between two that cannot be told apart."""
    elsewhere = [timed("b", 1.0, seq=64), timed("c", 2.0, seq=64)]
    points, _ = make_points([timed("c", 1.0), timed("b", 1.001), timed("old", 2.0), *elsewhere])
    choice = PointJudge(points, incumbent="old").decide_point(points[1])
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
