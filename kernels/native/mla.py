"""Latent attention with torch's operators, in the two forms of DeepSeek-V3's `inference/model.py`.

    native.mla_naive     keys and values of every head are projected up from the latents, and then it is ordinary
                         attention, torch's scaled_dot_product_attention
    native.mla_absorb    W_UK is moved to the query and W_UV behind the softmax; scores are stored, latents shared

Both do all of this in the timed call, as in a model that caches latents.

The calls of both take one more argument, an additive mask (S, T) in the workload's dtype, which a layer passes in place
of the causal mask (`takes_mask`). `MlaNaive.attend_heads` is for caches of projected keys and values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kernels.layouts import own_copies
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.mla import Mla

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

CPU_FLOPS_MAX = 1e8
"""CPU limit that keeps a half-precision check and timing on two cores within seconds: 3.5e8 took most of a minute."""

PROJECTED_BYTES_MAX = 1 << 30
"""Most bytes of keys and values in a call. Prompts stay far below; this form is not meant for decoding."""


NAIVE_DECLARES = Declares(operators=("aten::scaled_dot_product_attention",))
"""What runs in every call of the naive form."""


@dataclass(frozen=True)
class MlaNaive(Backend[Mla]):
    """Projects up, then calls scaled_dot_product_attention, which picks its own kernel; no log-sum-exp."""

    families = ("mla",)
    takes_mask: ClassVar[bool] = True

    def unsupported_reasons(self, workload: Mla, device: DeviceInfo) -> list[str]:
        """Returns reasons against log-sum-exp, and against long caches, because every call would project the whole
        cache up for every head."""
        found = ["scaled_dot_product_attention returns no log-sum-exp"] if workload.lse else []
        if (needed := projected_bytes(workload)) > PROJECTED_BYTES_MAX:
            found.append(
                f"{self.name} would project the latents up into {needed:,} bytes of keys and values in every call, "
                f"above {PROJECTED_BYTES_MAX:,}"
            )
        return found

    def prepare(self, workload: Mla, inputs: Tensors) -> Prepared:
        """Copies the inputs and builds a mask if needed: torch's is_causal is top-left, so right only for S == T."""
        import torch

        return Prepared(
            call=naive_attention(workload, inputs[0].device),
            tensors=own_copies(inputs),
            convert=lambda new: new,
            outputs=lambda out: {"out": out.transpose(1, 2)},
            config={"form": "naive", "torch": torch.__version__},
            declares=NAIVE_DECLARES,
        )

    def attend_heads(self, workload: Mla, device: torch.device) -> Callable[..., torch.Tensor]:
        """Returns a function of q (B, S, H, D + R), k (B, T, H, D + R), v (B, T, H, Dv) and an optional additive mask
        (S, T) that returns out (B, H, S, Dv), where keys and values of heads are cached. Its calls run what
        NAIVE_DECLARES says."""
        attend = heads_attention(workload, device)
        return lambda q, k, v, mask=None: attend(*(part.transpose(1, 2) for part in (q, k, v)), mask)


@dataclass(frozen=True)
class MlaAbsorb(Backend[Mla]):
    """The absorbed form as einsums, whose scores are in the workload's dtype."""

    families = ("mla",)
    takes_mask: ClassVar[bool] = True

    def prepare(self, workload: Mla, inputs: Tensors) -> Prepared:
        """Copies the inputs and builds the causal mask, untimed."""
        return Prepared(
            call=absorbed_attention(workload, inputs[0].device),
            tensors=own_copies(inputs),
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config={"form": "absorb", "compute_dtype": workload.dtype},
            declares=Declares(never=("scaled_dot_product",)),
        )


BACKENDS = (MlaNaive("native.mla_naive", CPU_FLOPS_MAX), MlaAbsorb("native.mla_absorb", CPU_FLOPS_MAX))


