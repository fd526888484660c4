from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from pytest_attnperf.workloads.float_widths import lowered, widened, working_dtype

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
    with widened(torch.float64):
        found = REFERENCES[name](x)
    assert found.dtype == torch.float64
    if name in ("half", "fp8", "type"):
        assert torch.equal(found, x)


def test_lowered_computes_in_the_narrow_type() -> None:
    """What a reference upcasts stays in bf16, and is as far off as bf16 arithmetic is."""
    x = torch.randn(64, 64).bfloat16()
    with lowered(torch.bfloat16):
        low = REFERENCES["to"](x)
    exact, as_is = x.double().pow(2).mean(-1, keepdim=True), REFERENCES["to"](x)
    assert low.dtype == torch.bfloat16
    assert (low - exact).abs().max() > 100 * (as_is - exact).abs().max()


def test_a_quantising_reference_gives_the_values_before_it_quantises() -> None:
    """Neither round() nor the cast to int8 rounds; a cast to int32, which is no quantisation, does."""
    x = torch.tensor([1.4, -2.6])
    with widened(torch.float64, unrounded=True):
        found = torch.round(x.double()).to(torch.int8)
        index = x.to(torch.int32)
    assert torch.equal(found, x.double())
    assert index.dtype == torch.int32


def test_everything_is_as_before_afterwards() -> None:
    """Neither the default type nor any cast stays replaced, also where the reference raises."""
    with pytest.raises(RuntimeError, match="mine"), widened(torch.float64):
        raise RuntimeError("mine")
    assert torch.get_default_dtype() == torch.float32
    assert torch.zeros(1).half().dtype == torch.float16


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ((torch.bfloat16, torch.float32), torch.bfloat16),
        ((torch.float16, torch.int64), torch.float16),
        ((torch.float32,), None),
        ((torch.float8_e4m3fn, torch.bfloat16), None),
        ((), None),
    ],
)
def test_the_working_type_is_the_narrowest_that_has_arithmetic(
    dtypes: tuple[torch.dtype, ...], expected: torch.dtype | None
) -> None:
    """f16 or bf16; none beside fp8, and none where all inputs are wide."""
    assert working_dtype(tuple(torch.zeros(2, dtype=dtype) for dtype in dtypes)) == expected
