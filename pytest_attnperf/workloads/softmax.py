"""Softmax over rows: exp(x - max x) / sum exp(x - max x)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.workloads import row_shape
from pytest_attnperf.workloads.precision import reference_dtype
from pytest_attnperf.workloads.row_shape import RowProblem

if TYPE_CHECKING:
    from pytest_attnperf.backends import Outputs, Tensors

MARGIN = 1.5
"""How far, in nats, a planted element is above the log-sum-exp of the others: it holds 0.8 of its row."""
SHIFT = 100.0
"""Every third row is moved up by this much and every third down: exp(100) overflows fp32, and exp(-100) is almost 0 in
it, which shows a kernel that does not subtract the maximum."""
FLOPS_PER_ELEMENT = 5


@dataclass(frozen=True)
class Softmax(RowProblem):
    """Softmax of every row of (R, C); id e.g. `softmax-r4096-c8192-f16`. Fields and errors as `RowProblem`.

    Input is (x,), (R, C), contiguous; output is 'out' (R, C). It is timed cold. A single column raises WorkloadError.
    """

    grammar = row_shape.make_grammar("softmax")
    columns_min = 2
    """Least number of columns: the softmax of one column is 1."""

    @property
    def flops(self) -> float:
        """FLOPs: 5 per element: compare, subtract, exponential, add, divide; an exponential counts as one."""
        return float(FLOPS_PER_ELEMENT * self.elements)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: x read once and out written once."""
        return float(2 * self.elements * self.element_bytes)

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Draws (x,) from N(0, 1). With `planted` one element of every row, at an edge of a tile, holds 0.8 of the
        weight, and rows are shifted by 100, 0 and -100 in turn."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        x = torch.randn((self.rows, self.columns), generator=generator, device=device)
        if planted:
            # The expected sum of the others' exponentials is C exp(1/2).
            row_shape.plant_columns(x, math.log(self.columns) + 0.5 + MARGIN, seed)
            x += (row_shape.row_numbers(x, seed) % 3 - 1) * SHIFT
        return (x.to(self.stored_as),)

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out' in fp64 on a CPU and for f32, in fp32 on a GPU for f16 and bf16; in chunks of rows."""
        import torch

        dtype = reference_dtype(inputs)
        return row_shape.compute_in_chunks(lambda x: {"out": torch.softmax(x.to(dtype), dim=-1)}, inputs[0], ())

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out' by torch.softmax in the workload's dtype, which sums in fp32 and rounds once."""
        import torch

        return {"out": torch.softmax(inputs[0], dim=-1)}
