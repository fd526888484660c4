"""Shared by the launchers of our flash attention kernels over packed sequences: argument checks, and the layout of
8-bit values.

Names and values only, no Triton: the declarations of code objects use the same constants.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.triton.prefill.launch import (
    PADDED_KEYS,
    check_added,
    check_descales,
    check_dtypes,
    check_heads,
    check_shape,
    check_window,
    dtype_name,
    head_dims,
    multiplies_8_bits,
)
from kernels.triton.triton_backend import is_interpreted
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class VarlenSizes:
    """Sizes of one launch over packed sequences.

    total_q       Tq, rows of all sequences
    value_keys    keys of an element of transposed values, see `transposed_values`; None where they are not transposed
    bias_sizes    rows and keys of a head's bias; (None, None) without one
    """

    sequences: int
    heads: int
    kv_heads: int
    total_q: int
    head_dim: int
    head_dim_v: int
    value_keys: int | None
    bias_sizes: tuple[int | None, int | None]


def count_value_keys(total_k: int, sequences: int) -> int:
    """Returns the number of keys that transposed values have room for, gaps between the sequences included."""
    return (total_k // PADDED_KEYS + sequences) * PADDED_KEYS


def transposed_values(v: torch.Tensor, cu_seqlens_k: torch.Tensor) -> torch.Tensor:
    """Returns v (Tk, Hk, Dv) for 8-bit products: contiguous (Hk, Dv, `count_value_keys`), the keys of an element beside
    each other, and zeros in the gaps.

    Sequence b, which begins at key f of all, begins at (f // 16 + b) * 16: a multiple of 16 for wide loads, behind the
    end of the sequence before it, and known without a sum over the sequences before it.
    """
    import torch

    (total_k, kv_heads, head_dim_v), sequences = v.shape, cu_seqlens_k.shape[0] - 1
    key = torch.arange(total_k, device=v.device)
    ends = cu_seqlens_k[1:].long()
    sequence = torch.searchsorted(ends, key, right=True)
    first = cu_seqlens_k.long()[sequence]
    place = (first // PADDED_KEYS + sequence) * PADDED_KEYS + key - first
    # Moved as bytes: not every operator knows every 8-bit format.
    out = torch.zeros((kv_heads, head_dim_v, count_value_keys(total_k, sequences)), dtype=torch.uint8, device=v.device)
    out[..., place] = v.view(torch.uint8).permute(1, 2, 0)
    return out.view(v.dtype)


def varlen_constants(
    sizes: VarlenSizes,
    q: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    window: int,
    int8: str,
    bias: torch.Tensor | None,
) -> dict[str, object]:
    """Returns name -> value of the constants of a launch over packed sequences that its configuration does not set.

    Rows are guarded against having seen no key yet under a causal mask, because lengths are not known, and if a bias
    may be -inf.
    """
    import torch

    stored = dtype_name(v)
    wide = q.dtype == torch.bfloat16 or v.element_size() == 1
    return {
        "CAUSAL": causal,
        "WINDOWED": window > 0,
        "GUARDED": causal or bias is not None,
        **head_dims(sizes.head_dim, sizes.head_dim_v, v.element_size(), int8),
        "INT8_WEIGHTS": stored == "int8" and not int8,
        "V_TRANSPOSED": multiplies_8_bits(stored, int8),
        "PRECISION": "ieee",
        "IN_FP32": wide and is_interpreted(q),
    }


def check_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: tuple[torch.Tensor, torch.Tensor],
    longest: tuple[int, int],
    causal: bool,
    window: int,
    int8: str,
    descales: Sequence[torch.Tensor],
    alibi_slopes: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> VarlenSizes:
    """Returns the sizes of a launch. Raises UsageError naming the argument of `varlen_forward`, its value and what is
    allowed; reads no tensor. `longest` are max_q and max_kv."""
    check_dtypes(q, k, v, int8)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 3 or not tensor.is_contiguous():
            raise UsageError(f"{name} must be contiguous with 3 dimensions, got shape {tuple(tensor.shape)}")
    (total_q, heads, head_dim), (total_k, kv_heads, _) = q.shape, k.shape
    _check_offsets(*cu_seqlens)
    sequences = cu_seqlens[0].shape[0] - 1
    transposed = multiplies_8_bits(dtype_name(v), int8)
    head_dim_v = v.shape[1 if transposed else 2]
    value_keys = count_value_keys(total_k, sequences)
    check_shape("k", k, (total_k, kv_heads, head_dim))
    check_shape("v", v, (kv_heads, head_dim_v, value_keys) if transposed else (total_k, kv_heads, head_dim_v))
    check_heads(heads, kv_heads, head_dim, head_dim_v)
    check_window(window, causal)
    check_descales(k, int8, descales)
    for name, of, length, rows in (("max_q", "q", longest[0], total_q), ("max_kv", "k", longest[1], total_k)):
        if not 1 <= length <= rows:
            raise UsageError(f"{name} is {length}; it must be 1 to {rows}, the rows of {of}")
    check_added(alibi_slopes, bias, (heads, *longest))
    return VarlenSizes(
        sequences,
        heads,
        kv_heads,
        total_q,
        head_dim,
        head_dim_v,
        value_keys if transposed else None,
        (None, None) if bias is None else longest,
    )


def _check_offsets(cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor) -> None:
    for name, tensor in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if dtype_name(tensor) != "int32" or tensor.dim() != 1 or tensor.shape[0] < 2:
            raise UsageError(
                f"{name} is {dtype_name(tensor)} of shape {tuple(tensor.shape)}; it must be int32 (sequences + 1,)"
            )
    if cu_seqlens_q.shape != cu_seqlens_k.shape:
        raise UsageError(
            f"cu_seqlens_k has {cu_seqlens_k.shape[0]} entries and cu_seqlens_q {cu_seqlens_q.shape[0]}; they must "
            "have the same number"
        )


def check_lengths(name: str, cu_seqlens: torch.Tensor, total: int) -> int:
    """Returns the length of the longest sequence of cumulative lengths. It waits for the device: call it before timing.

    Raises UsageError naming `name` unless they start at 0, end at `total` and every sequence has a row.
    """
    ends = [int(end) for end in cu_seqlens.tolist()]
    lengths = [end - begin for begin, end in itertools.pairwise(ends)]
    if ends[0] != 0 or ends[-1] != total:
        raise UsageError(f"{name} goes from {ends[0]} to {ends[-1]}; it must go from 0 to {total}, the rows it divides")
    for index, length in enumerate(lengths):
        if length < 1:
            raise UsageError(f"{name} gives sequence {index} a length of {length}; it must be at least 1")
    return max(lengths)
