"""Backend `triton.flash_varlen`: our flash attention forward over packed sequences.

Triton is imported in `prepare` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.configured import Configured
from kernels.layouts import own_copies
from kernels.triton.prefill.launch import HEAD_DIM_MAX, check_lengths
from kernels.triton.triton_backend import INTERPRETER_FLOPS_MAX, arch_of, compile_ahead, missing_triton
from kernels.triton.varlen.space import SPACE, problem_of
from pytest_attnperf.backends import Backend, Declares, Prepared

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.varlen import Varlen


@dataclass(frozen=True)
class TritonFlashVarlen(Configured, Backend["Varlen"]):
    """`triton.flash` for all sequences of a batch in one launch; tf32 is multiplied as fp32."""

    families = ("varlen",)
    spaces = (SPACE,)

    def unsupported_reasons(self, workload: Varlen, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: a head dimension above HEAD_DIM_MAX, or no Triton (without a GPU, no
        interpreter). Empty if it can."""
        found = missing_triton(device)
        if workload.head_dim > HEAD_DIM_MAX:
            found.append(f"head_dim {workload.head_dim} is above {HEAD_DIM_MAX}, the largest this kernel takes")
        return found

    def prepare(self, workload: Varlen, inputs: Tensors) -> Prepared:
        """Copies the inputs, takes the configuration (pinned, else from this architecture's file), and compiles. Raises
        UsageError for invalid offsets."""
        from kernels.triton.varlen.kernel import varlen_forward

        tensors = own_copies(inputs)
        max_q = check_lengths("cu_seqlens_q", tensors[3], tensors[0].shape[0])
        check_lengths("cu_seqlens_k", tensors[4], tensors[1].shape[0])
        choice = self.choose(SPACE, arch_of(tensors[0].device), problem_of(workload))
        config = choice.config

        def launch_kernel(*tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            return varlen_forward(
                *tensors[:5],
                max_q=max_q,
                causal=workload.causal,
                with_lse=workload.lse,
                config=config,
                window=workload.window,
                alibi_slopes=tensors[5] if workload.alibi else None,
            )

        compile_ahead(launch_kernel, tensors, SPACE, choice)
        return Prepared(
            call=launch_kernel,
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config=self.config_entries({SPACE.kernel: choice}),
            declares=Declares(
                kernels=("varlen_forward_kernel",),
                never=("scaled_dot_product",),
                matrix=workload.dtype in ("f16", "bf16"),
            ),
        )


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = (TritonFlashVarlen("triton.flash_varlen", INTERPRETER_FLOPS_MAX, times_on_cpu=False),)
