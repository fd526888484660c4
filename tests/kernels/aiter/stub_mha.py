"""Stands in place of aiter/ops/mha.py: the same functions and parameters, and the order in which it dispatches.

A test copies it into a package named aiter. The era is 'head' (2026-08) or 'v0.1.9'; ARCH is what get_gfx() tells.
Compiled functions note their arguments in CALLS and compute by `mha_results`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch

from tests.kernels.aiter.mha_results import result

ARCH = "gfx942"
ERA = "head"
CALLS: list[tuple[str, dict[str, Any]]] = []
FLYDSL = True
ENABLE_CK = int(os.environ.get("ENABLE_CK", "1")) != 0


def get_gfx() -> str:
    """The architecture."""
    return ARCH


def _compiled(name: str, required: str, optional: str = "") -> Callable[..., Any]:
    """A compiled function with these parameters, in this order."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(one, kind) for one in required.split()]
    parameters += [inspect.Parameter(one, kind, default=None) for one in optional.split()]
    signature = inspect.Signature(parameters)

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        CALLS.append((name, dict(bound.arguments)))
        return result(name, bound.arguments)

    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__name__ = name
    return function


HEAD = ERA == "head"
FP8 = {"gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn}
_MASK = "is_causal window_size_left window_size_right"
_FORWARD = f"q k v dropout_p softmax_scale {_MASK}"
_RETURNS = "return_softmax_lse return_dropout_randval"
_PACKED = (
    "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k min_seqlen_q dropout_p softmax_scale logits_soft_cap "
    f"zero_tensors {_MASK}"
)
_DESCALES = "q_descale k_descale v_descale"
_BACKWARD = f"dout q k v out softmax_lse dropout_p softmax_scale {_MASK} deterministic"
_PACKED_BACKWARD = (
    "dout q k v out softmax_lse cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p softmax_scale "
    f"zero_tensors {_MASK} deterministic"
)
_V3 = "is_v3_atomic_fp32 how_v3_bf16_cvt"
_LAST = "dq dk dv alibi_slopes rng_state gen"

mha_fwd = _compiled(
    "mha_fwd",
    f"{_FORWARD} sink_size {_RETURNS}",
    f"cu_seqlens_q cu_seqlens_kv out bias alibi_slopes {_DESCALES} {'sink_ptr' * HEAD} gen",
)
fmha_v3_fwd = _compiled(
    "fmha_v3_fwd", f"{_FORWARD} {_RETURNS} how_v3_bf16_cvt", f"out bias alibi_slopes {_DESCALES * HEAD} gen"
)
mha_varlen_fwd = _compiled("mha_varlen_fwd", f"{_PACKED} sink_size {_RETURNS}", "out block_table bias alibi_slopes gen")
fmha_v3_varlen_fwd = _compiled(
    "fmha_v3_varlen_fwd", f"{_PACKED} {_RETURNS} how_v3_bf16_cvt", "out block_table bias alibi_slopes gen"
)
mha_bwd = _compiled("mha_bwd", _BACKWARD, "dq dk dv dbias bias alibi_slopes rng_state gen")
fmha_v3_bwd = _compiled("fmha_v3_bwd", f"{_BACKWARD} {_V3}", _LAST)
mha_varlen_bwd = _compiled("mha_varlen_bwd", _PACKED_BACKWARD, _LAST)
fmha_v3_varlen_bwd = _compiled("fmha_v3_varlen_bwd", f"{_PACKED_BACKWARD} {_V3}", _LAST)
if HEAD:
    mha_fwd_native_splitkv = _compiled("mha_fwd_native_splitkv", "q k v out softmax_scale causal return_lse num_splits")
    fmha_fwd_bf16_opus_fwd = _compiled("fmha_fwd_bf16_opus_fwd", "q k v softmax_scale causal", "out")
    fmha_fwd_with_sink_asm = _compiled("fmha_fwd_with_sink_asm", "q k v softmax_scale is_causal return_lse", "sink out")


def _asm(q: Any, k: Any, v: Any, windowed: bool, added: bool) -> bool:
    """What assembly may take; of v0.1.9 without any look at the architecture, and without fp8."""
    dims = (q.shape[-1], v.shape[-1])
    fp8 = HEAD and q.dtype == FP8.get(ARCH)
    known = dims in ((128, 128), (192, 128)) or (fp8 and dims == (256, 256) and ARCH == "gfx950")
    group = q.shape[-2] // k.shape[-2]
    arch = not HEAD or ARCH in FP8
    shifted = not fp8 or group & (group - 1) == 0
    return arch and known and not windowed and not added and shifted and (q.dtype == torch.bfloat16 or fp8)


def _flash_attn_forward(q, k, v, scale, causal, window, return_lse, bias=None, slopes=None, descales=(None,) * 3):
    left, right = (-1 if size >= k.shape[1] else int(size) for size in window[:2])
    windowed, added = left > 0 or right > 0, bias is not None or slopes is not None
    plain = q.dtype == torch.bfloat16 and (left, right) == (-1, -1) and not added
    dims = (q.shape[-1], v.shape[-1])
    if HEAD:
        if ARCH == "gfx942" and plain and dims == (64, 64) and (not causal or k.shape[1] >= q.shape[1]):
            splits = 2 if k.shape[1] >= 1280 else 0
            if splits > 1:
                return mha_fwd_native_splitkv(q, k, v, None, scale, causal, return_lse, splits)
        if ARCH == "gfx1250" and plain and dims == (128, 128):
            return fmha_fwd_with_sink_asm(q, k, v, scale, causal, True, None, None)
        by_env = dims == (128, 128) and os.environ.get("AITER_ENABLE_FMHA_OPUS", "0") != "0"
        by_default = dims == (192, 128) and os.environ.get("AITER_DISABLE_FMHA_OPUS", "0") == "0"
        if ARCH == "gfx950" and plain and not return_lse and (by_env or by_default):
            return fmha_fwd_bf16_opus_fwd(q, k, v, softmax_scale=scale, causal=causal, out=None), None
    if _asm(q, k, v, windowed, added) and q.shape[1] > 128:
        further = (*descales, None) if HEAD else (None,)
        return fmha_v3_fwd(q, k, v, 0.0, scale, causal, left, right, return_lse, False, 1, None, bias, slopes, *further)
    further = (*descales, None, None) if HEAD else (*descales, None)
    return mha_fwd(
        q, k, v, 0.0, scale, causal, left, right, 0, return_lse, False, None, None, None, bias, slopes, *further
    )


def _padded(*tensors):
    return [torch.nn.functional.pad(one, [0, -one.shape[-1] % 8]) for one in tensors]


def flash_attn_func(
    q,
    k,
    v,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1, 0),
    bias=None,
    alibi_slopes=None,
    deterministic=True,
    return_lse=False,
):
    """The public function."""
    if not ENABLE_CK:
        from aiter.ops.triton.attention.mha import flash_attn_func as of_triton

        return of_triton(q, k, v, softmax_scale=softmax_scale, causal=causal, return_lse=return_lse)
    wide = v.shape[-1]
    q, k, v = _padded(q, k, v)
    out, lse, *_ = _flash_attn_forward(
        q, k, v, softmax_scale, causal, window_size, return_lse, bias=bias, slopes=alibi_slopes
    )
    return (out[..., :wide], lse) if return_lse else out[..., :wide]


