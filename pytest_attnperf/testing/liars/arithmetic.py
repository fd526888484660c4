"""Lies about what is computed: precision, scales, heads, log-sum-exp."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from pytest_attnperf.testing.liars.honest import attend, prepare_attention
from pytest_attnperf.testing.liars.liar import OFF, make_liar
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.testing.liars.liar import Kernel

HALF = Prefill(2, 48, 4, 32, kv_heads=2, causal=True)
BRAIN = Prefill(2, 48, 4, 32, kv_heads=2, dtype="bf16", causal=True)
SINGLE = Prefill(2, 48, 4, 32, kv_heads=2, dtype="f32", causal=True)
PADDED_HEAD = Prefill(1, 40, 2, 80)
RAGGED_HEAD = Prefill(1, 40, 4, 72, kv_heads=2, causal=True)
ODD_HEAD = Prefill(1, 40, 4, 59, kv_heads=2, causal=True)
TILE = 80
"""What a tile holds of a head of RAGGED_HEAD: five steps of 16."""
WITH_LSE = Prefill(4, 40, 4, 32, causal=True, lse=True)
EIGHT_BIT = Prefill(1, 64, 4, 64, kv_heads=2, dtype="f8e4m3", causal=True)


def _rounded_to(narrower: str) -> Kernel:
    """Returns a kernel that rounds its inputs to the torch dtype named `narrower` and back, then computes attention
    honestly."""

    def prepare_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
        import torch

        dtype = getattr(torch, narrower)

        def call(*qkv: torch.Tensor) -> torch.Tensor:
            q, k, v = (tensor.to(dtype).to(tensor.dtype) for tensor in qkv)
            return attend(q, k, v, causal=workload.causal)[0]

        return call

    return prepare_kernel


def _swaps_gqa_heads(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns attention whose head h reads key head h % Hk: heads of one group are transposed before and after."""
    kv_heads, group = workload.kv_heads, workload.heads // workload.kv_heads

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        batch, rows, _, head_dim = q.shape
        swapped = q.reshape(batch, rows, group, kv_heads, head_dim).transpose(2, 3).flatten(2, 3)
        out, _ = attend(swapped, k, v, causal=workload.causal)
        return out.reshape(batch, rows, kv_heads, group, head_dim).transpose(2, 3).flatten(2, 3)

    return call


def _read_tiles(tensor: torch.Tensor, *, masked: bool) -> torch.Tensor:
    """Returns (B, S, H, TILE) of a tensor (B, S, H, D): behind the D elements of a head zeros or, unless `masked`, the
    next head, which lies there."""
    import torch

    batch, rows, heads, head_dim = tensor.shape
    if masked:
        return torch.nn.functional.pad(tensor, (0, TILE - head_dim))
    behind = torch.nn.functional.pad(tensor.flatten(), (0, TILE - head_dim))
    return behind.as_strided((batch, rows, heads, TILE), (rows * heads * head_dim, heads * head_dim, head_dim, 1))


def _padded_tiles(
    workload: Prefill, inputs: Tensors, *, masks_reads: bool = True, masks_stores: bool = True
) -> Callable[..., torch.Tensor]:
    """Returns attention in tiles that are wider than a head, as a kernel pads them. With masks_reads=False q and k are
    read into the next head; with masks_stores=False so is v, and the columns behind a head are stored."""

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        head_dim = q.shape[3]
        wide_q, wide_k = (_read_tiles(tensor, masked=masks_reads) for tensor in (q, k))
        values = _read_tiles(v, masked=masks_stores)
        tiles, _ = attend(wide_q, wide_k, values, causal=workload.causal, scale=head_dim**-0.5)
        out = q.new_empty(q.numel() + TILE - head_dim)
        stored = head_dim if masks_stores else TILE
        for head in reversed(range(workload.heads)):
            shape, strides = (*q.shape[:2], stored), (q.stride(0), q.stride(1), 1)
            first = out.storage_offset() + head * head_dim
            out.as_strided(shape, strides, first).copy_(tiles[:, :, head, :stored])
        return out[: q.numel()].view(q.shape)

    return call


def _in_words(workload: Prefill, inputs: Tensors, *, word: int) -> Callable[..., torch.Tensor]:
    """Returns attention whose rows are read from the last multiple of `word` elements on that is not behind their
    first."""
    import torch

    def read_rows(tensor: torch.Tensor) -> torch.Tensor:
        head_dim = tensor.shape[3]
        firsts = torch.arange(0, tensor.numel(), head_dim, device=tensor.device) // word * word
        columns = torch.arange(head_dim, device=tensor.device)
        return tensor.flatten()[firsts[:, None] + columns].view(tensor.shape)

    def call(*qkv: torch.Tensor) -> torch.Tensor:
        q, k, v = map(read_rows, qkv)
        return attend(q, k, v, causal=workload.causal)[0]

    return call


