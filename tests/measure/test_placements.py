import pytest

from pytest_attnperf.backends import Prepared
from pytest_attnperf.measure import placements
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.records import Samples
from pytest_attnperf.stats.summaries import summarise


@pytest.mark.parametrize(
    ("call_us", "places", "blocks"),
    [(5.0, 10, 3), (30.0, 10, 3), (100.0, 10, 3), (200.0, 5, 4), (480.0, 2, 4), (5000.0, 2, 4)],
)
def test_short_calls_are_measured_at_more_places(call_us: float, places: int, blocks: int) -> None:
    """Ten places for what is too short to average over memory by itself, two for what is long."""
    plan = placements.plan_for(call_us, max_blocks=30)
    assert plan == placements.Plan(places, blocks)


def test_few_blocks_stay_at_one_place() -> None:
    """Where fewer than two places can be afforded there is no plan, and more are never planned than paid for."""
    assert placements.plan_for(5.0, max_blocks=5) is None
    plan = placements.plan_for(5.0, max_blocks=12)
    assert plan is not None
    assert plan.places * plan.blocks <= 12


def test_elsewhere_copies_inputs_and_nothing_else() -> None:
    """The copy has other memory, the same values and strides, and calls the same function on its own tensors."""
    torch = pytest.importorskip("torch")
    original = torch.arange(24.0).reshape(2, 3, 4).transpose(0, 1)
    prepared = Prepared(
        call=lambda x: x * 2, tensors=(original,), convert=lambda t: t, outputs=lambda out: {"out": out}
    )
    copy = placements.elsewhere(prepared)
    (tensor,) = copy.tensors
    assert tensor.data_ptr() != original.data_ptr()
    assert tensor.stride() == original.stride()
    tensor.zero_()
    assert copy.run().abs().max() == 0
    assert prepared.run().max() == 46


def test_the_centre_is_the_mean_over_places() -> None:
    """Two groups of places 4 % apart give their weighted mean; a median over all blocks would be one of the two."""
    samples = Samples((10.0,) * 6 + (10.4,) * 3, calls_per_block=1, timer="graph", placements=3)
    assert summarise(samples).median_us == pytest.approx(10.133, rel=1e-4)
    assert summarise(Samples((10.0,) * 6 + (10.4,) * 3, 1, "graph")).median_us == 10.0


def test_blocks_that_do_not_divide_are_refused() -> None:
    """Nine blocks are not two places."""
    with pytest.raises(ValueError, match="9 blocks do not divide into 2 placements"):
        summarise(Samples((10.0,) * 9, 1, "graph", placements=2))


@pytest.mark.gpu
def test_a_twin_replays_its_own_tensors() -> None:
    """The second graph has the first one's length, computes from the copies, and both are timed."""
    torch = pytest.importorskip("torch")
    matrix = torch.randn(256, 256, device="cuda")
    prepared = Prepared(call=lambda x: x @ x, tensors=(matrix,), convert=lambda t: t, outputs=lambda out: {"out": out})
    timer = GraphTimer()
    timer.prepare(prepared.run, 200.0)
    copy = placements.elsewhere(prepared)
    twin = timer.twin(copy.run)
    copy.tensors[0].fill_(1.0)
    assert twin.calls_per_block == timer.calls_per_block > 1
    assert torch.equal(twin.run_once(), torch.full((256, 256), 256.0, device="cuda"))
    assert not torch.equal(timer.run_once(), twin.run_once())
    samples = placements.measure([timer, twin], 3, rest=lambda _seconds: None)
    assert (len(samples.block_us), samples.placements) == (6, 2)
    assert summarise(samples).median_us > 0
