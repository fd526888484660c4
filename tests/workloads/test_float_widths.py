from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_attnperf.workloads.float_widths import Noise, _noise_mode, round_in_between, widen_floats, working_step

REFERENCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "method": lambda x: (x.float() * 2).to(x.dtype),
    "to": lambda x: x.to(torch.float32).pow(2).mean(-1, keepdim=True),
    "keyword": lambda x: torch.softmax(x, -1, dtype=torch.float32),
    "functional": lambda x: F.softmax(x, dim=-1, dtype=torch.float32).to(torch.bfloat16),
    "factory": lambda x: x @ torch.ones(x.shape[-1], 2, dtype=torch.float32),
    "default": lambda x: x @ torch.full((x.shape[-1], 2), 0.1),
    "half": lambda x: x.half().float(),
    "type": lambda x: x.type(torch.float32),
    "fp8": lambda x: x.to(torch.float8_e4m3fn).to(torch.float32),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_every_width_that_a_reference_names_is_widened(name: str) -> None:
    """Casts, keywords and factories give fp64, so that nothing is rounded on the way."""
    x = torch.randn(4, 8, dtype=torch.float64)
    with widen_floats(torch.float64):
        found = REFERENCES[name](x)
    assert found.dtype == torch.float64
    if name in ("half", "fp8", "type"):
        assert torch.equal(found, x)


def test_what_is_rounded_in_between_is_as_far_off_as_the_narrow_type() -> None:
    """A sum of squares in fp64 with random rounding to bf16 moves like one whose steps are stored in bf16."""
    x = torch.randn(64, 64, dtype=torch.float64)
    exact = x.pow(2).sum(-1).sqrt()
    with round_in_between(Noise(2.0**-8)):
        noisy = x.pow(2).sum(-1).sqrt()
    stored = x.pow(2).bfloat16().double().sum(-1).bfloat16().double().sqrt().bfloat16().double()
    ratio = (noisy - exact).std() / (stored - exact).std()
    assert 0.4 < ratio < 2.5
    assert (noisy != exact).all()


def test_moving_elements_rounds_nothing() -> None:
    """Views, copies, masks and choices keep every bit; so do integers."""
    x = torch.randn(8, 8, dtype=torch.float64)
    with round_in_between(Noise(2.0**-8)):
        moved = torch.cat([x.t().contiguous(), x.masked_fill(x > 0, 0.0)]).amax(-1)
        index = x.argmax(-1) + 1
    assert torch.equal(moved, torch.cat([x.t(), x.masked_fill(x > 0, 0.0)]).amax(-1))
    assert torch.equal(index, x.argmax(-1) + 1)


def test_backward_passes_are_rounded_too() -> None:
    """The cancellation in softmax's gradient shows, which one plain computation may miss by luck."""
    x, dout = (torch.randn(4, 64, dtype=torch.float64) for _ in range(2))
    gradients = []
    for step in (0.0, 2.0**-8):
        leaf = x.clone().requires_grad_()
        with round_in_between(Noise(step)):
            gradients += torch.autograd.grad(torch.softmax(leaf, -1), leaf, dout)
    exact, noisy = gradients
    assert 1e-4 < (noisy - exact).norm() / exact.norm() < 0.1


def test_a_quantising_reference_gives_the_values_before_it_quantises() -> None:
    """Neither round() nor the cast to int8 rounds; a cast to int32, which is no quantisation, does."""
    x = torch.tensor([1.4, -2.6])
    with widen_floats(torch.float64, unrounded=True):
        found = torch.round(x.double()).to(torch.int8)
        index = x.to(torch.int32)
    assert torch.equal(found, x.double())
    assert index.dtype == torch.int32


def test_everything_is_as_before_afterwards() -> None:
    """Neither the default type nor any cast stays replaced, also where the reference raises."""
    with pytest.raises(RuntimeError, match="mine"), widen_floats(torch.float64):
        raise RuntimeError("mine")
    assert torch.get_default_dtype() == torch.float32
    assert torch.zeros(1).half().dtype == torch.float16


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ((torch.bfloat16, torch.float32), 2.0**-8),
        ((torch.float16, torch.int64), 2.0**-11),
        ((torch.float32,), 2.0**-22),
        ((torch.float8_e4m3fn, torch.bfloat16), 0.0),
        ((torch.float64,), 0.0),
        ((), 0.0),
    ],
)
def test_the_working_step_is_that_of_the_narrowest_input(dtypes: tuple[torch.dtype, ...], expected: float) -> None:
    """f16, bf16 or fp32; none beside fp8, which no intermediate result is stored in."""
    assert working_step(tuple(torch.zeros(2, dtype=dtype) for dtype in dtypes)) == expected


def test_random_numbers_are_those_of_the_function_as_it_is() -> None:
    """A mask that a seeded generator draws is the same in the truth, where fp64 would draw another."""

    def drawn() -> torch.Tensor:
        return torch.rand(64, generator=torch.Generator().manual_seed(7))

    as_it_is = drawn()
    with widen_floats(torch.float64):
        wide, named = drawn(), torch.randn(8, dtype=torch.bfloat16)
    assert wide.dtype == named.dtype == torch.float64
    assert torch.equal(wide, as_it_is.double())


@pytest.mark.skipif(not hasattr(TorchDispatchMode, "_should_skip_dynamo"), reason="this torch loads nothing for a mode")
def test_a_reference_loads_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch keeps its compiler away from our rounding: it is not loaded for that, and kept away where it is loaded."""
    for name in [name for name in sys.modules if name == "torch._dynamo" or name.startswith("torch._dynamo.")]:
        monkeypatch.delitem(sys.modules, name)
    x = torch.randn(8, 8)
    with round_in_between(Noise(2.0**-8)):
        x @ x
    assert "torch._dynamo" not in sys.modules
    monkeypatch.setitem(sys.modules, "torch._dynamo", torch)
    assert hasattr(type(_noise_mode(Noise(2.0**-8))).__torch_dispatch__, "__wrapped__")


def test_bits_that_a_reference_views_as_a_float_are_not_widened() -> None:
    """A packed fp32 scale is four bytes whatever the width; its value then is of the widest type."""
    scale = torch.tensor([0.75, -3.0])
    with widen_floats(torch.float64):
        seen = scale.view(torch.int8).view(torch.float32)
    assert seen.dtype == torch.float64
    assert seen.tolist() == [0.75, -3.0]
