from __future__ import annotations

import math
import re

import pytest
import torch

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import DTYPE_BYTES, OUT_DTYPES, QUANTISED, TORCH_DTYPES
from pytest_attnperf.workloads.quantisation import FORMATS, dequantise, quantise, round_to_tf32, round_weights

FP8 = sorted(dtype for dtype in FORMATS if dtype.startswith("f8"))


def torch_dtype(dtype: str) -> torch.dtype:
    """What a workload dtype is stored as."""
    found = getattr(torch, TORCH_DTYPES[dtype])
    assert isinstance(found, torch.dtype)
    return found


def every_byte(dtype: str) -> torch.Tensor:
    """The 256 values of an fp8 format by their byte, as fp32."""
    return torch.arange(256, dtype=torch.uint8).view(torch_dtype(dtype)).float()


def test_the_table_holds_every_8_bit_dtype() -> None:
    """Every workload dtype of one byte has its facts, and all of them give bf16."""
    assert set(FORMATS) == QUANTISED == {dtype for dtype, size in DTYPE_BYTES.items() if size == 1}
    assert {OUT_DTYPES[dtype] for dtype in FORMATS} == {"bf16"}
    assert all(torch_dtype(dtype).itemsize == DTYPE_BYTES[dtype] for dtype in DTYPE_BYTES)


@pytest.mark.parametrize("dtype", FP8)
def test_fp8_facts_are_those_of_torchs_conversion(dtype: str) -> None:
    """Converting all 256 bytes finds the listed largest value and spacing at 1."""
    facts, values = FORMATS[dtype], every_byte(dtype)
    finite = values[values.isfinite()].unique()
    assert float(finite.max()) == facts.largest_finite == torch.finfo(torch_dtype(dtype)).max
    assert float(finite[finite > 1].min()) - 1.0 == facts.eps


def test_int8_is_symmetric() -> None:
    """int8 uses -127 to 127, so that the negative of a value is as exact as the value."""
    stored, scale = quantise(torch.tensor([-3.0, 3.0]), "i8")
    assert stored.tolist() == [-127, 127]
    assert scale.tolist() == pytest.approx([3 / 127])


@pytest.mark.parametrize("dtype", sorted(FORMATS))
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_a_value_is_off_by_half_a_step_at_most(dtype: str, size: float) -> None:
    """stored * scale is within half a step of the value, relative where the format has an exponent, and the largest
    magnitude is stored as the largest finite value of the format."""
    facts = FORMATS[dtype]
    values = torch.randn(4000, generator=torch.Generator().manual_seed(1)) * size
    stored, scale = quantise(values, dtype)
    assert (stored.dtype, stored.shape) == (torch_dtype(dtype), values.shape)
    assert (scale.dtype, scale.shape) == (torch.float32, (1,))
    assert float(stored.float().abs().max()) == facts.largest_finite
    got = dequantise(stored, scale, torch.float64)
    smallest_step = 1.0 if dtype == "i8" else float(every_byte(dtype)[1])  # byte 1 is the smallest value above 0
    relative = 0.0 if dtype == "i8" else facts.eps / 2
    allowed = torch.maximum(values.double().abs() * relative, smallest_step / 2 * scale.double())
    assert bool(((got - values.double()).abs() <= allowed * (1 + 1e-6)).all())


@pytest.mark.parametrize("dtype", FP8)
def test_fp8_rounds_as_torch_does(dtype: str) -> None:
    """With a scale of exactly 1 the stored bytes are those of torch's own conversion."""
    values = torch.cat([torch.randn(4000), torch.tensor([0.0, 1.0625, -1.0625, 1.1875])])
    values[0] = FORMATS[dtype].largest_finite
    stored, scale = quantise(values, dtype)
    assert scale.tolist() == [1.0]
    assert torch.equal(stored.view(torch.uint8), values.to(torch_dtype(dtype)).view(torch.uint8))


def test_int8_rounds_ties_to_even() -> None:
    """Halves go to the even neighbour."""
    stored, _ = quantise(torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]), "i8")
    assert stored.tolist() == [127, 0, 2, 2, 0, -2, -2]


