from __future__ import annotations

import pytest

pytest.importorskip("torch")

from pytest_attnperf.measure.torch_device import TorchDevice


def test_the_device_gives_its_canary() -> None:
    """A CPU's canary is timed on the CPU, under the names that stored ones have."""
    samples = TorchDevice.open("cpu", interpreted=False).canary()
    assert sorted(samples) == ["copy", "gemm"]
    assert {taken.timer for taken in samples.values()} == {"host"}