def _in_steps(workload: Prefill, inputs: Tensors, *, step: int) -> Callable[..., torch.Tensor]:
    """Returns attention whose scores are sums over the whole steps of a head dimension, without what is behind."""
    import torch

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        behind = q.shape[3] % step
        summed = torch.nn.functional.pad(q[..., : q.shape[3] - behind], (0, behind))
        return attend(summed, k, v, causal=workload.causal)[0]

    return call


def _without_maximum(scores: torch.Tensor) -> torch.Tensor:
    """Returns exp(scores) / sum over the last axis: a softmax that does not subtract the row's maximum, so that it may
    overflow."""
    weights = scores.exp()
    return weights / weights.sum(-1, keepdim=True)


def _clamped_softmax(scores: torch.Tensor) -> torch.Tensor:
    """Returns the softmax of scores clamped to at most 50, so that exp cannot overflow without subtracting a
    maximum."""
    return _without_maximum(scores.clamp(max=50.0))


def _lse_in_base_2(workload: Prefill, inputs: Tensors) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = attend(q, k, v, causal=workload.causal)
        return out, lse / math.log(2)

    return call


def _apply_scales(workload: Prefill, inputs: Tensors, *, v_scaled: bool = True) -> Callable[..., torch.Tensor]:
    """Returns attention of 8-bit inputs times their scales, computed in fp32, with the result in bf16. With
    v_scaled=False, v is not multiplied by its scale, which is wrong."""
    import torch

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *scales: torch.Tensor) -> torch.Tensor:
        q_scale, k_scale, v_scale = scales
        values = v.float() * v_scale if v_scaled else v.float()
        return attend(q.float() * q_scale, k.float() * k_scale, values, causal=workload.causal)[0].to(torch.bfloat16)

    return call


ARITHMETIC = (
    make_liar("bf16_under_f16", "Inputs called f16 are rounded to bf16 first.", HALF, _rounded_to("bfloat16"), OFF),
    make_liar(
        "fp8_under_bf16", "Inputs called bf16 are rounded to fp8 first.", BRAIN, _rounded_to("float8_e4m3fn"), OFF
    ),
    make_liar(
        "wrong_scale_at_one_head_dim",
        "At head_dim 80 the scores are scaled for the 96 that the tiles are padded to.",
        PADDED_HEAD,
        partial(prepare_attention, scale=96**-0.5),
        OFF,
    ),
    make_liar(
        "reads_past_the_head",
        "At head_dim 72 the scores sum over tiles of 80, whose last columns are the next head's.",
        RAGGED_HEAD,
        partial(_padded_tiles, masks_reads=False),
        OFF,
        twin=_padded_tiles,
    ),
    make_liar(
        "stores_past_the_head",
        "At head_dim 72 tiles of 80 are stored, whose last columns, the next head's values, lie over its result.",
        RAGGED_HEAD,
        partial(_padded_tiles, masks_stores=False),
        OFF,
        twin=_padded_tiles,
    ),
    make_liar(
        "drops_last_dimensions",
        "At head_dim 72 the scores sum over whole steps of 16, which are 64.",
        RAGGED_HEAD,
        partial(_in_steps, step=16),
        OFF,
        twin=partial(_in_steps, step=8),
    ),
    make_liar(
        "reads_from_whole_words",
        "Rows are read 16 bytes at a time from addresses rounded down to these, which at head_dim 59 are others.",
        ODD_HEAD,
        partial(_in_words, word=8),
        OFF,
        twin=partial(_in_words, word=1),
    ),
    make_liar(
        "swaps_gqa_heads",
        "Query head h reads key head h % Hk, where h // (H / Hk) is right.",
        HALF,
        _swaps_gqa_heads,
        OFF,
    ),
    make_liar(
        "no_max_subtraction",
        "The softmax is exp(score) / sum, without the row's maximum.",
        BRAIN,
        partial(prepare_attention, softmax=_without_maximum),
        r"'out' holds \d+ NaN",
    ),
    make_liar(
        "clamps_scores",
        "Scores are clamped to 50, so that exp cannot overflow.",
        SINGLE,
        partial(prepare_attention, softmax=_clamped_softmax),
        OFF,
    ),
    make_liar("wrong_lse", "The log-sum-exp is in base 2.", WITH_LSE, _lse_in_base_2, r"'lse' is off by"),
    make_liar(
        "ignores_descale",
        "8-bit values are multiplied without their scale.",
        EIGHT_BIT,
        partial(_apply_scales, v_scaled=False),
        OFF,
        twin=_apply_scales,
    ),
)
