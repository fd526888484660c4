"""Attention decode with torch's own operators: plain ones for every feature, and one pinned fused attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.layouts import own_copies
from kernels.native.prefill_eager import heads_first_views
from kernels.native.prefill_sdpa import OPERATORS
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads import paged_cache
from pytest_attnperf.workloads.decode import Decode, DecodeInputs

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

    Result = tuple[torch.Tensor, torch.Tensor | None]

CPU_FLOPS_MAX = 6e7
"""CPU limit that keeps a check and a timing on two cores within seconds."""

SDPA_BACKEND = "FLASH_ATTENTION"
"""The fused attention of torch that splits the keys on a GPU, and the only one on a CPU."""
SDPA_HEAD_DIM_MAX = 256


@dataclass(frozen=True)
class EagerDecode(Backend[Decode]):
    """Attention as torch operators, every feature; scores, weights and dequantised keys are stored in q's dtype.

    The timed call includes gathering pages and dequantising: their cost without a special kernel. All sequences are
    computed at the length of the longest; keys past a sequence's end are masked, and values there replaced by zeros,
    because what lies there may be NaN.
    """

    families = ("decode",)

    def prepare(self, workload: Decode, inputs: Tensors) -> Prepared:
        """Copies the inputs. Raises UsageError if a paged cache's block table or lengths are out of range."""
        tensors = own_copies(inputs)
        given = workload.split_inputs(tensors)
        if given.table is not None:
            paged_cache.require_block_table(given.table, given.seq_lens, given.k.shape[0], workload.page)
        room = given.k.shape[1] if given.table is None else given.table.shape[1] * workload.page
        return Prepared(
            call=eager_decode(workload, filled=bool((given.seq_lens == room).all())),
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config={"compute_dtype": workload.dtype, "pages": "gathered, timed" if workload.page else "none"},
            declares=Declares(never=("scaled_dot_product",)),
        )


@dataclass(frozen=True)
class SdpaDecode(Backend[Decode]):
    """torch's scaled_dot_product_attention over a contiguous cache (B, Hk, Skv, D), its flash backend pinned."""

    families = ("decode",)

    def unsupported_reasons(self, workload: Decode, device: DeviceInfo) -> list[str]:
        """Returns reasons against pages, soft caps, windows, 8-bit caches, sinks, lengths that differ, log-sum-exp, and
        on a GPU against what torch's flash attention does not take (sdp_utils)."""
        extras = {
            "pages": workload.page,
            "soft cap": workload.cap,
            "sliding window": workload.window,
            "8-bit cache": workload.kv_dtype,
            "sinks": workload.sinks,
            "lengths that differ": workload.ragged,
        }
        found = [f"scaled_dot_product_attention takes no {name}" for name, has in extras.items() if has]
        if workload.lse:
            found.append("scaled_dot_product_attention returns no log-sum-exp")
        if device.kind == "cpu":
            return found
        if workload.dtype == "f32":
            found.append(f"torch's {SDPA_BACKEND} on a GPU takes bf16, f16, not f32")
        if workload.head_dim > SDPA_HEAD_DIM_MAX:
            found.append(
                f"torch's {SDPA_BACKEND} takes a head_dim of at most {SDPA_HEAD_DIM_MAX}, not {workload.head_dim}"
            )
        return found

    def prepare(self, workload: Decode, inputs: Tensors) -> Prepared:
        """Copies q, k, v to (B, H, S, D). One token needs no mask, several need a bottom-right causal one."""
        import torch

        return Prepared(
            call=_sdpa_decode(workload, inputs[0].device),
            tensors=_heads_first(inputs),
            convert=_heads_first,
            outputs=lambda out: {"out": out.transpose(1, 2)},
            config={"sdpa_backend": SDPA_BACKEND, "torch": torch.__version__},
            declares=Declares(
                operators=(OPERATORS[SDPA_BACKEND],),
                never=tuple(name for backend, name in OPERATORS.items() if backend != SDPA_BACKEND),
            ),
            arguments=lambda new: heads_first_views(new[:3]),
        )


