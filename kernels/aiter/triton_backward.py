"""The backward pass of aiter's attention in Triton, dense and packed, called below autograd.

autograd's function of `attention/mha.py` calls `flash_attn_onekernel_backward` (or the fused one if a toggle is set),
and with dao_ai `flash_attn_2.bwd`, on the results of its forward pass. Here that forward pass runs untimed, and the
gradients are allocated as in that function. The error budget is the default: aiter's Triton tests also allow twice the
error of plain attention, above a floor. Written from aiter's source, v0.1.5 to e4048607a5 (2026-08-22); never
run on an AMD GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.aiter.direct import Direct, Function, device_reasons, prepare_direct
from kernels.aiter.importing import toggle_entries
from kernels.aiter.mha_module import FUNCTIONS, HEAD_DIM_MAX, MHA, OLD_MHA, with_impl
from kernels.aiter.mha_source import archs_with_config, config_file
from kernels.aiter.package import find_installed
from kernels.aiter.signatures import EntryPoint
from kernels.limits import HALVES, join_names
from pytest_attnperf.backends import Backend, Declares
from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.varlen_backward import VarlenBackward

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Prepared, Tensors
    from pytest_attnperf.records import DeviceInfo

ONEKERNEL, OLD_ONEKERNEL = "aiter.ops.triton.attention.mha_onekernel_bwd", "aiter.ops.triton.mha_onekernel_bwd"
DAO = "aiter.ops.triton._triton_kernels.flash_attn_triton_amd.interface_v2"
GRADIENTS = ("dq", "dk", "dv")
LEFT_BEHIND = ("do", "q", "k", "v", "o", "softmax_lse")
DAO_LEFT_BEHIND = ("dout", "q", "k", "v", "out", "softmax_lse")

Takes = Backward | VarlenBackward


@dataclass(frozen=True)
class TritonMhaBackward(Backend[Takes]):
    """The one-kernel backward pass, or dao_ai's, on the results of the same implementation's forward pass.

    family    'backward' or 'varlen_backward'
    impl      'default' or 'dao_ai'
    """

    family: str = "backward"
    impl: str = "default"

    @property
    def families(self) -> tuple[str, ...]:
        """The op family that this backend implements, as a tuple of one."""
        return (self.family,)

    def unsupported_reasons(self, workload: Takes, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run; empty if it can. It needs 16 bits, a head dimension that is not padded,
        rows that all see a key, and aiter's configuration for the architecture."""
        who = f"aiter's Triton backward pass ({self.impl})"
        found = device_reasons(device)
        if workload.dtype not in HALVES:
            found.append(f"{who} is offered for {join_names(HALVES)}, not for {workload.dtype}")
        if workload.head_dim > HEAD_DIM_MAX or workload.head_dim % 8:
            found.append(
                f"{who} is offered for head dimensions to {HEAD_DIM_MAX} that are multiples of 8, not for "
                f"{workload.head_dim}: others are padded by the function above it"
            )
        if _has_rows_without_keys(workload):
            found.append(
                f"{who} was not verified for rows that see no key: the forward pass before it stores 0 as their "
                "log-sum-exp"
            )
        root = find_installed()
        if root is not None and self.impl == "default" and config_file(root.folder.parent, device.arch) is None:
            known = ", ".join(archs_with_config(root.folder.parent)) or "none"
            found.append(f"this aiter has no Triton attention configuration for {device.arch}; it has {known}")
        return found

    def prepare(self, workload: Takes, inputs: Tensors) -> Prepared:
        """Runs the forward pass, untimed; the timed tensors are (dout, q, k, v, out, lse, offsets of q and k)."""
        function, backward = self._bind_backward(workload)
        entries = {
            **toggle_entries(),
            "toggle._MHA_IMPL": self.impl,
            "function": function.name,
            "forward": "aiter's own, of the same implementation, untimed",
            "allocated_in_call": "dq filled with zeros, dk and dv not",
        }
        return prepare_direct(
            Direct(
                function,
                _with_gradients(backward),
                outputs=lambda result: dict(zip(GRADIENTS, result, strict=True)),
                convert=self._bind_forward(workload),
                config=entries,
                declares=Declares(
                    kernels=("bwd_kernel",), never=("scaled_dot_product",), matrix=True, own_forward=True
                ),
            ),
            inputs,
        )

    def _bind_backward(self, workload: Takes) -> tuple[Function, Callable[..., Any]]:
        """Returns (aiter's function, a function of (results of the forward pass, offsets, gradients) that calls it)."""
        packed = isinstance(workload, VarlenBackward)
        offsets = ("cu_seqlens_q", "cu_seqlens_k") if packed else ()
        scale, causal = 1.0 / math.sqrt(workload.head_dim), workload.causal
        fixed: dict[str, object] = {"causal": causal, "alibi_slopes": None, "dropout_p": 0.0}
        if self.impl == "default":
            function = Function.import_named(ONEKERNEL, "flash_attn_onekernel_backward", "triton", old=OLD_ONEKERNEL)
            module = Function.import_named(MHA, FUNCTIONS["prefill"], "triton", old=OLD_MHA).module
            fixed |= {
                "sm_scale": scale,
                "dbias": None,
                "USE_INT64_STRIDES": getattr(module, "_USE_INT64_STRIDES", True),
            }
            fixed |= {} if packed else {"cu_seqlens_q": None, "cu_seqlens_k": None}
            fixed |= _longest_arguments(workload)
            return function, function.bind_tensors((*LEFT_BEHIND, *offsets, *GRADIENTS), fixed)
        function = Function.import_named(DAO, "varlen_bwd" if packed else "bwd", "triton_dao")
        fixed |= {"softmax_scale": scale, "window_size_left": -1, "window_size_right": -1}
        fixed |= {"softcap": 0.0, "deterministic": False}
        fixed |= {**_longest_arguments(workload), "zero_tensors": False} if packed else {}
        return function, function.bind_tensors((*DAO_LEFT_BEHIND, *offsets, *GRADIENTS), fixed)

    def _bind_forward(self, workload: Takes) -> Callable[[Tensors], Tensors]:
        """Returns a function from canonical inputs to the timed tensors (dout, q, k, v, out, lse, offsets); out and lse
        come from aiter's forward pass, in its layout."""
        packed = isinstance(workload, VarlenBackward)
        name = FUNCTIONS["varlen" if packed else "prefill"]
        function = Function.import_named(MHA, name, "triton", old=OLD_MHA)
        offsets = ("cu_seqlens_q", "cu_seqlens_k") if packed else ()
        scale = 1.0 / math.sqrt(workload.head_dim)
        fixed: dict[str, object] = {"softmax_scale": scale, "causal": workload.causal, "return_lse": True}
        fixed |= _longest_arguments(workload) if packed else {}
        call = with_impl(function.module, self.impl, function.bind_tensors(("q", "k", "v", *offsets), fixed))

        def run_forward(inputs: Tensors) -> Tensors:
            q, k, v, dout, _, _, *further = (tensor.clone() for tensor in inputs)
            out, lse = call(q, k, v, *further)
            return (dout, q, k, v, out, lse, *further)

        return run_forward


