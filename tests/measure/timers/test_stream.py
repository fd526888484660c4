from __future__ import annotations

import pytest
import torch

from pytest_attnperf.measure.timers.stream import elapsed_us, event_pair, hold_stream, side_stream
from pytest_attnperf.measure.warm_up import warm_device

pytestmark = pytest.mark.gpu


def test_a_hold_lasts_longer_than_asked() -> None:
    """A hold of 2 ms takes between 2 and 6 ms whatever the clock does."""
    warm_device("cuda")
    hold_stream(1.0)
    start, end = event_pair()
    start.record()
    hold_stream(2000.0)
    end.record()
    torch.cuda.synchronize()
    assert 2000 < elapsed_us(start, end) < 6000


def test_one_side_stream_per_process() -> None:
    """Every capture uses the same stream, which is not the current one."""
    assert side_stream() is side_stream()
    assert side_stream() != torch.cuda.current_stream()
