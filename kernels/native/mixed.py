"""A serving step over a paged cache with torch's own operators: gather the pages, then attention.

torch has no paged attention, so both backends gather keys and values into dense tensors inside the timed call, because
that is part of their cost. They dequantise an 8-bit cache there too. Neighbouring sequences of one size are computed
together. The lengths are part of the workload, so numbers and sizes are known before the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.batch_spec import BatchPart
from pytest_attnperf.workloads.mixed import Mixed, hidden_keys
from pytest_attnperf.workloads.paged_cache import gather, load, require_block_table

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

CPU_FLOPS_MAX = 2e8
"""CPU limit that keeps a check and a timing on two cores within seconds, also in half precision."""

EAGER_SCORE_BYTES_MAX = 1 << 26
"""Most bytes of one sequence's scores in all heads; softmax and mask need a few more buffers of that size."""

SDPA_HEAD_DIM_MAX = 256
"""Largest head dimension of torch's flash attention on GPUs (sdpa_utils); it must also be a multiple of 8."""


@dataclass(frozen=True)
class EagerMixed(Backend[Mixed]):
    """Two products around a softmax, in q's dtype, with every feature of the family; whole score matrices in memory."""

    families = ("mixed",)

    def unsupported_reasons(self, workload: Mixed, device: DeviceInfo) -> list[str]:
        """Returns a reason if one sequence has more than EAGER_SCORE_BYTES_MAX bytes of scores, which are all kept in
        memory; else an empty list."""
        score_bytes = max(part.q * part.kv for part in workload.parts) * workload.heads * DTYPE_BYTES[workload.dtype]
        if score_bytes <= EAGER_SCORE_BYTES_MAX:
            return []
        return [
            f"{self.name} writes all scores of a sequence to memory, {score_bytes >> 20} MiB for the largest of this "
            f"workload; it takes up to {EAGER_SCORE_BYTES_MAX >> 20}"
        ]

    def prepare(self, workload: Mixed, inputs: Tensors) -> Prepared:
        """Copies the inputs and builds the masks, untimed. Raises UsageError for an invalid block table or lengths."""
        tensors = _copy_checked(inputs)
        attend = _bind_eager(workload, tensors[0].device)
        return Prepared(
            call=_make_step(workload, attend),
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config={"compute_dtype": workload.dtype, "pages": "gathered in the call"},
            declares=Declares(never=("scaled_dot_product",)),
        )


@dataclass(frozen=True)
class SdpaMixed(Backend[Mixed]):
    """torch's flash attention, pinned, once per size of sequences."""

    families = ("mixed",)

    def unsupported_reasons(self, workload: Mixed, device: DeviceInfo) -> list[str]:
        """Returns reasons against windows, soft caps and sinks, for which torch's flash attention has no argument, and
        on a GPU against head dimensions above 256. Others are padded by torch, inside the call."""
        extras = {"sliding window": workload.window, "soft cap": workload.cap, "attention sinks": workload.sinks}
        found = [f"torch's FLASH_ATTENTION takes no {name}" for name, value in extras.items() if value]
        if device.kind != "cpu" and workload.head_dim > SDPA_HEAD_DIM_MAX:
            found.append(
                f"torch's FLASH_ATTENTION on a GPU takes head dimensions to {SDPA_HEAD_DIM_MAX}, not "
                f"{workload.head_dim}"
            )
        return found

    def prepare(self, workload: Mixed, inputs: Tensors) -> Prepared:
        """Copies the inputs and builds the masks, untimed; torch's is_causal is top-left, so right only for prompts
        without a past.

        Raises UsageError for a block table or lengths out of range.
        """
        import torch

        tensors = _copy_checked(inputs)
        return Prepared(
            call=_make_step(workload, _bind_sdpa(workload, tensors[0].device)),
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config={
                "sdpa_backend": "FLASH_ATTENTION",
                "pages": "gathered in the call",
                "torch": torch.__version__,
            },
            declares=Declares(operators=("aten::_(scaled_dot_product_)?flash_attention",)),
        )


BACKENDS: tuple[Backend, ...] = (
    EagerMixed("native.eager_mixed", CPU_FLOPS_MAX),
    SdpaMixed("native.sdpa_mixed", CPU_FLOPS_MAX),
)


