"""Backend `triton.mla`: this repository's own latent attention. Triton is imported in `prepare` only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.configs import ConfigChoice, Space
from kernels.configured import Configured
from kernels.layouts import own_copies
from kernels.triton.mla.space import DECODE, PREFILL, too_few_registers
from kernels.triton.triton_backend import INTERPRETER_FLOPS_MAX, arch_of, compile_ahead, missing_triton
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.mla import Mla

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

LATENT_DIM_MAX = 512
"""Above it the accumulator of only 16 rows does not fit the registers of one program."""

HEAD_DIM_MAX = 256
"""Largest nope_dim, value_dim and rope_dim: the absorbing kernel holds a head's W_UK in one tile of as many rows."""

DECODE_KERNELS = ("mla_absorb_kernel", "mla_split_kernel", "mla_combine_kernel")


@dataclass(frozen=True)
class TritonMla(Configured, Backend[Mla]):
    """Latent attention in absorbed form: causal (bottom-right), any lengths and heads, latents to 512, log-sum-exp."""

    families = ("mla",)
    spaces = (PREFILL, DECODE)

    def unsupported_reasons(self, workload: Mla, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: too large dimensions, RDNA (too few registers), or no Triton (without a
        GPU, no interpreter). Empty if it can."""
        found = missing_triton(device) + too_few_registers(device.arch)
        if workload.latent_dim > LATENT_DIM_MAX:
            found.append(f"latent_dim {workload.latent_dim} is above {LATENT_DIM_MAX}, the largest this kernel takes")
        for name in ("nope_dim", "value_dim", "rope_dim"):
            if (size := getattr(workload, name)) > HEAD_DIM_MAX:
                found.append(f"{name} {size} is above {HEAD_DIM_MAX}, the largest this kernel takes")
        return found

    def prepare(self, workload: Mla, inputs: Tensors) -> Prepared:
        """Copies the inputs, takes the configuration (pinned, else from this architecture's file), and compiles."""
        from kernels.triton.mla.decode import mla_decode
        from kernels.triton.mla.kernel import mla_prefill

        tensors = own_copies(inputs)
        space = DECODE if workload.is_decode else PREFILL
        choice = self._choose_config(space, workload, tensors)
        launch = mla_decode if workload.is_decode else mla_prefill

        def launch_kernels(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            return launch(*given, causal=workload.causal, with_lse=workload.lse, config=choice.config)

        compile_ahead(launch_kernels, tensors, space, choice)
        return Prepared(
            call=launch_kernels,
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config=self.config_entries({space.kernel: choice}),
            declares=Declares(
                kernels=DECODE_KERNELS if workload.is_decode else ("mla_kernel",),
                never=("scaled_dot_product",),
                matrix=workload.dtype in ("f16", "bf16"),
            ),
        )

    def _choose_config(self, space: Space, workload: Mla, tensors: Tensors) -> ConfigChoice:
        problem = {"latent_dim": workload.latent_dim, "element_bits": tensors[0].element_size() * 8}
        if workload.is_decode:
            problem["rows"] = workload.seq_q * workload.heads
        return self.choose(space, arch_of(tensors[0].device), problem)


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = (TritonMla("triton.mla", INTERPRETER_FLOPS_MAX, times_on_cpu=False),)
