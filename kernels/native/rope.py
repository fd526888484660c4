"""Rotary position embedding with torch's elementwise operators, as models write it. Torch is imported in `prepare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.family_backend import FamilyBackend
from kernels.prefill_backend import own_copies
from pytest_attnperf.backends import Declares, Prepared
from pytest_attnperf.workloads.rope import Rope, rotate

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

CPU_FLOPS_MAX = 2e7
"""Keeps a check and a timing on two cores within seconds: a few million elements."""


@dataclass(frozen=True)
class EagerRope(FamilyBackend[Rope]):
    """Products and sums as operators of their own. Tables are fp32, and so is all that is between input and output."""

    @property
    def families(self) -> frozenset[str]:
        """'rope'."""
        return frozenset({"rope"})

    def reasons(self, workload: Rope, device: DeviceInfo) -> list[str]:
        """Nothing is refused: this is the implementation every other is compared with."""
        return []

    def bind(self, workload: Rope, inputs: Tensors) -> Prepared:
        """The operators on copies of the inputs."""

        def call(
            q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            rotated = (rotate(x, cos, sin, workload.interleaved).to(x.dtype) for x in (q, k))
            return next(rotated), next(rotated)

        return Prepared(
            call=call,
            tensors=own_copies(inputs),
            convert=lambda new: new,
            outputs=_canonical,
            config={"compute_dtype": "f32"},
            declares=Declares(operators=("aten::mul",)),
        )


def _canonical(result: tuple[torch.Tensor, torch.Tensor]) -> Outputs:
    return {"q": result[0], "k": result[1]}


BACKENDS = (EagerRope("native.eager_rope", CPU_FLOPS_MAX),)
