"""Right, by ordinary tests: on a GPU, or on a CPU with TRITON_INTERPRET=1."""

from __future__ import annotations

import os

import pytest
import torch
from own_kernel import plain_rms_norm, rms_norm, rms_norm_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
runs_triton = pytest.mark.skipif(
    DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1",
    reason="without a GPU set TRITON_INTERPRET=1",
)


@pytest.fixture
def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows whose length is no power of two."""
    torch.manual_seed(0)
    return torch.randn(5, 1000, device=DEVICE), torch.rand(1000, device=DEVICE)


@runs_triton
def test_the_kernel_is_rms_norm(tensors: tuple[torch.Tensor, torch.Tensor]) -> None:
    torch.testing.assert_close(rms_norm_triton(*tensors), plain_rms_norm(*tensors))


def test_what_users_call_is_rms_norm(tensors: tuple[torch.Tensor, torch.Tensor]) -> None:
    torch.testing.assert_close(rms_norm(*tensors), plain_rms_norm(*tensors))


def test_what_the_kernel_cannot_read_is_refused(tensors: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, weight = tensors
    with pytest.raises(ValueError, match="contiguous"):
        rms_norm_triton(x[:, ::2], weight[::2])
    with pytest.raises(ValueError, match="1000"):
        rms_norm_triton(x, weight[:10])
