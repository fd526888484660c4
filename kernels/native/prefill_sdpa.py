"""torch's scaled_dot_product_attention with one pinned backend: torch may fail, but may not choose another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kernels.layouts import heads_first
from kernels.limits import FLOATS, AttentionLimits, join_names, refusal_reasons
from kernels.native.prefill_eager import canonical_outputs, heads_first_views, minus_distances, visible_keys
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.base import DTYPE_BYTES

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill

OPERATORS = {
    "FLASH_ATTENTION": "aten::_(scaled_dot_product_)?flash_attention",
    "EFFICIENT_ATTENTION": "aten::_(scaled_dot_product_)?efficient_attention",
    "CUDNN_ATTENTION": "aten::_(scaled_dot_product_)?cudnn_attention",
    "MATH": "aten::_scaled_dot_product_attention_math",
}
"""SDPBackend -> a regular expression of its operators, from torch's native_functions.yaml. On a CPU flash has
'_for_cpu' behind it; a causal_lower_right mask calls the operator below the usual one (torch/nn/attention/bias.py)."""


@dataclass(frozen=True)
class PinnedSdpa(Backend["Prefill"]):
    """One backend of scaled_dot_product_attention, with its limits on GPUs (on a CPU, torch has flash and math).

    backend        member of torch.nn.attention.SDPBackend
    kinds          device kinds it exists on
    gpu_dtypes     workload dtypes its GPU kernels take
    grouped_heads  whether it takes fewer K/V heads than query heads on a GPU
    head_dim_max   largest head dimension on a GPU
    row_bytes      a row of a head must be a multiple of it on a GPU; 0 where torch pads rows inside the call
    """

    families = ("prefill",)
    backend: str = "MATH"
    kinds: frozenset[str] = frozenset({"cpu", "cuda", "rocm"})
    gpu_dtypes: frozenset[str] = FLOATS
    grouped_heads: bool = True
    head_dim_max: int | None = None
    row_bytes: int = 0

    def unsupported_reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Returns why the pinned backend cannot run the workload, by torch's dispatch rules (sdp_utils), tested on
        torch 2.11 (CUDA) and 2.13 (CPU)."""
        found = refusal_reasons(workload, self._make_limits(device))
        if device.kind not in self.kinds:
            found.append(f"torch's {self.backend} attention exists on {join_names(self.kinds)}, not on {device.kind}")
        if device.kind == "cpu" or self.backend == "MATH":
            return found
        if workload.kv_heads != workload.heads and not self.grouped_heads:
            found.append(
                f"{self.backend} takes no grouped K/V heads ({workload.heads} query heads, {workload.kv_heads} K/V "
                "heads); expanding them first would be another problem"
            )
        if self.backend == "CUDNN_ATTENTION" and workload.seq_kv == 1:
            found.append("CUDNN_ATTENTION takes no sequence of a single key (torch 2.11: no available kernel)")
        for head_dim in sorted({workload.head_dim, workload.head_dim_v}):
            if self.head_dim_max is not None and head_dim > self.head_dim_max:
                found.append(f"{self.backend} takes head_dim up to {self.head_dim_max}, not {head_dim}")
            step = self.row_bytes // DTYPE_BYTES[workload.dtype]
            if step and head_dim % step:
                found.append(f"{self.backend} needs head_dim to be a multiple of {step}, not {head_dim}")
        return found

    def prepare(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Copies to (B, H, S, D) and builds the mask; torch's is_causal is top-left, so it needs Sq == Skv.

        ALiBi or a bias, -inf where a row does not see a key, is built before timing and passed to the timed call.
        """
        import torch
        from torch.nn.attention import SDPBackend

        added = workload.alibi or workload.bias
        mask, how = (None, "added mask") if added else self._bottom_right(workload, inputs[0].device)
        convert = partial(_with_added_mask, workload) if added else heads_first
        return Prepared(
            call=_pin_backend(
                getattr(SDPBackend, self.backend),
                mask=mask,
                is_causal=how == "is_causal",
                enable_gqa=workload.heads != workload.kv_heads,
            ),
            tensors=convert(inputs),
            convert=convert,
            outputs=canonical_outputs,
            config={"sdpa_backend": self.backend, "causal": how, "torch": torch.__version__},
            declares=Declares(
                operators=(OPERATORS[self.backend],),
                never=tuple(name for backend, name in OPERATORS.items() if backend != self.backend),
            ),
            arguments=None if added else heads_first_views,
        )

    def _make_limits(self, device: DeviceInfo) -> AttentionLimits:
        """Returns what the backend accepts. Windows, keyless rows, ALiBi and biases need a mask, which flash has on
        CPUs only.

        Flash takes one head dimension for q, k and v (check_head_dim_size_flash and _cpp in torch's sdp_utils).

        Rows without keys give 0 in the CPU's kernels and, since torch 2.5, in `_safe_softmax`, which MATH uses
        everywhere; what the GPU's fused kernels give for them is not known.
        """
        anywhere = device.kind == "cpu" or self.backend == "MATH"
        return AttentionLimits(
            who=f"torch's {self.backend} attention" + ("" if device.kind == "cpu" else " on a GPU"),
            dtypes=FLOATS if anywhere else self.gpu_dtypes,
            window=anywhere or self.backend != "FLASH_ATTENTION",
            rows_without_keys=anywhere,
            alibi=anywhere or self.backend != "FLASH_ATTENTION",
            bias=anywhere or self.backend != "FLASH_ATTENTION",
            head_dim_v=self.backend != "FLASH_ATTENTION",
            no_lse="scaled_dot_product_attention returns no log-sum-exp",
        )

    def _bottom_right(self, workload: Prefill, device: torch.device) -> tuple[Any, str]:
        """Returns (attn_mask, its name to record): None with 'none' or 'is_causal' if torch needs no mask, else a bool
        mask or, for flash and efficient on GPUs, their 'causal_lower_right'."""
        if not workload.causal:
            return None, "none"
        if workload.seq_q == workload.seq_kv and not workload.window:
            return None, "is_causal"
        own_form = device.type != "cpu" and self.backend in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION")
        if own_form and not workload.window:
            from torch.nn.attention.bias import causal_lower_right  # imports Inductor, which takes a second

            return causal_lower_right(workload.seq_q, workload.seq_kv), "causal_lower_right"
        return visible_keys(workload, device), "bool mask"


def _pin_backend(backend: Any, *, mask: Any, is_causal: bool, enable_gqa: bool) -> Callable[..., Any]:
    from torch.nn.attention import sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def run_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, added: Any = mask) -> torch.Tensor:
        with sdpa_kernel([backend]):
            return scaled_dot_product_attention(q, k, v, attn_mask=added, is_causal=is_causal, enable_gqa=enable_gqa)

    return run_attention


def _with_added_mask(workload: Prefill, inputs: Tensors) -> Tensors:
    """Returns copies of q, k and v as (B, H, S, D), and the mask (1, H, Sq, Skv) to add to the scores, in q's dtype for
    SDPA."""
    split = workload.split_inputs(inputs)
    q, k, v = heads_first(split.qkv)
    added = split.bias
    if split.slopes is not None:
        added = split.slopes[:, None, None] * minus_distances(workload, q.device)
    assert added is not None
    if workload.causal:
        added = added.masked_fill(~visible_keys(workload, q.device), float("-inf"))
    return q, k, v, added.to(q.dtype, copy=True)[None]
