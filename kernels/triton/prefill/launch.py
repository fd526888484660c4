"""Shared by the launchers of our flash attention kernels: argument checks, and constants that follow from arguments.

Names and values only, no Triton: the declarations of code objects use the same constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.configs import pad_size
from kernels.triton.triton_backend import is_interpreted
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

HEAD_DIM_MAX = 256
"""No configuration serves a larger one. Compiled for gfx942 by Triton 3.9 in f16, the tiles of 256 (64 x 32, 8 warps)
spill 16 VGPRs at 257 and 224 at 512."""
LDS_BYTES = 65_536
"""LDS of a workgroup on gfx942 ("LDS (Shared Memory): 64KB per workgroup", MI300X report of 2025-12-30)."""

FLOATS = ("float16", "bfloat16", "float32")
FLOATS_8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
INT8_MODES = ("", "pv16", "kv8")
"""How int8 keys and values are multiplied, see `prefill_forward`."""

PADDED_KEYS = 16
"""Transposed values are padded to a multiple of this many keys: the bytes of the widest load."""


@dataclass(frozen=True)
class PrefillSizes:
    """Sizes of one dense launch."""

    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_kv: int
    head_dim: int
    head_dim_v: int


def split_head_dim(head_dim: int, least: int = 16) -> tuple[int, int]:
    """Returns (lead, tail), powers of two of at least `least` that cover a head dimension; tail is 0 for one part.

    There are two parts if they save at least a quarter of one part's size: 192 is 128 + 64 instead of 256, 160 is
    128 + 32. Below 64 a separate product for the narrow tail is not worthwhile.
    """
    whole = max(least, pad_size(head_dim))
    lead = whole // 2
    if lead < 64 or head_dim <= lead:
        return whole, 0
    tail = max(least, pad_size(head_dim - lead))
    return (lead, tail) if 4 * (lead + tail) <= 3 * whole else (whole, 0)


def head_dim_reasons(head_dim: int, head_dim_v: int) -> list[str]:
    """Returns why the kernels do not take D or Dv, in one reason; [] if they do.

    A tile of Q is kept in LDS, D padded to the larger of the two parts of `split_head_dim`: this is what Triton 3.9
    reports in f16 for gfx942 at every tile compiled, 16 to 128 rows at 256, 320 and 512.
    """
    above = f"is above {HEAD_DIM_MAX}, the largest this kernel has tiles for"
    if head_dim > HEAD_DIM_MAX:
        padded = split_head_dim(head_dim)[0]
        return [
            f"head_dim {head_dim} {above}: 128 rows of Q in 16 bits take 128 x {padded} x 2 = {256 * padded:,} bytes "
            f"of LDS, a workgroup of gfx942 has {LDS_BYTES:,}, and 64 rows spill registers"
        ]
    return [f"head_dim_v {head_dim_v} {above}"] if head_dim_v > HEAD_DIM_MAX else []


def multiplies_8_bits(dtype: str, int8: str) -> bool:
    """Returns whether values of a torch dtype ('int8', 'float8_e4m3fn' ...) are multiplied in 8 bits, so transposed."""
    return dtype in FLOATS_8 or (dtype == "int8" and not int8)


def dtype_name(tensor: torch.Tensor) -> str:
    """Returns the name of the tensor's dtype without 'torch.', e.g. 'float16'."""
    return str(tensor.dtype).removeprefix("torch.")


def output_dtype(q: torch.Tensor, asked: torch.dtype | None = None) -> torch.dtype:
    """Returns the dtype of attention's result for q: q's own; for 8 bits the one `asked` for, or bf16. Raises
    UsageError for another one than q's own, and for 8 bits unless it is one of FLOATS."""
    import torch

    own = q.dtype if q.element_size() > 1 else asked or torch.bfloat16
    if asked not in (None, own) or str(own).removeprefix("torch.") not in FLOATS:
        allowed = dtype_name(q) if q.element_size() > 1 else ", ".join(FLOATS)
        raise UsageError(f"out_dtype is {asked} for q in {dtype_name(q)}; it must be None or {allowed}")
    return own


