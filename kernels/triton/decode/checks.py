"""Argument checks of the flash decoding launcher: shapes, dtypes and numbers that the host knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

QUERIES_MAX = 8
ROWS_MAX = 64
"""Most rows of one program: query heads per K/V head times tokens."""
HEAD_DIM_MAX = 256
"""Above it the accumulator of 64 rows does not fit the registers of one program."""
PAGE_MIN = 16


def require_arguments(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor | None,
    sinks: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    cap: float,
    window: int,
) -> None:
    """Raises UsageError naming the first invalid argument of `flash_decode` and what is allowed; reads no device
    memory."""
    import torch

    named = {"q": q, "k": k, "v": v}
    for name, tensor in named.items():
        _require_argument(tensor.dim() == 4 and tensor.is_contiguous(), name, tensor, "contiguous, of four dimensions")
    batch, queries, heads, head_dim = q.shape
    kv_heads = k.shape[2]
    _require_argument(q.dtype in (torch.float16, torch.bfloat16, torch.float32), "q", q, "float16, bfloat16 or float32")
    _require_argument(queries <= QUERIES_MAX, "q", q, f"(B, Q, H, D) with Q of at most {QUERIES_MAX}")
    _require_argument(head_dim <= HEAD_DIM_MAX, "q", q, f"(B, Q, H, D) with D of at most {HEAD_DIM_MAX}")
    _require_argument(k.shape[3] == head_dim, "k", k, f"(..., Hk, {head_dim}), the head dimension of q")
    _require_argument(heads % kv_heads == 0, "k", k, f"(..., Hk, D) with Hk dividing the {heads} heads of q")
    rows = heads // kv_heads * queries
    _require_argument(rows <= ROWS_MAX, "q", q, f"such that H / Hk * Q is at most {ROWS_MAX}, it is {rows}")
    _require_argument(v.shape == k.shape and v.dtype == k.dtype, "v", v, f"{k.dtype} {tuple(k.shape)}, as k")
    _require_vector("seq_lens", seq_lens, torch.int32, batch)
    if block_table is None:
        _require_argument(k.shape[0] == batch, "k", k, f"({batch}, Skv, Hk, D) without block_table")
    else:
        fits = block_table.dim() == 2 and block_table.shape[0] == batch and block_table.dtype == torch.int32
        _require_argument(fits and block_table.is_contiguous(), "block_table", block_table, f"int32 ({batch}, pages)")
        page = k.shape[1]
        _require_argument(
            page >= PAGE_MIN and not page & (page - 1), "k", k, "of pages of a power of two of at least 16 keys"
        )
    if sinks is not None:
        _require_vector("sinks", sinks, torch.float32, heads)
    _require_scales(q, k, k_scale, v_scale)
    if not cap >= 0.0:
        raise UsageError(f"cap must be 0 for none, or positive, got {cap}")
    if window < 0:
        raise UsageError(f"window must be 0 for none, or positive, got {window}")


def _require_scales(
    q: torch.Tensor, k: torch.Tensor, k_scale: torch.Tensor | None, v_scale: torch.Tensor | None
) -> None:
    import torch

    scales = {"k_scale": k_scale, "v_scale": v_scale}
    if k.element_size() > 1:
        _require_argument(k.dtype == q.dtype, "k", k, f"{q.dtype}, as q, or of an 8-bit dtype with scales")
        for name, scale in scales.items():
            if scale is not None:
                raise UsageError(f"{name} is given for keys of {k.dtype}; only 8-bit caches have scales")
        return
    for name, scale in scales.items():
        if scale is None:
            raise UsageError(f"{name} is missing: a cache of {k.dtype} needs it, float32 (1,)")
        _require_vector(name, scale, torch.float32, 1)


def _require_vector(name: str, tensor: torch.Tensor, dtype: torch.dtype, size: int) -> None:
    fits = tensor.shape == (size,) and tensor.dtype == dtype and tensor.is_contiguous()
    _require_argument(fits, name, tensor, f"contiguous {dtype} ({size},)")


def _require_argument(holds: bool, name: str, tensor: torch.Tensor, allowed: str) -> None:
    if not holds:
        raise UsageError(f"{name} must be {allowed}, got {tensor.dtype} {tuple(tensor.shape)}")
