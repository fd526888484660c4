"""8-bit formats with one scale per tensor, and TF32: the values of numbers that are stored or multiplied in them.

A quantised tensor is a pair (stored, scale), value = stored * scale. aiter (`flash_attn_fp8_pertensor_func`) and
FlashAttention-3 call this scale the descale of a tensor. It is symmetric, without a zero point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import TORCH_DTYPES

if TYPE_CHECKING:
    import torch

PER_TENSOR = "per tensor: value = stored * scale, scale = amax / largest finite"
"""Text of a definition for a quantised tensor."""


@dataclass(frozen=True)
class Format:
    """One 8-bit format.

    largest_finite    largest value it holds; for int8 the largest used, so that it is symmetric
    eps               spacing at 1
    """

    largest_finite: float
    eps: float


FORMATS = {
    "f8e4m3": Format(448.0, 2.0**-3),
    "f8e5m2": Format(57344.0, 2.0**-2),
    "f8e4m3fnuz": Format(240.0, 2.0**-3),
    "f8e5m2fnuz": Format(57344.0, 2.0**-2),
    "i8": Format(127.0, 1.0),
}
"""By workload dtype. f8e4m3 and f8e5m2: OCP 8-bit Floating Point Specification (OFP8) revision 1.0, section 5. The two
fnuz formats: arXiv:2206.02915 (Graphcore, AMD, Qualcomm), and LLVM's APFloat.h (Float8E4M3FNUZ, Float8E5M2FNUZ).
`torch.finfo(torch.float8_e5m2fnuz).eps` is 2^-3, which is wrong."""


def quantise(tensor: torch.Tensor, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (stored, scale) of a finite floating-point tensor: `stored` in the format, scale fp32 of shape (1,).
    scale = largest magnitude / largest finite value of the format, or 1 for a tensor of zeros. The quotient is rounded
    to nearest, ties to even. `dtype` is one of FORMATS. Raises WorkloadError for another one, and for NaN or Inf."""
    import torch

    if dtype not in FORMATS:
        raise WorkloadError(f"cannot quantise to {dtype!r}; the 8-bit formats are {', '.join(FORMATS)}")
    values = tensor.float()
    largest = values.abs().amax().reshape(1)
    if not bool(largest.isfinite()):
        raise WorkloadError(
            f"cannot quantise to {dtype}: the largest magnitude is {float(largest)}; quantise finite values, because "
            "the whole tensor has one scale"
        )
    limit = FORMATS[dtype].largest_finite
    scale = largest / limit
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    # The division may round to just above the limit, which some formats would make NaN.
    quotient = (values / scale).clamp_(-limit, limit)
    stored_as: torch.dtype = getattr(torch, TORCH_DTYPES[dtype])
    return (quotient if stored_as.is_floating_point else quotient.round_()).to(stored_as), scale


def dequantise(stored: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns stored * scale, computed in `dtype`: exact in fp64, rounded once in fp32."""
    return stored.to(dtype) * scale.to(dtype)


def round_weights(weights: torch.Tensor, dtype: str) -> torch.Tensor:
    """Returns softmax weights exp(score - row max), fp32 in [0, 1], rounded to a workload dtype, as fp32 again. fp8: a
    plain cast. FlashAttention-3 shifts them by 2^8 first, to lose fewer small ones (Max_offset in hopper/softmax.h).
    int8: in steps of 1 / 127."""
    import torch

    if dtype == "i8":
        return (weights * 127.0).round_().div_(127.0)
    stored_as: torch.dtype = getattr(torch, TORCH_DTYPES[dtype])
    return weights.to(stored_as).float()


def round_to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Rounds fp32 to 10 of its 23 mantissa bits, to nearest, ties to even; NaN and Inf are kept. TF32 has the exponent
    of fp32 and the mantissa of fp16 (NVIDIA A100 whitepaper, 2020). Half of the last kept bit, minus one where that bit
    is 0, is added to the bits as an integer: a carry correctly increases the exponent."""
    import torch

    bits = tensor.view(torch.int32)
    kept_is_odd = (bits >> 13) & 1
    rounded = ((bits + (0xFFF + kept_is_odd)) & ~0x1FFF).view(torch.float32)
    return torch.where(tensor.isfinite(), rounded, tensor)
