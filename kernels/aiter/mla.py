"""Backends `aiter.asm` and `aiter.triton` for latent attention in decoding, in its absorbed form.

    aiter.asm       `aiter.mla.mla_decode_fwd` without metadata (not persistent): an assembly kernel per split of the
                    keys, and a Triton kernel that joins the splits
    aiter.triton    `mla_decode_rope.decode_attention_fwd_grouped_rope`, two Triton kernels, with its rotation disabled

Both take queries already multiplied by W_UK, and return latent rows. The timed call includes multiplying the query by
W_UK and the result by W_UV, as batched products of torch. It does not include joining latent and rotated rows in one
cache; a layer over them, whose caches are two, does.

Written from aiter's source (v0.1.5 to 2026-08); never run on an AMD GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.aiter import paged_binding, paged_layout
from kernels.aiter.attention import ASM, route_reasons
from kernels.aiter.signatures import EntryPoint, match_arguments
from pytest_attnperf.backends import Backend
from pytest_attnperf.workloads.mla import Mla

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Prepared, Tensors
    from pytest_attnperf.records import DeviceInfo

MLA_ASM = "aiter's mla_decode_fwd"
MLA_TRITON = "aiter's decode_attention_fwd_grouped_rope"
TRITON_MODULE, TRITON_OLD = "aiter.ops.triton.attention.mla_decode_rope", "aiter.ops.triton.mla_decode_rope"

LATENT_DIM, ROPE_DIM = 512, 64
"""The row of 576 elements that aiter's assembly kernels are written for."""

ASM_HEADS = (16, 128)
"""Head counts for which every version since v0.1.5 has bf16 kernels; later versions have more."""

ASM_QUERIES_MAX = 4
"""Most tokens per sequence in aiter's own test of its assembly kernels."""

KV_SPLITS = 16
"""Number of splits, which aiter's Triton kernels take from the caller: SGLang's number on AMD GPUs."""

ENTRY_POINTS = (
    EntryPoint(
        "aiter.mla",
        "mla_decode_fwd",
        needed=(
            *("q", "kv_buffer", "o", "qo_indptr", "kv_indptr", "kv_indices", "kv_last_page_lens", "max_seqlen_q"),
            "sm_scale",
        ),
        offered=("page_size", "nhead_kv", "causal"),
    ),
    EntryPoint(
        TRITON_MODULE,
        "decode_attention_fwd_grouped_rope",
        needed=(
            *("q", "k_buffer", "v_buffer", "o", "kv_indptr", "kv_indices", "k_pe_tokens", "kv_lora_rank"),
            *("rotary_dim", "cos_sin_cache", "positions", "attn_logits", "num_kv_splits", "sm_scale", "use_rope"),
        ),
        old=TRITON_OLD,
    ),
)


@dataclass(frozen=True)
class Absorbed:
    """Buffers of one problem, and the two products around the kernel.

    q         (T, H, C + R), T tokens of all sequences: the kernel's input
    latent    (T, H, C): the kernel's output
    """

    workload: Mla
    q: torch.Tensor
    latent: torch.Tensor

    @classmethod
    def for_inputs(cls, workload: Mla, q_nope: torch.Tensor) -> Absorbed:
        """Returns the problem with newly allocated `q` and `latent`, on the device and in the dtype of `q_nope`."""
        tokens = (workload.batch * workload.seq_q, workload.heads)
        q = q_nope.new_empty((*tokens, workload.latent_dim + workload.rope_dim))
        return cls(workload, q, q_nope.new_empty((*tokens, workload.latent_dim)))

    def convert_inputs(self, inputs: Tensors) -> Tensors:
        """Returns what `join_inputs` does, with both weights contiguous."""
        *others, w_uk, w_uv = self.join_inputs(inputs)
        return (*others, w_uk.contiguous(), w_uv.contiguous())

    def join_inputs(self, inputs: Tensors) -> Tensors:
        """Returns q_nope (T, H, D), q_pe (T, H, R), kv (B * T_kv, 1, 1, C + R), W_UK (H, D, C), W_UV (H, C, Dv), from
        canonical inputs. T counts the tokens of all sequences. Only kv is a copy."""
        import torch

        q_nope, q_pe, kv_latent, k_pe, wkv_b = inputs
        w_uk, w_uv = wkv_b[:, : self.workload.nope_dim], wkv_b[:, self.workload.nope_dim :]
        kv = torch.cat([kv_latent, k_pe], dim=-1)
        return q_nope.flatten(0, 1), q_pe.flatten(0, 1), kv.view(-1, 1, 1, kv.shape[-1]), w_uk, w_uv.transpose(1, 2)

    def absorb_queries(self, q_nope: torch.Tensor, q_pe: torch.Tensor, w_uk: torch.Tensor) -> None:
        """Writes the query in latent form, W_UK^T q_nope, and q_pe side by side into the buffer `q`."""
        import torch

        self.q[..., : self.workload.latent_dim] = torch.bmm(q_nope.transpose(0, 1), w_uk).transpose(0, 1)
        self.q[..., self.workload.latent_dim :] = q_pe

    def project_values(self, w_uv: torch.Tensor) -> torch.Tensor:
        """Returns the kernel's result in the buffer `latent` times W_UV: (H, T, Dv)."""
        import torch

        return torch.bmm(self.latent.transpose(0, 1), w_uv)

    def name_outputs(self, result: torch.Tensor) -> Outputs:
        """Returns 'out' (B, S, H, Dv), a view of the result (H, T, Dv)."""
        made = self.workload
        return {"out": result.view(made.heads, made.batch, made.seq_q, made.value_dim).permute(1, 2, 0, 3)}

    @property
    def scale(self) -> float:
        """Factor of the scores. Absorbing W_UK does not change it."""
        return 1.0 / math.sqrt(self.workload.nope_dim + self.workload.rope_dim)


