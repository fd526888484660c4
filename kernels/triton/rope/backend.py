"""Backend `triton.rope`: this repository's own rotary embedding. Triton is imported in `prepare` only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.configured import Configured
from kernels.layouts import own_copies
from kernels.triton.rope.space import SPACE
from kernels.triton.triton_backend import INTERPRETER_ROWS_FLOPS_MAX, arch_of, compile_ahead, missing_triton
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.rope import Rope

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo


@dataclass(frozen=True)
class TritonRope(Configured, Backend[Rope]):
    """Rotary embedding of q and k in one launch, computed in fp32 and rounded once."""

    families = ("rope",)
    spaces = (SPACE,)

    def unsupported_reasons(self, workload: Rope, device: DeviceInfo) -> list[str]:
        """Returns why Triton or, without a GPU, its interpreter is missing; empty if it can run."""
        return missing_triton(device)

    def prepare(self, workload: Rope, inputs: Tensors) -> Prepared:
        """Copies the inputs, takes the configuration (pinned, else from this architecture's file), and compiles."""
        from kernels.triton.rope.kernel import rope

        tensors = own_copies(inputs)
        problem = {
            "head_dim": workload.head_dim,
            "interleaved": workload.interleaved,
            "element_bits": tensors[0].element_size() * 8,
        }
        choice = self.choose(SPACE, arch_of(tensors[0].device), problem)
        config = choice.config

        def launch_kernel(
            q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            return rope(q, k, cos, sin, interleaved=workload.interleaved, config=config)

        compile_ahead(launch_kernel, tensors, SPACE, choice)
        return Prepared(
            call=launch_kernel,
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config=self.config_entries({SPACE.kernel: choice}),
            declares=Declares(kernels=("rope_kernel",)),
        )


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor]) -> Outputs:
    return {"q": result[0], "k": result[1]}


BACKENDS = (TritonRope("triton.rope", INTERPRETER_ROWS_FLOPS_MAX, times_on_cpu=False, invariant=True),)
