from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_attnperf.backends import Prepared
from pytest_attnperf.measure import placements
from pytest_attnperf.measure.copies import copy_prepared
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.records import Samples
from pytest_attnperf.stats.summaries import summarise_process


@pytest.mark.parametrize(
    ("call_us", "places", "blocks"),
    [(5.0, 15, 6), (30.0, 15, 6), (100.0, 15, 6), (200.0, 8, 6), (480.0, 3, 6), (5000.0, 2, 4)],
)
def test_short_calls_are_measured_at_more_places(call_us: float, places: int, blocks: int) -> None:
    """Fifteen places for what is too short to average over memory by itself, two for what is long."""
    plan = placements.make_placement_plan(call_us, max_blocks=30)
    assert plan == placements.PlacementPlan(places, blocks)


@pytest.mark.parametrize(
    ("call_us", "places"), [(5.0, 40), (100.0, 40), (480.0, 40), (1000.0, 24), (5000.0, 4), (50_000.0, 2)]
)
def test_turns_are_taken_at_as_many_places_as_time_allows(call_us: float, places: int) -> None:
    """Forty places for short calls and fewer for longer ones, but always two."""
    assert placements.count_places_for_turns(call_us, 0, 0) == places


def test_large_calls_take_turns_at_fewer_places() -> None:
    """Places together take no more than their share of memory, but two are always taken."""
    assert placements.count_places_for_turns(5.0, 1 << 20, 4 << 30) == 40
    assert placements.count_places_for_turns(5.0, 1 << 30, 4 << 30) == 4
    assert placements.count_places_for_turns(5.0, 8 << 30, 4 << 30) == 2


@pytest.mark.parametrize(
    ("max_blocks", "places", "blocks"), [(1, 2, 1), (3, 3, 3), (5, 5, 3), (12, 12, 3), (300, 15, 6)]
)
def test_a_plan_keeps_to_the_blocks_that_were_asked_for(max_blocks: int, places: int, blocks: int) -> None:
    """Three times as many of a third of the length take as long; two places and one block at each are the least."""
    assert placements.make_placement_plan(5.0, max_blocks) == placements.PlacementPlan(places, blocks)
    assert places * blocks <= placements.SPLIT * max_blocks


def test_elsewhere_copies_inputs_and_nothing_else() -> None:
    """The copy has other memory, the same values and strides, and calls the same function on its own tensors."""
    torch = pytest.importorskip("torch")
    original = torch.arange(24.0).reshape(2, 3, 4).transpose(0, 1)
    prepared = Prepared(
        call=lambda x: x * 2, tensors=(original,), convert=lambda t: t, outputs=lambda out: {"out": out}
    )
    copy = copy_prepared(prepared)
    (tensor,) = copy.tensors
    assert tensor.data_ptr() != original.data_ptr()
    assert tensor.stride() == original.stride()
    tensor.zero_()
    assert copy.run().abs().max() == 0
    assert prepared.run().max() == 46


def test_the_centre_is_the_mean_over_places() -> None:
    """Two groups of places 4 % apart give their weighted mean; a median over all blocks would be one of the two."""
    samples = Samples((10.0,) * 6 + (10.4,) * 3, calls_per_block=1, timer="graph", placements=3)
    assert summarise_process(samples).median_us == pytest.approx(10.133, rel=1e-4)
    assert summarise_process(Samples((10.0,) * 6 + (10.4,) * 3, 1, "graph")).median_us == 10.0


def test_the_centre_counts_every_state_of_the_cache() -> None:
    """Of a place that is fast in one block of three the mean counts that one, where a median would not see it."""
    assert summarise_process(Samples((9.5, 10.0, 10.0) * 2, 1, "graph", placements=2)).median_us == pytest.approx(
        9.8333, 1e-4
    )


def test_a_disturbed_block_moves_the_centre_a_little() -> None:
    """A block ten times as long counts as a tenth above the median of its place, one of next to nothing below."""
    blocks = (10.0,) * 5 + (100.0,) + (10.0,) * 6
    assert summarise_process(Samples(blocks, 1, "graph", placements=2)).median_us == pytest.approx(
        10 + 1 / 12, rel=1e-4
    )
    blocks = (10.0,) * 5 + (0.1,) + (10.0,) * 6
    assert summarise_process(Samples(blocks, 1, "graph", placements=2)).median_us == pytest.approx(
        10 - 1 / 12, rel=1e-4
    )