@dataclass(frozen=True)
class AiterMla(Backend[Mla]):
    """Base class of aiter's two backends for latent attention."""

    families = ("mla",)


@dataclass(frozen=True)
class AsmMla(AiterMla):
    """Assembly `mla_decode_fwd`: bf16, latent rows of 512 + 64, 16 or 128 heads, up to 4 tokens per sequence."""

    def unsupported_reasons(self, workload: Mla, device: DeviceInfo) -> list[str]:
        """Returns the limits of mla_decode_fwd that the workload exceeds; the constants above name their sources."""
        found = route_reasons(ASM, MLA_ASM, device)
        if workload.dtype != "bf16":
            found.append(f"{MLA_ASM} takes bf16, not {workload.dtype}")
        if (sizes := (workload.latent_dim, workload.rope_dim)) != (LATENT_DIM, ROPE_DIM):
            found.append(
                f"{MLA_ASM} takes latent_dim {LATENT_DIM} and rope_dim {ROPE_DIM}, not {sizes[0]} and {sizes[1]}"
            )
        if workload.heads not in ASM_HEADS:
            found.append(f"{MLA_ASM} is offered with {' or '.join(map(str, ASM_HEADS))} heads, not {workload.heads}")
        if workload.seq_q > ASM_QUERIES_MAX:
            found.append(f"{MLA_ASM} takes up to {ASM_QUERIES_MAX} tokens per sequence, not {workload.seq_q}")
        elif workload.seq_q > 1 and not workload.causal:
            found.append(f"{MLA_ASM} masks causally, and this workload's {workload.seq_q} tokens see all keys")
        if workload.lse:
            found.append(f"{MLA_ASM} leaves its log-sum-exp unwritten where it takes one split of the keys")
        return found

    def prepare(self, workload: Mla, inputs: Tensors) -> Prepared:
        """Binds the call with a table of one-key pages in order, and runs it once. Raises UnsupportedError where this
        aiter cannot."""
        module = paged_binding.import_aiter_module("mla_decode_fwd", "aiter.mla")
        absorbed = Absorbed.for_inputs(workload, inputs[0])
        fixed = asm_values(absorbed)
        example = absorbed.convert_inputs(inputs)
        _, taken = match_arguments(module.mla_decode_fwd, {**fixed, "kv_buffer": example[2]})
        chosen = paged_binding.select_values({**fixed, "kv_buffer": None}, taken)

        def call_aiter(*tensors: torch.Tensor) -> torch.Tensor:
            q_nope, q_pe, kv, w_uk, w_uv = tensors
            absorbed.absorb_queries(q_nope, q_pe, w_uk)
            module.mla_decode_fwd(**{**chosen, "kv_buffer": kv})
            return absorbed.project_values(w_uv)

        return paged_binding.prepare_paged_call(
            MLA_ASM,
            call_aiter,
            inputs,
            absorbed.convert_inputs,
            absorbed.name_outputs,
            promised="asm",
            arguments=absorbed.join_inputs,
            written=absorbed.latent,
            config={"form": "absorb", "projections": "torch.bmm, timed", "mode": "not persistent", "page": "1"},
        )