def transposed_values(v: torch.Tensor) -> torch.Tensor:
    """Returns v (B, Skv, Hk, Dv) for 8-bit products: contiguous (B, Hk, Dv, S), S being Skv padded by zeros to 16
    keys."""
    import torch

    batch, seq_kv, kv_heads, head_dim_v = v.shape
    length = -(-seq_kv // PADDED_KEYS) * PADDED_KEYS
    # Moved as bytes: not every operator knows every 8-bit format.
    out = torch.zeros((batch, kv_heads, head_dim_v, length), dtype=torch.uint8, device=v.device)
    out[..., :seq_kv] = v.view(torch.uint8).permute(0, 2, 3, 1)
    return out.view(v.dtype)


def head_dims(head_dim: int, head_dim_v: int, element_bytes: int = 2, int8: str = "") -> dict[str, int]:
    """Returns name -> value of the kernel's constants for two head dimensions and keys of `element_bytes`.

    Products of 8-bit elements are sums over at least 32 of them (PTX manual, wgmma and mma shapes of .s8 and .e4m3).
    int8 that is widened before a product gets 64: with 16 columns Triton 3.6 on sm_90 multiplied unwritten memory.
    """
    narrow = 32 if element_bytes == 1 else 16
    lead, tail = split_head_dim(head_dim, 64 if int8 == "kv8" else narrow)
    lead_v, tail_v = split_head_dim(head_dim_v, 64 if int8 in ("kv8", "pv16") else 16)
    return {
        "HEAD_DIM": head_dim,
        "HEAD_DIM_V": head_dim_v,
        "BLOCK_D": lead,
        "TAIL_D": tail,
        "BLOCK_DV": lead_v,
        "TAIL_DV": tail_v,
    }


def kernel_constants(
    shape: PrefillSizes,
    q: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    window: int,
    int8: str,
    bias: torch.Tensor | None,
    config: Mapping[str, Any],
) -> dict[str, object]:
    """Returns name -> value of the constants of a dense launch that its configuration does not set.

    Rows are guarded against having seen no key yet if a window may hide the first tile from them, if there are fewer
    keys than causal queries, and if a bias may be -inf.
    """
    import torch

    stored = dtype_name(v)
    wide = q.dtype == torch.bfloat16 or v.element_size() == 1
    return {
        "CAUSAL": causal,
        "WINDOWED": window > 0,
        "EVEN_N": shape.seq_kv % config["BLOCK_N"] == 0,
        "GUARDED": window > 0 or (causal and shape.seq_kv < shape.seq_q) or bias is not None,
        **head_dims(shape.head_dim, shape.head_dim_v, v.element_size(), int8),
        "INT8_WEIGHTS": stored == "int8" and not int8,
        "V_TRANSPOSED": multiplies_8_bits(stored, int8),
        "PRECISION": "ieee",
        "IN_FP32": wide and is_interpreted(q),
    }


def check_dense(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    window: int,
    int8: str,
    descales: Sequence[torch.Tensor],
    alibi_slopes: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> PrefillSizes:
    """Returns the sizes of a dense launch. Raises UsageError naming an invalid argument, its value and limits."""
    check_dtypes(q, k, v, int8)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4 or not tensor.is_contiguous():
            raise UsageError(f"{name} must be contiguous with 4 dimensions, got shape {tuple(tensor.shape)}")
    (batch, seq_q, heads, head_dim), (seq_kv, kv_heads) = q.shape, k.shape[1:3]
    transposed = multiplies_8_bits(dtype_name(v), int8)
    head_dim_v = v.shape[2 if transposed else 3]
    length = -(-seq_kv // PADDED_KEYS) * PADDED_KEYS
    wanted_v = (batch, kv_heads, head_dim_v, length) if transposed else (batch, seq_kv, kv_heads, head_dim_v)
    check_shape("k", k, (batch, seq_kv, kv_heads, head_dim))
    check_shape("v", v, wanted_v)
    check_heads(heads, kv_heads, head_dim, head_dim_v)
    check_window(window, causal)
    check_descales(k, int8, descales)
    check_added(alibi_slopes, bias, (heads, seq_q, seq_kv))
    return PrefillSizes(batch, heads, kv_heads, seq_q, seq_kv, head_dim, head_dim_v)


def check_dtypes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, int8: str) -> None:
    """Raises UsageError unless q, k and v have dtypes that the mode `int8` ('' for none) takes together."""
    if int8 not in INT8_MODES:
        raise UsageError(f"int8 is {int8!r}; it must be one of {', '.join(map(repr, INT8_MODES))}")
    names = tuple(map(dtype_name, (q, k, v)))
    allowed: tuple[tuple[str, str, str], ...]
    if int8 == "kv8":
        allowed = tuple((name, "int8", "int8") for name in FLOATS)
    elif int8:
        allowed = (("int8", "int8", "int8"),)
    else:
        allowed = tuple((name, name, name) for name in (*FLOATS, *FLOATS_8, "int8"))
    if names not in allowed:
        raise UsageError(
            f"q, k and v are {', '.join(names)}; with int8={int8!r} they must be "
            + " or ".join(", ".join(dict.fromkeys(each)) for each in allowed)
        )


def check_heads(heads: int, kv_heads: int, head_dim: int, head_dim_v: int) -> None:
    """Raises UsageError if k's number of heads does not divide q's, and for head dimensions that are not 1 to 256."""
    if kv_heads < 1 or heads % kv_heads:
        raise UsageError(f"q has {heads} heads and k {kv_heads}; those of q must be a multiple of those of k")
    for name, size in (("q", head_dim), ("v", head_dim_v)):
        if not 1 <= size <= HEAD_DIM_MAX:
            raise UsageError(f"{name} has head dimension {size}; it must be 1 to {HEAD_DIM_MAX}")


def check_window(window: int, causal: bool) -> None:
    """Raises UsageError for a negative window, and for one without a causal mask."""
    if window < 0 or (window and not causal):
        raise UsageError(f"window is {window} with causal={causal}; it must be 0, or with causal the most keys per row")


def check_added(alibi_slopes: torch.Tensor | None, bias: torch.Tensor | None, sizes: tuple[int, int, int]) -> None:
    """Raises UsageError unless at most one of both is given, slopes are fp32 (H,), and a bias is contiguous, of a float
    type, of the shape `sizes`, which begins with H."""
    if alibi_slopes is not None and bias is not None:
        raise UsageError("bias and alibi_slopes were both given; give at most one")
    if alibi_slopes is not None:
        check_shape("alibi_slopes", alibi_slopes, sizes[:1])
        if dtype_name(alibi_slopes) != "float32":
            raise UsageError(f"alibi_slopes are {dtype_name(alibi_slopes)}; they must be float32")
    if bias is not None:
        check_shape("bias", bias, sizes)
        if not bias.is_contiguous() or dtype_name(bias) not in FLOATS:
            raise UsageError(f"bias must be contiguous, one of {', '.join(FLOATS)}, got {dtype_name(bias)}")


def check_descales(k: torch.Tensor, int8: str, descales: Sequence[torch.Tensor]) -> None:
    """Raises UsageError unless there are as many fp32 scales (1,) as keys of this dtype need in the mode `int8`."""
    wanted = 0 if k.element_size() > 1 else 2 if int8 == "kv8" else 3
    if len(descales) != wanted:
        of = {0: "none", 2: "those of k and v", 3: "those of q, k and v"}[wanted]
        raise UsageError(f"descales holds {len(descales)}; {dtype_name(k)} keys with int8={int8!r} need {of}")
    for index, scale in enumerate(descales):
        if tuple(scale.shape) != (1,) or dtype_name(scale) != "float32":
            raise UsageError(
                f"descales[{index}] is {dtype_name(scale)} of shape {tuple(scale.shape)}; it must be float32 (1,)"
            )


def check_shape(name: str, tensor: torch.Tensor, wanted: tuple[int, ...]) -> None:
    """Raises UsageError, naming the tensor, unless it has the wanted shape."""
    if tuple(tensor.shape) != wanted:
        raise UsageError(f"{name} has shape {tuple(tensor.shape)}; it must be {wanted}")
