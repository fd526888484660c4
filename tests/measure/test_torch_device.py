from __future__ import annotations

import pytest

pytest.importorskip("torch")

from pytest_attnperf.measure import trace
from pytest_attnperf.measure.torch_device import TorchDevice
from pytest_attnperf.records import NotProvenRightError


def test_the_device_gives_its_canary() -> None:
    """A CPU's canary is timed on the CPU, under the names that stored ones have."""
    samples = TorchDevice.open("cpu", interpreted=False).canary()
    assert sorted(samples) == ["copy", "gemm"]
    assert {taken.timer for taken in samples.values()} == {"host"}


def test_no_canary_is_timed_behind_a_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be slower for that alone."""
    monkeypatch.setattr(trace, "_used", [True])
    with pytest.raises(NotProvenRightError, match="a profiler has been used in this process; time"):
        TorchDevice.open("cpu", interpreted=False).canary()
