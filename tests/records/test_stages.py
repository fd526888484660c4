from __future__ import annotations

from pytest_attnperf.records import Launch
from pytest_attnperf.records.stages import Breakdown, StageTime, launch_count


def test_stages_add_up() -> None:
    """The sum of the stages, and its share of the whole call."""
    found = Breakdown((StageTime("a", 30.0), StageTime("b", 10.0)), 50.0, "graph", 1.0, 2.0)
    assert (found.sum_us, found.share) == (40.0, 0.8)


def test_nothing_is_made_up() -> None:
    """Without stages there is no sum, without a time no share, and launches that nobody read are not 0."""
    whole = Breakdown((), 50.0, "graph", 1.0, 2.0)
    assert (whole.sum_us, whole.share, whole.launch_count) == (None, None, None)
    assert Breakdown((StageTime("a", 30.0),), 0.0, "graph", 1.0, 2.0).share is None
    assert launch_count(()) == 0
    assert StageTime("a", 1.0, (Launch("k", calls=2.0), Launch("l"))).launch_count == 3
