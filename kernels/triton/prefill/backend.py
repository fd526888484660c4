"""Backends `triton.flash` and `triton.flash_persistent`: this repository's own flash attention forward.

Triton is imported in `prepare` only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.configs import ConfigChoice
from kernels.configured import Configured
from kernels.layouts import own_copies
from kernels.limits import FLOATS, FP8_SUMS, AttentionLimits, refusal_reasons
from kernels.triton.prefill.launch import dtype_name, head_dim_reasons, multiplies_8_bits, transposed_values
from kernels.triton.prefill.space import FLOAT_8, FNUZ, OCP, PERSISTENT, SPACE, problem_of
from kernels.triton.triton_backend import (
    INTERPRETER_FLOPS_MAX,
    arch_of,
    compile_ahead,
    count_multiprocessors,
    missing_triton,
)
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.base import TORCH_DTYPES

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill
    from pytest_attnperf.workloads.varlen import Varlen


@dataclass(frozen=True)
class TritonFlash(Configured, Backend["Prefill"]):
    """Online softmax, causal (bottom-right), sliding windows, grouped K/V heads, any lengths, head dimensions to 256
    (Dv may differ), ALiBi, matrix bias, 8 bits, log-sum-exp. tf32 is multiplied as fp32.
    """

    families = ("prefill",)
    spaces = (SPACE,)

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: no Triton (without a GPU, no interpreter), too large a head dimension,
        an fp8 format that the device does not multiply, or fp8 log-sum-exp on NVIDIA, whose fp8 sums have too few
        bits."""
        found = [*missing_triton(device), *head_dim_reasons(workload.head_dim, workload.head_dim_v)]
        return found + float_8_reasons(self.name, workload, device)

    def prepare(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Copies the inputs, picks this architecture's configuration from the data files, or the pinned one, and
        compiles. Values that are multiplied in 8 bits are transposed, untimed."""
        (space,) = self.spaces
        transposes = multiplies_8_bits(dtype_name(inputs[2]), workload.int8)

        def convert_inputs(new: Tensors) -> Tensors:
            q, k, v, *rest = new
            return (q, k, transposed_values(v) if transposes else v, *rest)

        tensors = own_copies(convert_inputs(inputs))
        choice = self.choose(space, arch_of(tensors[0].device), problem_of(workload))
        call = make_launcher(self.choose_function(tensors[0].device), workload, choice)
        compile_ahead(call, tensors, space, choice)
        layout = {"v_layout": "(B, Hk, Dv, Skv)"} if transposes else {}
        return Prepared(
            call=call,
            tensors=tensors,
            convert=convert_inputs,
            outputs=_canonical_outputs,
            config={**self.config_entries({space.kernel: choice}), **layout},
            declares=Declares(
                kernels=(f"{space.kernel}_kernel",),
                never=("scaled_dot_product",),
                matrix=not multiplies_fp32(workload),
            ),
        )

    def choose_function(self, device: torch.device) -> Callable[..., Any]:
        """Returns `prefill_forward`, which launches the kernel; it is the same for every device."""
        from kernels.triton.prefill.forward import prefill_forward

        return prefill_forward


@dataclass(frozen=True)
class TritonFlashPersistent(TritonFlash):
    """`TritonFlash` with a fixed number of programs, see `prefill_persistent`."""

    spaces = (PERSISTENT,)

    def choose_function(self, device: torch.device) -> Callable[..., Any]:
        """Returns `prefill_persistent` bound to the number of the device's multiprocessors, or to 3 on a CPU."""
        import functools

        from kernels.triton.prefill.persistent import prefill_persistent

        return functools.partial(prefill_persistent, multiprocessors=count_multiprocessors(device))


def float_8_reasons(who: str, workload: Prefill, device: DeviceInfo) -> list[str]:
    """Returns why a kernel with these products cannot run the workload's dtype on the device: an fp8 format that it
    does not multiply, or fp8 log-sum-exp on NVIDIA, whose fp8 sums have too few bits."""
    found = []
    if workload.lse and workload.dtype in OCP and device.kind == "cuda":
        found.append(f"a log-sum-exp of {workload.dtype} must have fp32 precision, but {FP8_SUMS}")
    eight = OCP | FNUZ if device.kind == "cpu" else FLOAT_8.get(device.arch, frozenset())
    return found + refusal_reasons(workload, AttentionLimits(who, dtypes=FLOATS | {"i8"} | eight, out=True))


def make_launcher(function: Callable[..., Any], workload: Prefill, choice: ConfigChoice) -> Callable[..., Any]:
    """Returns the timed function of the workload's inputs in order; it calls `function` with them and the
    configuration."""
    import torch

    scales, config = len(workload.scaled_names), choice.config
    out_dtype = getattr(torch, TORCH_DTYPES[workload.out]) if workload.out else None

    def launch_kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: torch.Tensor) -> Any:
        added = rest[scales] if workload.alibi or workload.bias else None
        return function(
            q,
            k,
            v,
            causal=workload.causal,
            with_lse=workload.lse,
            config=config,
            window=workload.window,
            int8=workload.int8,
            descales=rest[:scales],
            alibi_slopes=added if workload.alibi else None,
            bias=added if workload.bias else None,
            out_dtype=out_dtype,
        )

    return launch_kernel


def multiplies_fp32(workload: Prefill | Varlen) -> bool:
    """Returns whether both products of the workload have fp32 operands."""
    return workload.dtype in ("f32", "tf32") or (workload.int8 == "kv8" and workload.out == "f32")


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = (
    TritonFlash("triton.flash", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
    TritonFlashPersistent("triton.flash_persistent", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
)