def _with_gradients(backward: Callable[..., Any]) -> Callable[..., Tensors]:
    """Returns a function that allocates dq, dk and dv as aiter's autograd function does, lets `backward` write into
    them, and returns them."""

    def call_backward(
        dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *others: torch.Tensor
    ) -> Tensors:
        import torch

        gradients = (torch.zeros_like(q), torch.empty_like(k), torch.empty_like(v))
        backward(dout, q, k, v, *others, *gradients)
        return gradients

    return call_backward


def _longest_arguments(workload: Takes) -> dict[str, object]:
    if isinstance(workload, VarlenBackward):
        return {"max_seqlen_q": workload.max_q, "max_seqlen_k": workload.max_kv}
    return {"max_seqlen_q": workload.seq_q, "max_seqlen_k": workload.seq_kv}


def _has_rows_without_keys(workload: Takes) -> bool:
    if not workload.causal:
        return False
    if isinstance(workload, VarlenBackward):
        return any(q > kv for q, kv in zip(workload.seqs_q, workload.seqs_kv, strict=True))
    return workload.seq_q > workload.seq_kv


PARTS: tuple[tuple[str, str, Backend], ...] = tuple(
    (name, family, TritonMhaBackward(name, family=family, impl=impl))
    for name, impl in (("aiter.triton", "default"), ("aiter.triton_dao", "dao_ai"))
    for family in ("backward", "varlen_backward")
)

_DAO_FURTHER = (
    *("alibi_slopes", "dropout_p", "softmax_scale", "causal", "window_size_left", "window_size_right"),
    *("softcap", "deterministic"),
)
_SEQUENCES = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
ENTRY_POINTS = (
    EntryPoint(
        ONEKERNEL,
        "flash_attn_onekernel_backward",
        needed=(
            *LEFT_BEHIND,
            *GRADIENTS,
            *_SEQUENCES,
            *("dbias", "sm_scale", "alibi_slopes", "causal", "dropout_p", "USE_INT64_STRIDES"),
        ),
        old=OLD_ONEKERNEL,
    ),
    EntryPoint(DAO, "bwd", needed=(*DAO_LEFT_BEHIND, *GRADIENTS, *_DAO_FURTHER), since="v0.1.7"),
    EntryPoint(
        DAO,
        "varlen_bwd",
        needed=(*DAO_LEFT_BEHIND, *GRADIENTS, *_SEQUENCES, *_DAO_FURTHER, "zero_tensors"),
        since="v0.1.7",
    ),
)
