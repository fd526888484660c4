"""Argument checks of the staged pipeline's launchers, and the step along a head dimension. Imports no Triton."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernels.configs import pad_size
from kernels.triton.launch_checks import FLOATS
from kernels.triton.prefill.launch import HEAD_DIM_MAX, dtype_name
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch


KEYS_MAX = (1 << 31) // 256
"""Most keys: positions inside a tile have 32 bits, and no tile has more than 256 rows."""


def head_step(head_dim: int, block: int) -> int:
    """Returns how many dimensions of a head a tile has: `block`, at most the padded head dimension."""
    return min(block, pad_size(head_dim))


def require_matrix(launcher: str, name: str, matrix: torch.Tensor, dtypes: Sequence[str]) -> tuple[int, int, int, int]:
    """Returns (B, H, Sq, Skv) of scores or weights. Raises UsageError unless contiguous, not empty, of `dtypes`, and
    with at most KEYS_MAX keys."""
    if matrix.dim() != 4 or not matrix.numel():
        raise UsageError(
            f"{launcher}: {name} must be (B, H, Sq, Skv) with at least one element, got shape {tuple(matrix.shape)}"
        )
    if not matrix.is_contiguous():
        raise UsageError(
            f"{launcher}: {name} must be contiguous, got strides {matrix.stride()} of shape {tuple(matrix.shape)}; "
            "call .contiguous() on it"
        )
    if dtype_name(matrix) not in dtypes:
        raise UsageError(f"{launcher}: {name} must be {' or '.join(dtypes)}, got {dtype_name(matrix)}")
    batch, heads, seq_q, seq_kv = matrix.shape
    require_keys_in_range(launcher, seq_kv)
    return batch, heads, seq_q, seq_kv


def require_keys_in_range(launcher: str, seq_kv: int) -> None:
    """Raises UsageError for more keys than 32-bit positions inside a tile can address."""
    if seq_kv > KEYS_MAX:
        raise UsageError(f"{launcher}: Skv is {seq_kv}; it must be at most {KEYS_MAX}, whose tiles 32 bits can address")


def require_attention(launcher: str, q: torch.Tensor, k: torch.Tensor) -> tuple[int, int, int, int]:
    """Returns (B, Sq, H, D) of q. Raises UsageError, which names the argument, unless k (B, Skv, Hk, D) fits."""
    _require_tokens(launcher, "q", q)
    _require_tokens(launcher, "k", k)
    batch, seq_q, heads, head_dim = q.shape
    _require_keys(launcher, "k", k, like=q, wanted=(batch, k.shape[1], k.shape[2], head_dim), heads=heads)
    require_keys_in_range(launcher, k.shape[1])
    return batch, seq_q, heads, head_dim


def require_values(launcher: str, weights: torch.Tensor, v: torch.Tensor) -> tuple[int, int, int, int]:
    """Returns (B, H, Sq, Skv) of weights. Raises UsageError, naming the argument, unless v (B, Skv, Hk, D) fits."""
    batch, heads, seq_q, seq_kv = require_matrix(launcher, "weights", weights, FLOATS)
    _require_tokens(launcher, "v", v)
    _require_keys(launcher, "v", v, like=weights, wanted=(batch, seq_kv, *v.shape[2:]), heads=heads)
    return batch, heads, seq_q, seq_kv


def _require_tokens(launcher: str, name: str, tensor: torch.Tensor) -> None:
    if tensor.dim() != 4 or not tensor.numel():
        raise UsageError(
            f"{launcher}: {name} must be (batch, tokens, heads, head dimension) with at least one element, got shape "
            f"{tuple(tensor.shape)}"
        )
    if dtype_name(tensor) not in FLOATS:
        raise UsageError(f"{launcher}: {name} must be one of {', '.join(FLOATS)}, got {dtype_name(tensor)}")
    if (head_dim := tensor.shape[3]) > HEAD_DIM_MAX:
        raise UsageError(f"{launcher}: {name} has head dimension {head_dim}; it must be 1 to {HEAD_DIM_MAX}")
    if tensor.stride(3) != 1:
        raise UsageError(
            f"{launcher}: {name} must have the elements of a head beside each other, got strides {tensor.stride()}; "
            "call .contiguous() on it"
        )


def _require_keys(
    launcher: str, name: str, keys: torch.Tensor, *, like: torch.Tensor, wanted: Sequence[int], heads: int
) -> None:
    for what, seen, allowed in (
        ("shape", tuple(keys.shape), tuple(wanted)),
        ("dtype", keys.dtype, like.dtype),
        ("device", keys.device, like.device),
    ):
        if seen != allowed:
            raise UsageError(f"{launcher}: {name} must have {what} {allowed}, got {seen}")
    if heads % keys.shape[2]:
        raise UsageError(f"{launcher}: {name} has {keys.shape[2]} heads; they must divide the {heads} of the rows")
