"""What aiter's compiled attention gives, computed by the plain functions of the workloads, from arguments by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.base import TORCH_DTYPES
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.varlen import Varlen
from pytest_attnperf.workloads.varlen_backward import VarlenBackward

DESCALES = ("q_descale", "k_descale", "v_descale")


def forward(values: Mapping[str, Any]) -> Any:
    """(out, lse, dropout's mask, its state) of a dense or packed forward function."""
    packed = "cu_seqlens_k" in values
    left = values["window_size_left"]
    lse = bool(values["return_softmax_lse"])
    unpadded = round(values["softmax_scale"] ** -2)
    q, k, v = values["q"][..., :unpadded], values["k"][..., :unpadded], values["v"]
    common: dict[str, Any] = {
        "heads": q.shape[-2],
        "kv_heads": k.shape[-2],
        "head_dim": unpadded,
        "dtype": _dtype(q),
        "causal": values["is_causal"],
        "window": left + 1 if left >= 0 else 0,
        "lse": lse,
        "alibi": values.get("alibi_slopes") is not None,
    }
    assert (values["window_size_right"] == 0) == (left >= 0)
    further = [values["alibi_slopes"]] if common["alibi"] else []
    if packed:
        offsets = [values["cu_seqlens_q"], values["cu_seqlens_k"]]
        assert all(one.dtype == torch.int32 for one in offsets)
        workload: Any = Varlen(seqs_q=_seqs(offsets[0]), seqs_kv=_seqs(offsets[1]), **common)
        assert (values["max_seqlen_q"], values["max_seqlen_k"]) == (workload.max_q, workload.max_kv)
        return _four(workload.plain((q, k, v, *offsets, *further)), lse)
    bias, scales = values.get("bias"), [values[name] for name in DESCALES if values.get(name) is not None]
    shape = {"batch": q.shape[0], "seq_q": q.shape[1], "seq_kv": k.shape[1], "head_dim_v": v.shape[-1]}
    workload = Prefill(**shape, bias=bias is not None, **common)
    return _four(workload.plain((q, k, v, *scales, *further, *([] if bias is None else [bias[None]]))), lse)


def backward(values: Mapping[str, Any]) -> Any:
    """(dq, dk, dv, rows' sums) of a dense or packed backward function; written into those given, as aiter does."""
    q, k, v, dout, out = (values[name] for name in ("q", "k", "v", "dout", "out"))
    assert values["deterministic"] is False
    assert values["rng_state"].dtype == torch.int64
    common: dict[str, Any] = {
        "heads": q.shape[-2],
        "kv_heads": k.shape[-2],
        "head_dim": q.shape[-1],
        "dtype": _dtype(q),
        "causal": values["is_causal"],
    }
    if "cu_seqlens_k" in values:
        offsets = [values["cu_seqlens_q"], values["cu_seqlens_k"]]
        workload: Any = VarlenBackward(seqs_q=_seqs(offsets[0]), seqs_kv=_seqs(offsets[1]), **common)
        found = workload.plain((q, k, v, dout, out, values["softmax_lse"], *offsets))
    else:
        workload = Backward(batch=q.shape[0], seq_q=q.shape[1], seq_kv=k.shape[1], **common)
        found = workload.plain((q, k, v, dout, out, values["softmax_lse"]))
    for name in found:
        given = values.get(name)
        if given is not None:
            found[name] = given.copy_(found[name])
    return (*(found[name] for name in ("dq", "dk", "dv")), torch.zeros(1))


def result(function: str, values: Mapping[str, Any]) -> Any:
    """What the low-level function of this name gives."""
    if function == "mha_fwd_native_splitkv":
        lse = values["return_lse"]
        return forward({**_unmasked(values), "return_softmax_lse": lse})[:2]
    if function == "fmha_fwd_with_sink_asm":
        return forward({**_unmasked(values), "return_softmax_lse": True})[:2]
    if function.startswith("fmha_fwd_bf16_opus"):
        return forward({**_unmasked(values), "return_softmax_lse": False})[0]
    return (backward if function.endswith("bwd") else forward)(values)


def _unmasked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Of functions that know no window, under the names of those that do."""
    causal = values.get("is_causal", values.get("causal"))
    return {**values, "is_causal": causal, "window_size_left": -1, "window_size_right": -1}


def _four(outputs: Any, lse: bool) -> tuple[torch.Tensor, ...]:
    empty = torch.empty(0)
    return outputs["out"], outputs["lse"] if lse else empty, empty, empty


def _dtype(tensor: torch.Tensor) -> str:
    """The workload's name of a torch dtype."""
    return next(name for name, torch_name in TORCH_DTYPES.items() if getattr(torch, torch_name) == tensor.dtype)


def _seqs(offsets: torch.Tensor) -> tuple[int, ...]:
    return tuple(offsets.diff().tolist())
