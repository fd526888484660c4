from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.dispatch.points import LeftOut, Timed
from pytest_attnperf.tools.dispatch.regions import DispatchTable, dispatch_table, never_combined

Make = Callable[..., Timed]
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
    assert [tuple(fields.values()) for _, fields in never_combined(found.groups)] == [
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
        dispatch_table([], margin=0.02)
    with pytest.raises(UsageError, match="Left out were 1; the first: a on 'w', INCORRECT"):
        dispatch_table([], [LeftOut("a", "w", "INCORRECT")], margin=0.02)
