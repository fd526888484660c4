"""How many pairs a case takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.workers.conversation import OpenRequest

if TYPE_CHECKING:
    from tests.session.conftest import Bench


@pytest.mark.parametrize(("threshold_percent", "taken"), [(50.0, 4), (1e-6, 8)])
def test_half_of_the_pairs_suffice_for_what_is_surely_same(bench: Bench, threshold_percent: float, taken: int) -> None:
    """Four of eight pairs are measured where they show it, all eight where they do not."""
    policy = Policy(threshold_percent=threshold_percent, floor_us=0)
    against = bench.against_base()
    looks = against.measure_pairs(bench.pool, OpenRequest(bench.case.key, None, 1, 2), pairs=8, policy=policy)
    assert len(looks) == taken
