"""Rotary position embedding with torch's elementwise operators, as models write it. Torch is imported in `prepare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.layouts import own_copies
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.rope import Rope, rotate

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

CPU_FLOPS_MAX = 2e7
"""CPU limit that keeps a check and a timing on two cores within seconds: a few million elements."""


@dataclass(frozen=True)
class EagerRope(Backend[Rope]):
    """Products and sums as separate operators. Tables and all intermediate values are fp32."""

    families = ("rope",)

    def prepare(self, workload: Rope, inputs: Tensors) -> Prepared:
        """Copies the inputs; the timed call returns rotated (q, k) in their dtype."""

        def call_operators(
            q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            rotated = (rotate(x, cos, sin, workload.interleaved).to(x.dtype) for x in (q, k))
            return next(rotated), next(rotated)

        return Prepared(
            call=call_operators,
            tensors=own_copies(inputs),
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config={"compute_dtype": "f32"},
            declares=Declares(operators=("aten::mul",)),
        )


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor]) -> Outputs:
    return {"q": result[0], "k": result[1]}


BACKENDS = (EagerRope("native.eager_rope", CPU_FLOPS_MAX),)