def flash_attn_fp8_pertensor_func(
    q, k, v, q_descale, k_descale, v_descale, causal=False, window_size=(-1, -1, 0), softmax_scale=None, sink_ptr=None
):
    """The public function for fp8."""
    descales = (q_descale, k_descale, v_descale)
    return _flash_attn_forward(q, k, v, softmax_scale, causal, window_size, False, descales=descales)[0]


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    min_seqlen_q=0,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1, 0),
    alibi_slopes=None,
    return_lse=False,
    block_table=None,
):
    """The public packed function; assembly has no rule about the number of queries here."""
    if not FLYDSL:
        raise ModuleNotFoundError("No module named 'flydsl'", name="flydsl")
    assert block_table is None
    left, right = (-1 if size >= max_seqlen_k else int(size) for size in window_size[:2])
    given = (q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0, 0.0, softmax_scale, 0.0, False)
    mask = (causal, left, right)
    if _asm(q, k, v, left > 0 or right > 0, alibi_slopes is not None):
        found = fmha_v3_varlen_fwd(*given, *mask, return_lse, False, 1, None, None, None, alibi_slopes)
    else:
        found = mha_varlen_fwd(*given, *mask, 0, return_lse, False, alibi_slopes=alibi_slopes)
    return (found[0], found[1]) if return_lse else found[0]


def _assembly_backward(q, deterministic):
    first, last = (72, 128) if ARCH == "gfx950" else (64, 192)
    return ARCH in FP8 and not deterministic and first <= q.shape[-1] <= last


def _flash_attn_backward(
    dout,
    q,
    k,
    v,
    out,
    softmax_lse,
    dq,
    dk,
    dv,
    dbias,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left,
    window_size_right,
    bias,
    alibi_slopes,
    deterministic,
    rng_state=None,
    is_v3_atomic_fp32=True,
    how_v3_bf16_cvt=1,
):
    given = (dout, q, k, v, out, softmax_lse, dropout_p, softmax_scale, causal, window_size_left, window_size_right)
    if _assembly_backward(q, deterministic) and q.shape[1] > 16:
        fmha_v3_bwd(
            *given, deterministic, is_v3_atomic_fp32, how_v3_bf16_cvt, dq.zero_(), dk, dv, None, rng_state, None
        )
    else:
        mha_bwd(*given, deterministic, dq, dk, dv, dbias, bias, alibi_slopes, rng_state, None)
    return softmax_lse


def _flash_attn_varlen_backward(
    dout,
    q,
    k,
    v,
    out,
    softmax_lse,
    dq,
    dk,
    dv,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left,
    window_size_right,
    alibi_slopes,
    deterministic,
    rng_state=None,
    is_v3_atomic_fp32=True,
    how_v3_bf16_cvt=1,
    zero_tensors=False,
):
    given = (dout, q, k, v, out, softmax_lse, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p)
    mask = (softmax_scale, zero_tensors, causal, window_size_left, window_size_right, deterministic)
    if _assembly_backward(q, deterministic):
        fmha_v3_varlen_bwd(*given, *mask, is_v3_atomic_fp32, how_v3_bf16_cvt, dq, dk, dv, None, rng_state, None)
    else:
        mha_varlen_bwd(*given, *mask, dq, dk, dv, alibi_slopes, rng_state, None)
    return softmax_lse
