"""Inputs of a prefill: q, k and v as they are stored, and all of them by what they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.workloads.attention_bias import Added
from pytest_attnperf.workloads.base import OUT_DTYPES, TORCH_DTYPES
from pytest_attnperf.workloads.quantisation import quantise

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors


@dataclass(frozen=True)
class SplitInputs:
    """Inputs of a `Prefill` by what they are.

    qkv       (q, k, v) as stored
    scales    'q', 'k', 'v' -> scale (1,), fp32, of those that have one
    slopes    (H,) fp32 with ALiBi, else None
    bias      (H, Sq, Skv) with a bias, else None
    """

    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    scales: Mapping[str, torch.Tensor]
    slopes: torch.Tensor | None
    bias: torch.Tensor | None

    @property
    def added(self) -> Added:
        """What is added to the scaled scores."""
        return Added(self.slopes, self.bias)


def stored(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dtype: str, scaled: Collection[str]) -> Tensors:
    """q, k and v in a workload's dtype, and the scales (1,) of those named in `scaled`, in this order.

    What is not scaled is stored in OUT_DTYPES of an 8-bit dtype.
    """
    import torch

    found, scales = [], []
    for name, tensor in zip("qkv", (q, k, v), strict=True):
        if name in scaled:
            quantised, scale = quantise(tensor, dtype)
            found.append(quantised)
            scales.append(scale)
        else:
            found.append(tensor.to(getattr(torch, TORCH_DTYPES[OUT_DTYPES[dtype] if scaled else dtype])))
    return (*found, *scales)
