"""Backends `triton.mla` and `triton.mla_perf_kernels`: this repository's own latent attention, configured by its tables
or as AMD's perf-kernels ran theirs. Triton is imported in `prepare` only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kernels.configs import ConfigChoice, Problem, Space
from kernels.configured import Configured
from kernels.layouts import own_copies
from kernels.triton.mla.space import DECODE, PREFILL, decode_problem, prefill_problem, too_few_registers
from kernels.triton.triton_backend import (
    INTERPRETER_FLOPS_MAX,
    arch_of,
    compile_ahead,
    config_arch,
    count_multiprocessors,
    missing_triton,
)
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
    """Latent attention in absorbed form: causal (bottom-right), any lengths and heads, latents to 512, log-sum-exp. A
    configuration with GRID_CU_MULTIP runs on a persistent grid, see `kernels.triton.mla.persistent`."""

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
        return found + self.alternative_reasons(config_arch(device), *_space_and_problem(workload))

    def prepare(self, workload: Mla, inputs: Tensors) -> Prepared:
        """Copies the inputs, takes the configuration (pinned, else from this architecture's file), and compiles."""
        tensors = own_copies(inputs)
        space, problem = _space_and_problem(workload)
        choice = self.choose(space, arch_of(tensors[0].device), problem)
        launch, kernels = _choose_launcher(workload, choice, tensors[0].device)

        def launch_kernels(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            result: tuple[torch.Tensor, torch.Tensor | None] = launch(
                *given, causal=workload.causal, with_lse=workload.lse, config=choice.config
            )
            return result

        compile_ahead(launch_kernels, tensors, space, choice)
        return Prepared(
            call=launch_kernels,
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config=self.config_entries({space.kernel: choice}),
            declares=Declares(kernels=kernels, never=("scaled_dot_product",), matrix=workload.dtype in ("f16", "bf16")),
        )


def _space_and_problem(workload: Mla) -> tuple[Space, Problem]:
    """Returns the configuration space of the kernels that compute the workload, and what a rule is chosen by."""
    return (DECODE, decode_problem(workload)) if workload.is_decode else (PREFILL, prefill_problem(workload))


def _choose_launcher(
    workload: Mla, choice: ConfigChoice, device: torch.device
) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """Returns what launches the workload in this configuration, and the kernels that it runs."""
    from kernels.triton.mla.decode import mla_decode
    from kernels.triton.mla.launch import mla_prefill

    if workload.is_decode:
        return mla_decode, DECODE_KERNELS
    kernel = "mla_persistent_kernel" if choice.config.get("GRID_CU_MULTIP") else "mla_kernel"
    return partial(mla_prefill, multiprocessors=count_multiprocessors(device)), (kernel,)


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = (
    TritonMla("triton.mla", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
    TritonMla("triton.mla_perf_kernels", INTERPRETER_FLOPS_MAX, times_on_cpu=False, alternative="perf_kernels"),
)
