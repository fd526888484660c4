"""Backends `triton.flash_varlen` and `triton.flash_varlen_persistent`: our flash attention forward over packed
sequences.

Triton is imported in `prepare` only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.configs import ConfigChoice
from kernels.configured import Configured
from kernels.layouts import own_copies
from kernels.triton.prefill.backend import float_8_reasons, multiplies_fp32
from kernels.triton.prefill.launch import dtype_name, head_dim_reasons, multiplies_8_bits
from kernels.triton.triton_backend import (
    INTERPRETER_FLOPS_MAX,
    arch_of,
    compile_ahead,
    count_multiprocessors,
    missing_triton,
)
from kernels.triton.varlen.launch import check_lengths, transposed_values
from kernels.triton.varlen.space import PERSISTENT, SPACE, problem_of
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.base import TORCH_DTYPES

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
        """Returns why the workload cannot run: no Triton (without a GPU, no interpreter), or what
        `head_dim_reasons` and `float_8_reasons` say. Empty if it can."""
        found = [*missing_triton(device), *head_dim_reasons(workload.head_dim, workload.head_dim)]
        return found + float_8_reasons(self.name, workload.make_sequence(0), device)

    def prepare(self, workload: Varlen, inputs: Tensors) -> Prepared:
        """Copies the inputs, takes the configuration (pinned, else from this architecture's file), and compiles. Values
        that are multiplied in 8 bits are transposed, untimed. Raises UsageError for invalid offsets."""
        (space,) = self.spaces
        longest = (
            check_lengths("cu_seqlens_q", inputs[3], inputs[0].shape[0]),
            check_lengths("cu_seqlens_k", inputs[4], inputs[1].shape[0]),
        )
        transposes = multiplies_8_bits(dtype_name(inputs[2]), workload.int8)

        def convert_inputs(new: Tensors) -> Tensors:
            q, k, v, cu_q, cu_k, *rest = new
            return (q, k, transposed_values(v, cu_k) if transposes else v, cu_q, cu_k, *rest)

        tensors = own_copies(convert_inputs(inputs))
        choice = self.choose(space, arch_of(tensors[0].device), problem_of(workload))
        call = make_launcher(self.choose_function(tensors[0].device), workload, choice, longest)
        compile_ahead(call, tensors, space, choice)
        layout = {"v_layout": "(Hk, Dv, Tk), sequences from multiples of 16"} if transposes else {}
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
        """Returns `varlen_forward`, which launches the kernel; it is the same for every device."""
        from kernels.triton.varlen.kernel import varlen_forward

        return varlen_forward


@dataclass(frozen=True)
class TritonFlashVarlenPersistent(TritonFlashVarlen):
    """`TritonFlashVarlen` with a fixed number of programs, see `varlen_persistent`."""

    spaces = (PERSISTENT,)

    def choose_function(self, device: torch.device) -> Callable[..., Any]:
        """Returns `varlen_persistent` bound to the number of the device's multiprocessors, or to 3 on a CPU."""
        import functools

        from kernels.triton.varlen.persistent import varlen_persistent

        return functools.partial(varlen_persistent, multiprocessors=count_multiprocessors(device))


def make_launcher(
    function: Callable[..., Any], workload: Varlen, choice: ConfigChoice, longest: tuple[int, int]
) -> Callable[..., Any]:
    """Returns the timed function of the workload's inputs in order; it calls `function` with them, the configuration,
    and the lengths of the longest sequences."""
    import torch

    scales, config, (max_q, max_kv) = len(workload.scaled_names), choice.config, longest
    out_dtype = getattr(torch, TORCH_DTYPES[workload.out]) if workload.out else None

    def launch_kernel(*tensors: torch.Tensor) -> Any:
        added = tensors[5 + scales] if workload.alibi or workload.bias else None
        return function(
            *tensors[:5],
            max_q=max_q,
            max_kv=max_kv,
            causal=workload.causal,
            with_lse=workload.lse,
            config=config,
            window=workload.window,
            int8=workload.int8,
            descales=tensors[5 : 5 + scales],
            alibi_slopes=added if workload.alibi else None,
            bias=added if workload.bias else None,
            out_dtype=out_dtype,
        )

    return launch_kernel


def _canonical_outputs(result: tuple[torch.Tensor, torch.Tensor | None]) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}


BACKENDS = (
    TritonFlashVarlen("triton.flash_varlen", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
    TritonFlashVarlenPersistent("triton.flash_varlen_persistent", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
)
