"""Backend `triton.flash_trans_v`: flash attention forward over transposed values. Triton is imported in `prepare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.configured import Configured
from kernels.limits import HALVES, AttentionLimits, refusal_reasons
from kernels.triton.trans_v.space import SPACE
from kernels.triton.triton_backend import INTERPRETER_FLOPS_MAX, arch_of, compile_ahead, missing_triton
from pytest_attnperf.backends import Backend, Declares, Prepared

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill

HEAD_DIMS = (64, 128)


@dataclass(frozen=True)
class TritonTransV(Configured, Backend["Prefill"]):
    """Online softmax over values stored (B, Hk, D, Skv), which are transposed before anything is timed.

    Head dimensions 64 and 128, f16 and bf16, causal (bottom-right), grouped K/V heads, any lengths, log-sum-exp. The
    kernel relies on every row seeing key 0.
    """

    families = ("prefill",)
    spaces = (SPACE,)

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: no Triton (without a GPU, no interpreter), head dimensions other than 64
        and 128 or of two sizes, a window, ALiBi or a bias, or rows that see no key."""
        found = missing_triton(device)
        if workload.head_dim not in HEAD_DIMS:
            found.append(f"head_dim {workload.head_dim} is not one of {', '.join(map(str, HEAD_DIMS))}")
        limits = AttentionLimits(
            self.name, HALVES, window=False, rows_without_keys=False, head_dim_v=False, alibi=False, bias=False
        )
        return found + refusal_reasons(workload, limits)

    def prepare(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Copies the inputs with v transposed, untimed; picks this architecture's configuration from the data files, or
        the pinned one, and compiles."""
        from kernels.triton.trans_v.kernel import trans_v

        tensors = _transposed_v(inputs)
        problem = {"head_dim": workload.head_dim, "causal": workload.causal}
        choice = self.choose(SPACE, arch_of(tensors[0].device), problem)

        def launch_kernel(
            q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor | None]:
            return trans_v(q, k, v, causal=workload.causal, with_lse=workload.lse, config=choice.config)

        compile_ahead(launch_kernel, tensors, SPACE, choice)
        return Prepared(
            call=launch_kernel,
            tensors=tensors,
            convert=_transposed_v,
            outputs=_canonical_outputs,
            config=self.config_entries({SPACE.kernel: choice}),
            declares=Declares(kernels=("trans_v_kernel",), never=("scaled_dot_product",), matrix=True),
            arguments=_transposed_v_alone,
        )


def _transposed_v(inputs: Tensors) -> Tensors:
    """Returns copies of q and k, and of v (B, Skv, Hk, D) as contiguous (B, Hk, D, Skv)."""
    import torch

    q, k, v = inputs
    return q.clone(), k.clone(), v.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format)


def _transposed_v_alone(inputs: Tensors) -> Tensors:
    """Returns q and k unchanged, and v (B, Skv, Hk, D) as contiguous (B, Hk, D, Skv), copied."""
    q, k, v = inputs
    return q, k, v.permute(0, 2, 3, 1).contiguous()


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = (TritonTransV("triton.flash_trans_v", INTERPRETER_FLOPS_MAX, times_on_cpu=False),)
