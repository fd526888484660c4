"""Attention over packed sequences with torch's own operators: plain ones in a loop, and its flash attention.

Both take the packed tensors of `Varlen`; the loop takes 8 bits, as `native.eager` does, and a bias, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.layouts import own_copies
from kernels.limits import HALVES, AttentionLimits, refusal_reasons
from kernels.native.prefill_eager import eager_attention, eager_quantised_attention
from kernels.native.prefill_sdpa import OPERATORS
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.base import QUANTISED, TORCH_DTYPES
from pytest_attnperf.workloads.varlen import Varlen

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

CPU_FLOPS_MAX = 2e8
"""CPU limit that keeps a check on two cores within seconds, for half-precision matmuls without units for them."""

FLASH_HEAD_DIM_MAX = 256
"""Largest head dimension of torch's flash attention (check_head_dim_size_flash in sdp_utils); a multiple of 8."""

FLASH = "torch's varlen FLASH_ATTENTION"


@dataclass(frozen=True)
class VarlenBackend(Backend[Varlen]):
    """Base class for attention over packed sequences."""

    families = ("varlen",)


@dataclass(frozen=True)
class EagerVarlen(VarlenBackend):
    """`native.eager`'s function on one sequence after the other. The timed call slices and transposes each of them."""

    def prepare(self, workload: Varlen, inputs: Tensors) -> Prepared:
        """Copies the inputs and builds the masks, one for all sequences of the same lengths, untimed.

        The lengths come from the workload, because reading the offsets would wait for the device.
        """
        tensors = own_copies(inputs)
        return Prepared(
            call=eager_varlen(workload, tensors[0].device),
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config={
                "loop": f"{workload.batch} sequences",
                "compute_dtype": "f32" if workload.dtype in QUANTISED else workload.dtype,
            },
            declares=Declares(never=("scaled_dot_product", "flash_attention")),
        )


@dataclass(frozen=True)
class FlashVarlen(VarlenBackend):
    """The operator that torch's own varlen_attn and jagged SDPA call on an NVIDIA GPU, called directly."""

    def unsupported_reasons(self, workload: Varlen, device: DeviceInfo) -> list[str]:
        """Returns what the operator does not take, read from torch's sources (flash_api.cpp,
        torch/nn/attention/varlen.py)."""
        found = []
        if device.kind != "cuda":
            found.append(
                f"{FLASH} is offered on cuda alone, not on {device.kind}, where it is missing or was not tried"
            )
        if workload.head_dim > FLASH_HEAD_DIM_MAX:
            found.append(f"{FLASH} takes head_dim up to {FLASH_HEAD_DIM_MAX}, not {workload.head_dim}")
        if workload.head_dim % 8:
            found.append(f"{FLASH} needs head_dim to be a multiple of 8, not {workload.head_dim}")
        limits = AttentionLimits(FLASH, dtypes=HALVES, rows_without_keys=False, alibi=False, bias=False)
        # One sequence stands for all, so that a refused property gives one reason.
        shortest = max(workload.sequences, key=lambda one: one.rows_without_keys)
        return found + refusal_reasons(shortest, limits)

    def prepare(self, workload: Varlen, inputs: Tensors) -> Prepared:
        """Copies the inputs and binds the longest lengths, which the operator takes as numbers on the host."""
        import torch

        return Prepared(
            call=_flash_varlen(workload),
            tensors=own_copies(inputs),
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config={"operator": "_flash_attention_forward", "torch": torch.__version__},
            declares=Declares(
                operators=(OPERATORS["FLASH_ATTENTION"],),
                never=tuple(name for backend, name in OPERATORS.items() if backend != "FLASH_ATTENTION"),
            ),
        )


BACKENDS: tuple[Backend, ...] = (
    EagerVarlen("native.eager_varlen", CPU_FLOPS_MAX),
    FlashVarlen("native.sdpa_varlen"),
)


def eager_varlen(workload: Varlen, device: torch.device) -> Callable[..., Any]:
    """Returns a function of the canonical inputs of `workload` that returns out (Tq, H, D) [, lse (H, Tq)]."""
    import torch

    make_function = eager_quantised_attention if workload.dtype in QUANTISED else eager_attention
    functions = {one: make_function(one, device) for one in set(workload.sequences)}
    out_dtype: torch.dtype = getattr(torch, TORCH_DTYPES[workload.out_dtype])
    steps = [
        (functions[one], *slices) for one, slices in zip(workload.sequences, workload.iterate_slices(), strict=True)
    ]

    def run_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *further: torch.Tensor) -> Any:
        added = further[2:]  # behind the offsets: scales, then slopes or a bias
        out = torch.empty_like(q, dtype=out_dtype)
        lse = torch.empty((q.shape[1], q.shape[0]), dtype=torch.float32, device=q.device) if workload.lse else None
        for function, rows, keys in steps:
            cut = (
                tensor[where].transpose(0, 1)[None].contiguous() for tensor, where in ((q, rows), (k, keys), (v, keys))
            )
            if workload.bias:
                own = further[-1][:, : rows.stop - rows.start, : keys.stop - keys.start]
                result = function(*cut, *added[:-1], own)
            else:
                result = function(*cut, *added)
            if lse is not None:
                result, lse[:, rows] = result[0], result[1][0]
            out[rows] = result[0].transpose(0, 1)
        return out if lse is None else (out, lse)

    return run_attention


def _flash_varlen(workload: Varlen) -> Callable[..., Any]:
    import torch

    operator: Any = torch.ops.aten._flash_attention_forward
    scale = 1.0 / math.sqrt(workload.head_dim)
    window = {"window_size_left": workload.window - 1, "window_size_right": 0} if workload.window else {}

    def run_attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor
    ) -> Any:
        lengths = (cu_seqlens_q, cu_seqlens_k, workload.max_q, workload.max_kv)
        out, lse, *_ = operator(q, k, v, *lengths, 0.0, workload.causal, False, scale=scale, **window)
        return (out, lse) if workload.lse else out

    return run_attention


def _canonical_outputs(result: Any) -> Outputs:
    return {"out": result[0], "lse": result[1]} if isinstance(result, tuple) else {"out": result}
