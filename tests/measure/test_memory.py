from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytest_attnperf.measure.call_costs import PeakMemory, measure_peak_memory


def _peak_bytes(call: object, torch_device: str = "cpu") -> int:
    assert callable(call)
    peak = measure_peak_memory(call, torch_device)
    assert peak.allocated_bytes is not None
    return peak.allocated_bytes


def _eager(qkv: torch.Tensor) -> torch.Tensor:
    return torch.softmax(qkv @ qkv.transpose(-1, -2), -1) @ qkv


def _flash(qkv: torch.Tensor) -> torch.Tensor:
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        return torch.nn.functional.scaled_dot_product_attention(qkv, qkv, qkv)


def test_peak_counts_what_is_held_at_once() -> None:
    """Two buffers held together count together, two held one after the other count once."""

    def together() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.empty(1000), torch.empty(1000)

    def one_after_the_other() -> torch.Tensor:
        first = torch.empty(1000)
        del first
        return torch.empty(1000)

    assert _peak_bytes(together) == 8000
    assert _peak_bytes(one_after_the_other) == 4000


def test_eager_attention_needs_quadratic_memory_and_flash_does_not() -> None:
    """Twice the length takes four times eager's memory, and about twice flash attention's."""
    short, long = torch.randn(1, 2, 512, 64), torch.randn(1, 2, 1024, 64)
    assert _peak_bytes(lambda: _eager(long)) / _peak_bytes(lambda: _eager(short)) == pytest.approx(4, rel=0.05)
    assert _peak_bytes(lambda: _flash(long)) / _peak_bytes(lambda: _flash(short)) < 3.5
    assert _peak_bytes(lambda: _flash(long)) < _peak_bytes(lambda: _eager(long)) / 5


def test_without_a_profiler_the_peak_is_unknown_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that cannot count memory on a CPU gives no number but a reason."""
    monkeypatch.setattr(torch._C._autograd, "kineto_available", lambda: False)
    assert measure_peak_memory(lambda: None, "cpu") == PeakMemory(
        None, "this torch is built without its profiler, which counts memory on a CPU"
    )


@pytest.mark.gpu
def test_gpu_peak_is_beyond_what_was_there() -> None:
    """On a GPU the peak counts the call's own buffers only, in the allocator's 512-byte steps."""
    held = torch.empty(1 << 20, device="cuda")
    assert _peak_bytes(lambda: torch.empty(1 << 18, device="cuda"), "cuda") == 1 << 20
    assert held.numel() == 1 << 20