BACKENDS: tuple[Backend, ...] = (
    EagerDecode("native.eager_decode", CPU_FLOPS_MAX),
    SdpaDecode("native.sdpa_decode", CPU_FLOPS_MAX),
)


def eager_decode(workload: Decode, *, filled: bool = False) -> Callable[..., Result]:
    """Returns a function of the canonical inputs that returns (out (B, Q, H, D), lse (B, H, Q) in fp32, or None if not
    requested).

    Query heads that share a K/V head, and tokens, are stacked as rows of one product. Lengths are read on the device,
    but `filled` says that every sequence fills its room, so that no slot is unused.
    """
    import torch

    heads, queries, head_dim = workload.heads, workload.queries, workload.head_dim
    group = heads // workload.kv_heads

    def run_decode(*inputs: torch.Tensor) -> Result:
        parts = workload.split_inputs(inputs)
        k, v = _dense_cache(parts)
        batch, room = k.shape[:2]
        q = parts.q.view(batch, queries, -1, group, head_dim).permute(0, 2, 3, 1, 4)
        stacked = q.reshape(batch, -1, group * queries, head_dim)
        scores = torch.matmul(stacked, k.permute(0, 2, 3, 1)) * (1.0 / math.sqrt(head_dim))
        scores = scores.view(batch, heads, queries, room)
        if workload.cap:
            scores = torch.tanh(scores / workload.cap) * workload.cap
        scores = scores.masked_fill(_hidden_keys(workload, parts.seq_lens, room)[:, None], float("-inf"))
        if parts.sinks is not None:
            sinks = parts.sinks.to(scores.dtype)[None, :, None, None].expand(batch, heads, queries, 1)
            scores = torch.cat([scores, sinks], dim=-1)
        weights = torch.softmax(scores, dim=-1)[..., :room]
        if not filled:  # a weight of 0 does not hide NaN
            past = torch.arange(room, device=v.device) >= parts.seq_lens[:, None]
            v = v.masked_fill(past[..., None, None], 0.0)
        out = torch.matmul(weights.reshape(batch, -1, group * queries, room), v.transpose(1, 2))
        lse = torch.logsumexp(scores.float(), dim=-1) if workload.lse else None
        return out.view(batch, heads, queries, head_dim).transpose(1, 2), lse

    return run_decode


def _dense_cache(parts: DecodeInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns keys and values (B, room, Hk, D) in the dtype of q: pages gathered, 8 bits dequantised."""
    caches = ((parts.k, parts.k_scale), (parts.v, parts.v_scale))
    k, v = (
        paged_cache.load(cache if parts.table is None else paged_cache.gather(cache, parts.table), scale, parts.q.dtype)
        for cache, scale in caches
    )
    return k, v


def _hidden_keys(workload: Decode, seq_lens: torch.Tensor, room: int) -> torch.Tensor:
    """Returns bool (B, Q, room), True where a token does not see a key."""
    import torch

    token = torch.arange(workload.queries, device=seq_lens.device)
    last = (seq_lens[:, None] - workload.queries + token)[..., None]
    key = torch.arange(room, device=seq_lens.device)
    return (key > last) | (key <= last - workload.window) if workload.window else key > last


def _sdpa_decode(workload: Decode, device: torch.device) -> Callable[..., torch.Tensor]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    mask: torch.Tensor | None = None
    if workload.queries > 1 and device.type == "cpu":
        shown = torch.ones(workload.queries, workload.seq_kv, dtype=torch.bool)
        mask = shown.tril(workload.seq_kv - workload.queries)
    elif workload.queries > 1:
        from torch.nn.attention.bias import causal_lower_right  # imports Inductor, which takes a second

        mask = causal_lower_right(workload.queries, workload.seq_kv)

    def run_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            return scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=workload.heads != workload.kv_heads)

    return run_decode


def _heads_first(inputs: Tensors) -> Tensors:
    """Returns contiguous copies of q, k and v in (B, H, S, D), without the lengths, which are all equal here."""
    import torch

    return tuple(tensor.transpose(1, 2).clone(memory_format=torch.contiguous_format) for tensor in inputs[:3])


def _canonical_outputs(result: Result) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}
