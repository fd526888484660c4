"""Stands in place of aiter/ops/triton/attention/mha.py: its public functions, toggles and layouts, computed in fp32.

A test copies it into a package named aiter. `flash_attn_2` stands for the module of that implementation.
"""

from __future__ import annotations

import importlib
import itertools
from types import SimpleNamespace
from typing import Any

import torch

_MHA_IMPL = "default"
_USE_FUSED_BWD_KERNEL = False
_USE_INT64_STRIDES = True
_MHA_SWIZZLE = "default"
CALLS: list[dict[str, Any]] = []
CONFIG = {"BLOCK_M": 128, "BLOCK_N": 64, "PRELOAD_V": False, "waves_per_eu": 2, "num_warps": 4, "num_ctas": 1}
_attn_fwd = SimpleNamespace(arg_names=("q_ptr", "PRELOAD_V", "BLOCK_M", "BLOCK_N"))
TOP_LEFT = False
"""A mistake to be found: the mask of another alignment."""


def mha_set_impl(impl):
    """As aiter's."""
    global _MHA_IMPL
    _MHA_IMPL = impl


def _get_config(enable_dropout, dtype, has_pe=False, head_dim_v=None):
    return CONFIG


def one(q, k, v, scale, causal, left, slopes):
    """out (S, H, D) and lse (H, S) of one sequence; rows without keys give 0 and 0, as aiter's kernel stores."""
    group = q.shape[1] // k.shape[1]
    wide = [x.float().transpose(0, 1) for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))]
    scores = wide[0] @ wide[1].transpose(1, 2) * scale
    shift = 0 if TOP_LEFT else k.shape[0] - q.shape[0]
    distance = torch.arange(q.shape[0])[:, None] + shift - torch.arange(k.shape[0])[None]
    if slopes is not None:
        scores = scores - slopes[:, None, None] * distance.abs()
    if causal:
        scores = scores.masked_fill(distance < 0, -torch.inf)
    if left > 0:
        scores = scores.masked_fill(distance > left, -torch.inf)
    lse = scores.logsumexp(-1)
    weights = torch.where(lse[..., None] == -torch.inf, 0.0, (scores - lse[..., None]).exp())
    return (weights @ wide[2]).transpose(0, 1).to(q.dtype), torch.where(lse == -torch.inf, 0.0, lse)


def _forward(q, k, v, scale, causal, window, slopes, bounds, packed):
    CALLS.append({"impl": _MHA_IMPL, "window": window, "slopes": None if slopes is None else tuple(slopes.stride())})
    if window[1] != -1:
        raise ValueError("window_size_right is not supported yet in the Triton Backend")
    if _MHA_IMPL == "dao_ai":
        interface = importlib.import_module("aiter.ops.triton._triton_kernels.flash_attn_triton_amd.interface_v2")
        return (interface.varlen_fwd if packed else interface.fwd)(q, k, v, scale, causal, slopes, bounds)
    return computed(q, k, v, scale, causal, window, slopes, bounds)


def computed(q, k, v, scale, causal, window, slopes, bounds):
    """Sequence by sequence: packed ones by their bounds, dense ones by their first dimension."""
    if bounds is None:
        parts = [
            one(*x, scale, causal, window[0], None if slopes is None else slopes[n])
            for n, x in enumerate(zip(q, k, v, strict=True))
        ]
        return torch.stack([out for out, _ in parts]), torch.stack([lse for _, lse in parts])
    out, lse = torch.zeros_like(q), torch.zeros(q.shape[0], q.shape[1])
    for number, ((a, b), (c, d)) in enumerate(zip(*map(itertools.pairwise, bounds), strict=True)):
        slope = None if slopes is None else slopes[number]
        out[a:b], part = one(q[a:b], k[c:d], v[c:d], scale, causal, window[0], slope)
        lse[a:b] = part.t()
    return out, lse


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), bias=None, alibi_slopes=None,
    deterministic=True, return_lse=False, return_attn_probs=False, sink=None, config=None,
):  # fmt: skip
    """Dense."""
    out, lse = _forward(q, k, v, softmax_scale, causal, window_size, alibi_slopes, None, False)
    CALLS[-1]["config"] = config
    return (out, lse) if return_lse else out


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
    window_size=(-1, -1), bias=None, alibi_slopes=None, deterministic=False, return_lse=False, return_attn_probs=False,
    block_table=None, out=None, sink=None, config=None,
):  # fmt: skip
    """Packed; lse is (T, H), and (H, T) from the other implementation."""
    bounds = [x.tolist() for x in (cu_seqlens_q, cu_seqlens_k)]
    result, lse = _forward(q, k, v, softmax_scale, causal, window_size, alibi_slopes, bounds, True)
    CALLS[-1]["config"] = config
    return (result, lse) if return_lse else result