class OnePlace:
    """A timer of one place, whose blocks all take `us` and ran at `mhz`, if that is known."""

    name, cache_state, note = "graph", "hot", ""
    replays, max_pairs, calls_per_block, call_us = True, 64, 5, 40.0

    def __init__(self, us: float, mhz: float | None) -> None:
        self.us, self.mhz = us, mhz
        self.clock_mhz: tuple[float, ...] = ()
        self.before_pair: Callable[[], None] | None = None

    def prepare(self, call: Any, block_us: float) -> None:
        """Nothing to prepare."""

    def measure(self, pairs: int) -> list[float]:
        """All the same, behind what was asked for in front of each pair."""
        assert self.before_pair is not None
        for _ in range(pairs):
            self.before_pair()
        self.clock_mhz = (self.mhz,) * pairs if self.mhz is not None else ()
        return [self.us] * pairs

    def run_once(self, *, poisoned: bool = True) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing to free."""


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is queued in front of pairs, on a device that is not there."""
    found: list[str] = []
    monkeypatch.setattr(placements, "idle_stream", lambda us: found.append(f"idle {us:g}"))
    fill = SimpleNamespace(zero_=lambda: found.append("fill"))
    monkeypatch.setattr(placements, "_allocate_fill", lambda: fill)
    return found


def places_of(*timers: OnePlace) -> list[GraphTimer]:
    """Timers as `measure` takes them."""
    return [cast(GraphTimer, timer) for timer in timers]


def test_each_pair_finds_another_state_of_the_cache(queued: list[str]) -> None:
    """Before each pair the device idles and memory is written; a timer that is used again elsewhere draws nothing."""
    timers = [OnePlace(10.0, None), OnePlace(11.0, None)]
    placements.measure_places(places_of(*timers), 2, rest=lambda _: None)
    assert queued == ["idle 2000", "fill"] * 4
    assert [timer.before_pair for timer in timers] == [None, None]


def test_places_are_measured_one_after_the_other_after_one_rest(queued: list[str]) -> None:
    """Blocks and clocks of all places in a row; no clock at all where one place has none."""
    rests: list[float] = []
    both = places_of(OnePlace(10.0, 1900.0), OnePlace(11.0, 1800.0))
    known = placements.measure_places(both, 2, rest=rests.append)
    assert (known.block_us, known.placements) == ((10.0, 10.0, 11.0, 11.0), 2)
    assert known.clock_mhz == (1900.0, 1900.0, 1800.0, 1800.0)
    assert rests == [placements.REST_SECONDS]
    partly = placements.measure_places(places_of(OnePlace(10.0, 1900.0), OnePlace(11.0, None)), 2, rest=rests.append)
    assert partly.clock_mhz == ()


def test_blocks_that_do_not_divide_are_refused() -> None:
    """Nine blocks are not two places."""
    with pytest.raises(ValueError, match="9 blocks do not divide into 2 placements"):
        summarise_process(Samples((10.0,) * 9, 1, "graph", placements=2))


@pytest.mark.gpu
def test_a_twin_replays_its_own_tensors() -> None:
    """The second graph has the first one's length, computes from the copies, and both are timed."""
    torch = pytest.importorskip("torch")
    matrix = torch.randn(256, 256, device="cuda")
    prepared = Prepared(call=lambda x: x @ x, tensors=(matrix,), convert=lambda t: t, outputs=lambda out: {"out": out})
    timer = GraphTimer()
    timer.prepare(prepared.run, 200.0)
    copy = copy_prepared(prepared)
    twin = timer.make_twin(copy.run)
    copy.tensors[0].fill_(1.0)
    assert twin.calls_per_block == timer.calls_per_block > 1
    assert torch.equal(twin.run_once(), torch.full((256, 256), 256.0, device="cuda"))
    assert not torch.equal(timer.run_once(), twin.run_once())
    samples = placements.measure_places([timer, twin], 3, rest=lambda _seconds: None)
    assert (len(samples.block_us), samples.placements) == (6, 2)
    assert summarise_process(samples).median_us > 0