@pytest.mark.parametrize("dtype", sorted(FORMATS))
def test_no_scale_makes_a_value_overflow(dtype: str) -> None:
    """The largest magnitude stays finite and on its side of the limit, whatever its division by the scale rounds to."""
    for value in torch.rand(500, generator=torch.Generator().manual_seed(2)).tolist():
        stored, _ = quantise(torch.tensor([value, -value]), dtype)
        assert stored.float().tolist() == [FORMATS[dtype].largest_finite, -FORMATS[dtype].largest_finite]


@pytest.mark.parametrize("dtype", sorted(FORMATS))
def test_zeros_have_a_scale_of_one(dtype: str) -> None:
    """A tensor of zeros, or of values whose scale would underflow, becomes zeros without a division by zero."""
    for value in (0.0, 1e-45):
        stored, scale = quantise(torch.full((3,), value), dtype)
        assert scale.tolist() == [1.0]
        assert stored.float().tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        ([1.0, math.nan], "f8e4m3", "cannot quantise to f8e4m3: the largest magnitude is nan; quantise finite values"),
        ([1.0, -math.inf], "i8", "cannot quantise to i8: the largest magnitude is inf"),
        ([1.0], "f16", "cannot quantise to 'f16'; the 8-bit formats are f8e4m3, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, i8"),
    ],
)
def test_what_cannot_be_quantised_is_said(values: list[float], dtype: str, message: str) -> None:
    """NaN, Inf and a format that is not an 8-bit one are refused with what was seen and what there is."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        quantise(torch.tensor(values), dtype)


@pytest.mark.parametrize("dtype", sorted(FORMATS))
def test_weights_lose_half_a_step_at_most(dtype: str) -> None:
    """Weights in [0, 1] stay in it, 0 and 1 are kept, and others move by half a step of the format."""
    weights = torch.linspace(0, 1, 5001)
    rounded = round_weights(weights, dtype)
    assert (rounded.dtype, float(rounded[0]), float(rounded[-1])) == (torch.float32, 0.0, 1.0)
    smallest_step = 1 / 127 if dtype == "i8" else float(every_byte(dtype)[1])
    relative = 0.0 if dtype == "i8" else FORMATS[dtype].eps / 2
    assert bool(((rounded - weights).abs() <= (weights * relative).clamp(min=smallest_step / 2) * 1.0001).all())
    assert not torch.equal(rounded, weights)


def test_tf32_keeps_ten_bits_and_rounds_to_nearest_even() -> None:
    """Values on both sides of, and on, the middle between two neighbours go to the nearest, ties to the even one."""
    step = 2.0**-10
    cases = {
        1.0: 1.0,
        1 + step: 1 + step,
        1 + 0.5 * step: 1.0,
        1 + 1.5 * step: 1 + 2 * step,
        1 + 0.5 * step + 2.0**-23: 1 + step,
        1 + 0.5 * step - 2.0**-23: 1.0,
        -(1 + 1.5 * step): -(1 + 2 * step),
        2 - 2.0**-23: 2.0,
        2.0**-126 * (1 + 0.6 * step): 2.0**-126 * (1 + step),
        0.0: 0.0,
    }
    assert round_to_tf32(torch.tensor(list(cases))).tolist() == list(cases.values())


def test_tf32_agrees_with_rounding_in_fp64() -> None:
    """For random values of every size the result is what fp64 arithmetic rounds to, and rounding again is nothing."""
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(20000, generator=generator) * torch.exp2(torch.randint(-60, 60, (20000,), generator=generator))
    mantissa, exponent = torch.frexp(values.double())
    expected = torch.ldexp((mantissa * 2.0**11).round(), exponent - 11)
    rounded = round_to_tf32(values)
    assert torch.equal(rounded.double(), expected)
    assert torch.equal(round_to_tf32(rounded), rounded)
    assert torch.equal(rounded[::3], round_to_tf32(values[::3]))


def test_tf32_keeps_nan_and_inf() -> None:
    """NaN of every payload and both infinities stay what they are; the largest floats round to infinity."""
    nans = torch.tensor([0x7FFFFFFF, 0x7F800001, 0x7FC00000], dtype=torch.int32).view(torch.float32)
    assert bool(round_to_tf32(torch.cat([nans, -nans])).isnan().all())
    largest = torch.finfo(torch.float32).max
    infinite = torch.tensor([math.inf, -math.inf, largest, -largest])
    assert round_to_tf32(infinite).tolist() == [math.inf, -math.inf, math.inf, -math.inf]