def asm_values(absorbed: Absorbed) -> dict[str, Any]:
    """Returns the arguments of `mla_decode_fwd`, name -> value, without the cache."""
    made, device = absorbed.workload, absorbed.q.device
    table = paged_layout.contiguous_table(made.batch, made.seq_kv, device)
    lists = paged_layout.page_lists(table, (made.seq_kv,) * made.batch, 1)
    return {
        "q": absorbed.q,
        "o": absorbed.latent,
        "qo_indptr": paged_layout.running_sums((made.seq_q,) * made.batch, device),
        "kv_indptr": lists.indptr,
        "kv_indices": lists.indices,
        "kv_last_page_lens": lists.last_lens,
        "max_seqlen_q": made.seq_q,
        "page_size": 1,
        "nhead_kv": 1,
        "sm_scale": absorbed.scale,
        "causal": True,
    }


@dataclass(frozen=True)
class AiterTritonMla(AiterMla):
    """aiter's Triton decoding: fp16 and bf16, one token per sequence, any heads and sizes."""

    def unsupported_reasons(self, workload: Mla, device: DeviceInfo) -> list[str]:
        """Returns what the kernel refuses. It has no mask, so it is right for only one token per sequence."""
        found = paged_binding.device_reasons(device)
        if workload.dtype not in ("f16", "bf16"):
            found.append(f"{MLA_TRITON} is offered for bf16, f16, not {workload.dtype}")
        if workload.seq_q > 1:
            found.append(f"{MLA_TRITON} takes one token per sequence, not {workload.seq_q}")
        if workload.lse:
            found.append(f"{MLA_TRITON} returns no log-sum-exp")
        return found

    def prepare(self, workload: Mla, inputs: Tensors) -> Prepared:
        """Binds the call, allocates its buffers, and runs it once. Values are a view of the first part of each cache
        row."""
        module = paged_binding.import_aiter_module("decode_attention_fwd_grouped_rope", TRITON_MODULE, TRITON_OLD)
        absorbed = Absorbed.for_inputs(workload, inputs[0])
        fixed = triton_values(absorbed)
        function = module.decode_attention_fwd_grouped_rope
        _, taken = match_arguments(function, {**fixed, **_cache_views(workload, absorbed.convert_inputs(inputs)[2])})

        def call_aiter(*tensors: torch.Tensor) -> torch.Tensor:
            q_nope, q_pe, kv, w_uk, w_uv = tensors
            absorbed.absorb_queries(q_nope, q_pe, w_uk)
            values = {**fixed, **_cache_views(workload, kv)}
            module.decode_attention_fwd_grouped_rope(**paged_binding.select_values(values, taken))
            return absorbed.project_values(w_uv)

        return paged_binding.prepare_paged_call(
            MLA_TRITON,
            call_aiter,
            inputs,
            absorbed.convert_inputs,
            absorbed.name_outputs,
            promised="triton",
            arguments=absorbed.join_inputs,
            written=absorbed.latent,
            config={"form": "absorb", "projections": "torch.bmm, timed", "num_kv_splits": f"{KV_SPLITS}, in fp32"},
            also=(module.__name__, "decode_attention_fwd_grouped_rope"),
        )


def triton_values(absorbed: Absorbed) -> dict[str, Any]:
    """Returns the arguments of aiter's Triton decoding, name -> value, without the cache. Results of the splits are
    fp32, as in aiter's callers."""
    import torch

    made, device = absorbed.workload, absorbed.q.device
    table = paged_layout.contiguous_table(made.batch, made.seq_kv, device)
    lists = paged_layout.page_lists(table, (made.seq_kv,) * made.batch, 1)
    splits = (made.batch, made.heads, KV_SPLITS, made.latent_dim + 1)
    return {
        "q": absorbed.q,
        "o": absorbed.latent,
        "kv_indptr": lists.indptr,
        "kv_indices": lists.indices,
        "k_pe_tokens": None,
        "kv_lora_rank": made.latent_dim,
        "rotary_dim": made.rope_dim,
        "cos_sin_cache": None,
        "positions": None,
        "attn_logits": torch.empty(splits, dtype=torch.float32, device=device),
        "num_kv_splits": KV_SPLITS,
        "sm_scale": absorbed.scale,
        "use_rope": False,
    }


def _cache_views(workload: Mla, kv: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns views of the cache by argument name: 'k_buffer' (keys, 1, C + R), and 'v_buffer', the first C of each
    row."""
    k_buffer = kv[:, 0]
    return {"k_buffer": k_buffer, "v_buffer": k_buffer[..., : workload.latent_dim]}


PARTS: tuple[tuple[str, str, Backend], ...] = (
    ("aiter.asm", "mla", AsmMla("aiter.asm")),
    ("aiter.triton", "mla", AiterTritonMla("aiter.triton")),
)
