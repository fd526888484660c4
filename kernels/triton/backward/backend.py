"""Backends `triton.flash_backward` and `triton.flash_backward_trans_v`: this repository's own backward pass, over v as
the workload has it and over v transposed. Triton is imported in `prepare` only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from kernels.configs import ConfigChoice, Space
from kernels.configured import Configured
from kernels.layouts import own_copies
from kernels.triton.backward.space import DELTA, DKV, DQ
from kernels.triton.triton_backend import INTERPRETER_FLOPS_MAX, arch_of, compile_ahead, missing_triton
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.varlen_backward import VarlenBackward

if TYPE_CHECKING:
    from kernels.triton.backward.launch import Packed
    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

HEAD_DIM_MAX = 256


@dataclass(frozen=True)
class TritonFlashBackward(Configured, Backend[Backward | VarlenBackward]):
    """FlashAttention-2's backward pass in three kernels without atomics: dense and packed sequences, causal
    (bottom-right), grouped K/V heads, rows without keys, any lengths, head dimensions to 256."""

    families: ClassVar[tuple[str, ...]] = ("backward", "varlen_backward")
    spaces = (DELTA, DKV, DQ)
    v_transposed = False

    def unsupported_reasons(self, workload: Backward | VarlenBackward, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: a head dimension above HEAD_DIM_MAX, or no Triton (without a GPU, no
        interpreter). Empty if it can."""
        found = missing_triton(device)
        if workload.head_dim > HEAD_DIM_MAX:
            found.append(f"head_dim {workload.head_dim} is above {HEAD_DIM_MAX}, the largest these kernels take")
        return found

    def prepare(self, workload: Backward | VarlenBackward, inputs: Tensors) -> Prepared:
        """Copies the inputs, picks the configurations for this architecture from the data files, or the pinned ones,
        and compiles. It does not tune."""
        from kernels.triton.backward.launch import flash_backward

        tensors = own_copies(self.convert_inputs(inputs))
        problem = {
            "head_dim": workload.head_dim,
            "causal": workload.causal,
            "element_bits": tensors[0].element_size() * 8,
        }
        arch = arch_of(tensors[0].device)
        choices = {space.kernel: self.choose(space, arch, problem) for space in self.spaces}
        configs = {kernel: choice.config for kernel, choice in choices.items()}

        def launch_kernels(*given: Any) -> Any:
            packed = _find_packed(workload, given)
            return flash_backward(
                *given[:6], causal=workload.causal, configs=configs, packed=packed, v_transposed=self.v_transposed
            )

        _compile_kernels(workload, tensors, choices, v_transposed=self.v_transposed)
        return Prepared(
            call=launch_kernels,
            tensors=tensors,
            convert=self.convert_inputs,
            outputs=self.canonical_outputs,
            config=self.config_entries(choices),
            declares=Declares(
                kernels=tuple(f"{space.kernel}_kernel" for space in self.spaces),
                never=("scaled_dot_product", "flash_attention"),
                matrix=workload.dtype in ("f16", "bf16"),
            ),
        )

    def convert_inputs(self, inputs: Tensors) -> Tensors:
        """Returns the inputs, whose layout is that of these kernels."""
        return inputs

    def canonical_outputs(self, result: Tensors) -> Outputs:
        """Returns the call's (dq, dk, dv) by name, in the layouts of q, k and v."""
        return dict(zip(("dq", "dk", "dv"), result, strict=True))


@dataclass(frozen=True)
class TritonBackwardTransV(TritonFlashBackward):
    """The same over values stored (B, Hk, D, Skv), as `triton.flash_trans_v` reads them: v is transposed before
    anything is timed, and dv is written in the layout of v. Dense problems only.

    It runs in the tables of `triton.flash_backward`: none was tuned for this layout.
    """

    families = ("backward",)
    v_transposed = True

    def convert_inputs(self, inputs: Tensors) -> Tensors:
        """Returns the inputs with v (B, Skv, Hk, D) as contiguous (B, Hk, D, Skv)."""
        q, k, v, *rest = inputs
        return (q, k, v.permute(0, 2, 3, 1).contiguous(), *rest)

    def canonical_outputs(self, result: Tensors) -> Outputs:
        """Returns the call's (dq, dk, dv) by name, dv (B, Hk, D, Skv) as a view (B, Skv, Hk, D)."""
        dq, dk, dv = result
        return {"dq": dq, "dk": dk, "dv": dv.permute(0, 3, 1, 2)}


def _find_packed(workload: Backward | VarlenBackward, tensors: Tensors) -> Packed | None:
    """Returns the offsets and longest lengths of packed sequences; None for a dense problem."""
    from kernels.triton.backward.launch import Packed

    if not isinstance(workload, VarlenBackward):
        return None
    return Packed(tensors[6], tensors[7], workload.max_q, workload.max_kv)


def _compile_kernels(
    workload: Backward | VarlenBackward, tensors: Tensors, choices: dict[str, ConfigChoice], *, v_transposed: bool
) -> None:
    """Runs each kernel once on a GPU, separately, so that an error names the kernel that does not fit the device. Does
    nothing on a CPU."""
    from kernels.triton.backward import launch

    if not tensors[0].is_cuda:
        return
    q, k, v, dout, out, lse = tensors[:6]
    packed = _find_packed(workload, tensors)
    geometry = launch.make_geometry(q, k, v, dout, out, lse, packed, v_transposed=v_transposed)
    configs = {kernel: choice.config for kernel, choice in choices.items()}

    delta = partial(launch.launch_delta, config=configs[DELTA.kernel])
    dkv = partial(launch.launch_dkv, geometry=geometry, causal=workload.causal, config=configs[DKV.kernel])
    dq = partial(launch.launch_dq, geometry=geometry, causal=workload.causal, config=configs[DQ.kernel])
    # lse replaces delta: compiled code does not depend on values, and the results are dropped.
    launches: tuple[tuple[Space, Callable[..., Any], Tensors], ...] = (
        (DELTA, delta, (dout, out)),
        (DKV, dkv, (q, k, v, dout, lse, lse)),
        (DQ, dq, (q, k, v, dout, lse, lse)),
    )
    for space, launched, given in launches:
        compile_ahead(launched, given, space, choices[space.kernel])


BACKENDS = (
    TritonFlashBackward("triton.flash_backward", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
    TritonBackwardTransV("triton.flash_backward_trans_v", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
)
