"""RMSNorm over rows, optionally of a sum with a residual (Zhang and Sennrich 2019, arXiv:1910.07467)."""

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

EPS = 1e-6
FLOPS_PER_ELEMENT = 4


@dataclass(frozen=True)
class RmsNorm(RowProblem):
    """x / sqrt(mean(x^2) + 1e-6) * weight for every row; id e.g. `rmsnorm-r8192-c4096-bf16-residual`.

    residual    x + residual is normalised, and returned too. For further fields and errors see `RowProblem`

    Inputs are (x, weight), or with `residual` (x, residual, weight): x and residual (R, C), weight (C,), contiguous.
    Outputs are 'out' (R, C) and with `residual` 'residual_out' (R, C), the sum. It is timed cold.
    """

    grammar = row_shape.make_grammar("rmsnorm", ("residual",))

    residual: bool = False

    @property
    def flops(self) -> float:
        """FLOPs: 4 per element: square, add, and two products; one more with a residual. Work per row is not
        counted."""
        return float((FLOPS_PER_ELEMENT + self.residual) * self.elements)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: x, weight and a residual read once; out, and with a residual the sum, written once."""
        return float(((4 if self.residual else 2) * self.elements + self.columns) * self.element_bytes)

    def _count_row_inputs(self) -> int:
        return 1 + self.residual

    def _conventions(self) -> dict[str, Any]:
        return {"eps": EPS}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Draws x and residual from N(0, 1), weight from N(1, 1/5). With `planted` one element of every row, at an edge
        of a tile, holds 0.8 of the sum of squares; and every fourth row is so small that eps is as large as its mean
        square."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        shapes = [(self.rows, self.columns)] * (2 if self.residual else 1)
        x, *residual = (torch.randn(shape, generator=generator, device=device) for shape in shapes)
        weight = 1.0 + 0.2 * torch.randn(self.columns, generator=generator, device=device)
        if planted:
            # A square of 4 C against an expected sum of C for the others, or of 2 C where they are sums.
            row_shape.plant_columns(x, 2.0 * math.sqrt(self.columns * len(shapes)), seed)
            small = row_shape.row_numbers(x, seed) % 4 == 3
            for tensor in (x, *residual):
                tensor *= torch.where(small, math.sqrt(EPS), 1.0)
        dtype = self.stored_as
        return tuple(tensor.to(dtype) for tensor in (x, *residual, weight))

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'residual_out') in fp64 (on a GPU for f16 and bf16: fp32); in chunks of rows."""
        dtype = reference_dtype(inputs)
        x, *residual, weight = inputs

        def of_rows(x: torch.Tensor, *residual: torch.Tensor) -> Outputs:
            summed = x.to(dtype) + residual[0].to(dtype) if residual else x.to(dtype)
            out = normalise_rows(summed) * weight.to(dtype)
            return {"out": out, "residual_out": summed} if residual else {"out": out}

        return row_shape.compute_in_chunks(of_rows, x, tuple(residual))

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'residual_out') as models do: sum in the dtype, fp32 norm, rounded, times weight."""
        *_, weight = inputs

        def of_rows(x: torch.Tensor, *residual: torch.Tensor) -> Outputs:
            summed = x + residual[0] if residual else x
            out = normalise_rows(summed.float()).to(summed.dtype) * weight
            return {"out": out, "residual_out": summed} if residual else {"out": out}

        return row_shape.compute_in_chunks(of_rows, inputs[0], inputs[1:-1])


def normalise_rows(x: torch.Tensor) -> torch.Tensor:
    """Returns each row of x (R, C) divided by the root of (its mean square + EPS), in the dtype of x."""
    import torch

    return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + EPS)