def naive_attention(workload: Mla, device: torch.device) -> Callable[..., torch.Tensor]:
    """Returns a function of the canonical q_nope, q_pe, kv_latent, k_pe and wkv_b, and an optional additive mask (S, T)
    in place of the causal one, that returns out (B, H, S, Dv)."""
    import torch

    attend = heads_attention(workload, device)

    def run_attention(
        q_nope: torch.Tensor,
        q_pe: torch.Tensor,
        kv_latent: torch.Tensor,
        k_pe: torch.Tensor,
        wkv_b: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        q = torch.cat([q_nope, q_pe], dim=-1).transpose(1, 2)  # (B, H, S, D + R)
        latent = kv_latent[:, None]  # (B, 1, T, C)
        k_nope = latent @ wkv_b[:, : workload.nope_dim].transpose(-1, -2)  # (B, H, T, D)
        v = latent @ wkv_b[:, workload.nope_dim :].transpose(-1, -2)  # (B, H, T, Dv)
        k = torch.cat([k_nope, k_pe[:, None].expand(-1, workload.heads, -1, -1)], dim=-1)
        return attend(q, k, v, mask)

    return run_attention


def heads_attention(workload: Mla, device: torch.device) -> Callable[..., torch.Tensor]:
    """Returns a function of q (B, H, S, D + R), k (B, H, T, D + R), v (B, H, T, Dv) and an additive mask (S, T) or None
    for the workload's own mask, that returns out (B, H, S, Dv)."""
    from torch.nn.functional import scaled_dot_product_attention

    square = workload.seq_q == workload.seq_kv
    own = None if not workload.causal or square or workload.seq_q == 1 else ~hidden_keys(workload, device)

    def run_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        if mask is not None:
            return scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return scaled_dot_product_attention(q, k, v, attn_mask=own, is_causal=workload.causal and square)

    return run_attention


def absorbed_attention(workload: Mla, device: torch.device) -> Callable[..., tuple[torch.Tensor, torch.Tensor | None]]:
    """Returns a function of the canonical inputs, and an optional additive mask (S, T) in place of the causal one, that
    returns (out (B, S, H, Dv), fp32 lse (B, H, S) or None)."""
    import torch

    scale = 1.0 / math.sqrt(workload.nope_dim + workload.rope_dim)
    hidden = hidden_keys(workload, device) if workload.causal and workload.seq_q > 1 else None

    def run_attention(
        q_nope: torch.Tensor,
        q_pe: torch.Tensor,
        kv_latent: torch.Tensor,
        k_pe: torch.Tensor,
        wkv_b: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        w_uk, w_uv = wkv_b[:, : workload.nope_dim], wkv_b[:, workload.nope_dim :]
        q_latent = torch.einsum("bshd,hdc->bhsc", q_nope, w_uk)
        scores = torch.einsum("bhsc,btc->bhst", q_latent, kv_latent) + torch.einsum("bshr,btr->bhst", q_pe, k_pe)
        scores = scores * scale
        if mask is not None:
            scores = scores + mask
        elif hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        lse = torch.logsumexp(scores.float(), dim=-1) if workload.lse else None
        latent = torch.einsum("bhst,btc->bhsc", torch.softmax(scores, dim=-1), kv_latent)
        return torch.einsum("bhsc,hdc->bshd", latent, w_uv), lse

    return run_attention


def projected_bytes(workload: Mla) -> int:
    """Returns the bytes of the keys (D + R) and values (Dv) of all heads and all cached tokens."""
    key_and_value = workload.nope_dim + workload.rope_dim + workload.value_dim
    return workload.batch * workload.seq_kv * workload.heads * key_and_value * DTYPE_BYTES[workload.dtype]


def hidden_keys(workload: Mla, device: torch.device) -> torch.Tensor:
    """Returns bool (S, T), True where a causal row does not see a key: row i sees key j iff j <= i + T - S."""
    import torch

    ones = torch.ones(workload.seq_q, workload.seq_kv, dtype=torch.bool, device=device)
    return ones.triu(workload.seq_kv - workload.seq_q + 1)


def _canonical_outputs(result: Any) -> Outputs:
    out, lse = result
    return {"out": out} if lse is None else {"out": out, "lse": lse}