def _make_step(workload: Mixed, attend: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Returns a function of the canonical inputs that returns out (T, H, D). For each part (sequences of one size) it
    gathers keys and values, and calls `attend` with (the part's number, q, k, v, sinks or None)."""
    import torch

    def run_step(
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        table: torch.Tensor,
        cu_seqlens_q: torch.Tensor,
        seq_lens: torch.Tensor,
        *extras: torch.Tensor,
    ) -> torch.Tensor:
        sinks = extras[0] if workload.sinks else None
        scales: tuple[Any, ...] = extras[-2:] if workload.cache else (None, None)
        out = torch.empty_like(q)
        for number, (part, tokens, sequences) in enumerate(workload.iterate_slices()):
            shape = (part.count, part.q, workload.heads, workload.head_dim)
            pages = table[sequences, : -(-part.kv // workload.page)]
            k, v = (
                load(gather(cache, pages)[:, : part.kv], scale, q.dtype)
                for cache, scale in zip((k_cache, v_cache), scales, strict=True)
            )
            out[tokens].view(shape).copy_(attend(number, q[tokens].view(shape), k, v, sinks))
        return out

    return run_step


def _bind_eager(workload: Mixed, device: torch.device) -> Callable[..., torch.Tensor]:
    """Returns a function (part's number, q (count, q, H, D), k and v (count, kv, Hk, D), sinks) -> out (count, q, H,
    D)."""
    import torch

    hidden = [hidden_keys(p.kv - p.q, p.q, p.kv, workload.window, device) for p in workload.parts]
    heads, kv_heads, head_dim = workload.heads, workload.kv_heads, workload.head_dim
    scale = 1.0 / math.sqrt(head_dim)

    def attend_part(
        number: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None
    ) -> torch.Tensor:
        count, tokens = q.shape[:2]
        # Query heads that share a K/V head are stacked as further rows, so no K or V is copied for grouped heads.
        rows = q.transpose(1, 2).reshape(count, kv_heads, heads // kv_heads * tokens, head_dim)
        scores = torch.matmul(rows, k.permute(0, 2, 3, 1)).view(count, heads, tokens, -1) * scale
        if workload.cap:
            scores = workload.cap * torch.tanh(scores / workload.cap)
        scores = scores.masked_fill(hidden[number], float("-inf"))
        if sinks is not None:
            sink = sinks.to(q.dtype)[None, :, None, None].expand(count, heads, tokens, 1)
            scores = torch.cat([scores, sink], dim=-1)
        weights = torch.softmax(scores, dim=-1)[..., : k.shape[1]]
        stacked = weights.reshape(count, kv_heads, heads // kv_heads * tokens, -1)
        return torch.matmul(stacked, v.transpose(1, 2)).view(count, heads, tokens, head_dim).transpose(1, 2)

    return attend_part


def _bind_sdpa(workload: Mixed, device: torch.device) -> Callable[..., torch.Tensor]:
    """Returns a function like that of `_bind_eager`, by torch's flash attention; it ignores sinks."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    masks = [_make_mask(part, device) for part in workload.parts]

    def attend_part(
        number: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None
    ) -> torch.Tensor:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            return scaled_dot_product_attention(
                q.transpose(1, 2),
                k.transpose(1, 2),
                v.transpose(1, 2),
                attn_mask=masks[number],
                is_causal=masks[number] is None and q.shape[1] > 1,
                enable_gqa=workload.kv_heads != workload.heads,
            ).transpose(1, 2)

    return attend_part


def _make_mask(part: BatchPart, device: torch.device) -> Any:
    """Returns the attn_mask of a part; None for one token, which sees all keys, and for equal lengths (is_causal)."""
    if part.q in (1, part.kv):
        return None
    if device.type != "cpu":
        from torch.nn.attention.bias import causal_lower_right  # imports Inductor, which takes a second

        return causal_lower_right(part.q, part.kv)
    return ~hidden_keys(part.kv - part.q, part.q, part.kv, 0, device)


def _copy_checked(inputs: Tensors) -> Tensors:
    """Returns copies of the inputs. Raises UsageError if the block table or the lengths are out of range."""
    require_block_table(inputs[3], inputs[5], inputs[1].shape[0], inputs[1].shape[1])
    return tuple(tensor.clone() for tensor in inputs)


def _canonical_outputs(out: torch.Tensor) -> Outputs:
    return {"out": out}
