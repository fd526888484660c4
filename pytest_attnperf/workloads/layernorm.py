"""LayerNorm over rows, optionally of a sum with a residual (Ba, Kiros and Hinton 2016, arXiv:1607.06450)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.workloads import row_shape
from pytest_attnperf.workloads.precision import reference_dtype
from pytest_attnperf.workloads.row_shape import RowProblem

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

EPS = 1e-5
FLOPS_PER_ELEMENT = 7
SHIFT = 30.0
"""Every third row is moved up by this much and every third down: a variance computed as the mean of squares minus the
square of the mean then loses three digits."""
SHIFTED_COLUMNS_MIN = 16
"""With fewer columns, the variance is sometimes so small that fp32 rounds it away next to such a mean."""


@dataclass(frozen=True)
class LayerNorm(RowProblem):
    """(x - mean) / sqrt(variance + 1e-5) * weight + bias for every row; id e.g. `layernorm-r8192-c4096-f16-residual`.

    residual    x + residual is normalised, and returned too. For further fields and errors see `RowProblem`

    The variance is the mean of (x - mean)^2, over C, not C - 1. Inputs are (x, weight, bias), or with `residual`
    (x, residual, weight, bias): x and residual (R, C), weight and bias (C,), contiguous. Outputs are 'out' (R, C) and
    with `residual` 'residual_out' (R, C), the sum. It is timed cold. A single column raises WorkloadError.
    """

    grammar = row_shape.make_grammar("layernorm", ("residual",))
    columns_min = 2
    """Least number of columns: one column minus its mean is 0."""

    residual: bool = False

    @property
    def flops(self) -> float:
        """FLOPs: 7 per element: add, subtract, square, add, two products and the bias; one more with a residual."""
        return float((FLOPS_PER_ELEMENT + self.residual) * self.elements)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: x, weight, bias and a residual read once; out, and with a residual the sum, written
        once."""
        return float(((4 if self.residual else 2) * self.elements + 2 * self.columns) * self.element_bytes)

    def _count_row_inputs(self) -> int:
        return 1 + self.residual

    def _conventions(self) -> dict[str, Any]:
        return {"eps": EPS}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Draws x, residual and bias from N(0, 1), weight from N(1, 1/5). With `planted` one element of every row, at
        an edge of a tile, holds 0.8 of the variance; every fourth row is so small that eps is as large as its variance;
        and the other rows are shifted by 30, 0 and -30 in turn."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        shapes = [(self.rows, self.columns)] * (2 if self.residual else 1)
        x, *residual = (torch.randn(shape, generator=generator, device=device) for shape in shapes)
        weight = 1.0 + 0.2 * torch.randn(self.columns, generator=generator, device=device)
        bias = torch.randn(self.columns, generator=generator, device=device)
        if planted:
            self._plant_rows(x, residual, seed)
        dtype = self.stored_as
        return tuple(tensor.to(dtype) for tensor in (x, *residual, weight, bias))

    def _plant_rows(self, x: torch.Tensor, residual: list[torch.Tensor], seed: int) -> None:
        """Changes fp32 x and residual in place: a large element per row, every fourth row small, others shifted."""
        import torch

        # A square of 4 C against an expected sum of C for the others, or of 2 C where they are sums.
        row_shape.plant_columns(x, 2.0 * math.sqrt(self.columns * (1 + len(residual))), seed)
        numbers = row_shape.row_numbers(x, seed)
        small = numbers % 4 == 3
        for tensor in (x, *residual):
            tensor *= torch.where(small, math.sqrt(EPS), 1.0)
        if self.columns >= SHIFTED_COLUMNS_MIN:
            x += torch.where(small, 0.0, (numbers % 3 - 1) * SHIFT)

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'residual_out') in fp64 (on a GPU for f16 and bf16: fp32); in chunks of rows."""
        dtype = reference_dtype(inputs)
        x, *residual, weight, bias = inputs

        def of_rows(x: torch.Tensor, *residual: torch.Tensor) -> Outputs:
            summed = x.to(dtype) + residual[0].to(dtype) if residual else x.to(dtype)
            out = normalise_rows(summed) * weight.to(dtype) + bias.to(dtype)
            return {"out": out, "residual_out": summed} if residual else {"out": out}

        return row_shape.compute_in_chunks(of_rows, x, tuple(residual))

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'residual_out'): the sum with the residual rounded to the dtype, then norm, weight and
        bias in fp32, rounded once."""
        *_, weight, bias = inputs

        def of_rows(x: torch.Tensor, *residual: torch.Tensor) -> Outputs:
            summed = x + residual[0] if residual else x
            out = (normalise_rows(summed.float()) * weight.float() + bias.float()).to(summed.dtype)
            return {"out": out, "residual_out": summed} if residual else {"out": out}

        return row_shape.compute_in_chunks(of_rows, inputs[0], inputs[1:-2])


def normalise_rows(x: torch.Tensor) -> torch.Tensor:
    """Returns each row of x (R, C) minus its mean, divided by the root of its variance plus EPS, in the dtype of x."""
    import torch

    centred = x - x.mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(dim=-1, keepdim=True) + EPS)
