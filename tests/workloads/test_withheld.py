"""Incoming gradients are not where a forward pass could find them."""

from __future__ import annotations

import pytest
import torch

from pytest_attnperf.correctness.poison import bit_equal
from pytest_attnperf.workloads.withheld import Withheld


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64])
def test_other_values_of_the_same_size_lie_there_meanwhile(dtype: torch.dtype) -> None:
    """Every element is another one, the root mean square about the same, and every bit is back afterwards, also
    where the forward pass fails."""
    tensors = ((torch.randn(64, 64) * 1e-3).to(dtype), torch.ones((), dtype=dtype))
    before = tuple(tensor.clone() for tensor in tensors)
    withheld = Withheld(tensors)
    with pytest.raises(ZeroDivisionError), withheld.of(tensors):
        assert (tensors[0] != before[0]).float().mean() > 0.9
        assert tensors[1] != before[1]
        ratio = tensors[0].abs().double().square().mean() / before[0].abs().double().square().mean()
        assert 0.4 < ratio < 1.2
        _ = 1 / 0
    assert all(map(bit_equal, tensors, before))
    with withheld.of(tensors):
        assert not bit_equal(tensors[0], before[0])
    assert all(map(bit_equal, tensors, before))


def test_nobodys_random_numbers_are_drawn_from() -> None:
    """A function's dropout is what it would be."""
    torch.manual_seed(3)
    state = torch.get_rng_state()
    with Withheld((torch.ones(4),)).of((torch.ones(4),)):
        pass
    assert torch.equal(state, torch.get_rng_state())
