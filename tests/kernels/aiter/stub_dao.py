"""Stands in place of flash_attn_triton_amd/interface_v2.py: layouts of dao_ai, and its backward pass."""

from __future__ import annotations

import importlib

import torch


def _mha():
    return importlib.import_module("aiter.ops.triton.attention.mha")


def fwd(q, k, v, scale, causal, slopes, bounds):
    """Dense."""
    return _mha().computed(q, k, v, scale, causal, (-1, -1), slopes, None)


def varlen_fwd(q, k, v, scale, causal, slopes, bounds):
    """Packed: lse is (H, T)."""
    out, lse = _mha().computed(q, k, v, scale, causal, (-1, -1), slopes, bounds)
    return out, lse.t()


def _gradients(dout, q, k, v, scale, causal, bounds, into):
    leaves = [x.detach().float().requires_grad_() for x in (q, k, v)]
    with torch.enable_grad():
        out, _ = _mha().computed(*leaves, scale, causal, (-1, -1), None, bounds)
        found = torch.autograd.grad(out, leaves, dout.float())
    for place, gradient in zip(into, found, strict=True):
        place.copy_(gradient)


def bwd(
    dout, q, k, v, out, softmax_lse, dq, dk, dv, alibi_slopes, dropout_p, softmax_scale, causal, window_size_left,
    window_size_right, softcap, deterministic, gen_=None, rng_state=None,
):  # fmt: skip
    """Dense."""
    _gradients(dout, q, k, v, softmax_scale, causal, None, (dq, dk, dv))


def varlen_bwd(
    dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, alibi_slopes, max_seqlen_q, max_seqlen_k,
    dropout_p, softmax_scale, zero_tensors, causal, window_size_left, window_size_right, softcap, deterministic,
    gen_=None, rng_state=None,
):  # fmt: skip
    """Packed; lse must be (H, T)."""
    assert softmax_lse.shape == (q.shape[1], q.shape[0])
    bounds = [x.tolist() for x in (cu_seqlens_q, cu_seqlens_k)]
    _gradients(dout, q, k, v, softmax_scale, causal, bounds, (dq, dk, dv))


def flash_attn_onekernel_backward(
    do, q, k, v, o, softmax_lse, dq, dk, dv, dbias, sm_scale, alibi_slopes, causal, cu_seqlens_q, cu_seqlens_k,
    max_seqlen_q, max_seqlen_k, dropout_p, philox_seed=0, philox_offset=0, USE_INT64_STRIDES=False, config=None,
):  # fmt: skip
    """The default implementation's, in a module of its own; packed lse must be (T, H)."""
    assert USE_INT64_STRIDES
    if cu_seqlens_q is not None:
        assert softmax_lse.shape == (q.shape[0], q.shape[1])
    bounds = None if cu_seqlens_q is None else [x.tolist() for x in (cu_seqlens_q, cu_seqlens_k)]
    _gradients(do, q, k, v, sm_scale, causal, bounds, (dq, dk, dv))
