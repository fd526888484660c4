"""Launches the backward pass of attention: delta, then dK and dV, then dQ, each a kernel of its own.

Dense and packed sequences share the kernels; what differs is where a sequence begins and how long it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import triton

from kernels.configs import pad_size
from kernels.triton.backward.delta import backward_delta_kernel
from kernels.triton.backward.dkv import backward_dkv_kernel
from kernels.triton.backward.dq import backward_dq_kernel
from kernels.triton.triton_backend import is_interpreted
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

HEAD_DIM_MAX = 256
"""Above it the two accumulators of only 16 keys do not fit the registers of one program."""
DTYPES = ("float16", "bfloat16", "float32")

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Packed:
    """Offsets and longest lengths of packed sequences.

    cu_seqlens_q, cu_seqlens_k    offsets of the sequences in the packed rows, (B + 1,) int32 on the device
    max_q, max_kv                 longest sequence, known to the host, which computes the grid from them
    """

    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    max_q: int
    max_kv: int


@dataclass(frozen=True)
class Geometry:
    """Sizes for the kernels; for packed sequences seq_q and seq_kv are those of the longest."""

    batch: int
    seq_q: int
    seq_kv: int
    heads: int
    kv_heads: int
    head_dim: int
    stats_stride: int
    packed: Packed | None
    v_transposed: bool = False

    @property
    def common_arguments(self) -> tuple[Any, ...]:
        """The arguments that the dK/dV and the dQ kernel share, in order: offsets, sizes, stride and scale."""
        offsets = (self.packed.cu_seqlens_q, self.packed.cu_seqlens_k) if self.packed else (None, None)
        scale = 1.0 / math.sqrt(self.head_dim)
        return (*offsets, self.heads, self.kv_heads, self.seq_q, self.seq_kv, self.stats_stride, scale)


def flash_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    configs: Mapping[str, Config],
    packed: Packed | None = None,
    v_transposed: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Computes (dq, dk, dv), with the shapes and dtypes of q, k and v.

    q, dout, out    (B, Sq, H, D), contiguous, all of one of fp16, bf16, fp32
    k, v            (B, Skv, Hk, D), Hk divides H: query head h reads key head h // (H / Hk)
    lse             (B, H, Sq) fp32, the natural log-sum-exp of the scaled scores, -inf where a row sees no key
    causal          bottom-right aligned: query row i sees key j iff j <= i + Skv - Sq
    configs         'backward_delta', 'backward_dkv', 'backward_dq' -> the kernel's constants and compiler's options
    packed          for packed sequences, whose tensors have no B: q (Tq, H, D), k (Tk, Hk, D), lse (H, Tq)
    v_transposed    v, and so dv, is (B, Hk, D, Skv), contiguous; not with `packed`

    Raises UsageError naming the argument for other shapes, dtypes or memory layouts.
    """
    geometry = make_geometry(q, k, v, dout, out, lse, packed, v_transposed=v_transposed)
    delta = launch_delta(dout, out, configs["backward_delta"])
    dk, dv = launch_dkv(q, k, v, dout, lse, delta, geometry, causal=causal, config=configs["backward_dkv"])
    dq = launch_dq(q, k, v, dout, lse, delta, geometry, causal=causal, config=configs["backward_dq"])
    return dq, dk, dv


def launch_delta(dout: torch.Tensor, out: torch.Tensor, config: Config) -> torch.Tensor:
    """Returns rowsum(dout * out) in fp32: (B, S, H, D) -> (B, H, S), and packed (T, H, D) -> (H, T)."""
    import torch

    *batches, seq, heads, head_dim = dout.shape
    delta = torch.empty((*batches, heads, seq), dtype=torch.float32, device=dout.device)
    grid = (math.prod(batches) * heads, triton.cdiv(seq, config["BLOCK_M"]))
    backward_delta_kernel[grid](dout, out, delta, heads, seq, HEAD_DIM=head_dim, BLOCK_D=pad_size(head_dim), **config)
    return delta


def launch_dkv(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    geometry: Geometry,
    *,
    causal: bool,
    config: Config,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (dk, dv), of k's and v's shapes. `make_geometry` must have checked the inputs; delta is from
    `launch_delta`."""
    import torch

    dk, dv = torch.empty_like(k), torch.empty_like(v)
    grid = (geometry.batch * geometry.kv_heads, triton.cdiv(geometry.seq_kv, config["BLOCK_N"]))
    even = geometry.packed is None and geometry.seq_q % config["BLOCK_M"] == 0
    backward_dkv_kernel[grid](
        q, k, v, dout, lse, delta, dk, dv, *geometry.common_arguments,
        EVEN_M=even, **_kernel_constants(q, geometry, causal=causal), **config,
    )  # fmt: skip
    return dk, dv


def launch_dq(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    geometry: Geometry,
    *,
    causal: bool,
    config: Config,
) -> torch.Tensor:
    """Returns dq, of q's shape. `make_geometry` must have checked the inputs; delta is from `launch_delta`."""
    import torch

    dq = torch.empty_like(q)
    grid = (geometry.batch * geometry.heads, triton.cdiv(geometry.seq_q, config["BLOCK_M"]))
    even = geometry.packed is None and geometry.seq_kv % config["BLOCK_N"] == 0
    backward_dq_kernel[grid](
        q, k, v, dout, lse, delta, dq, *geometry.common_arguments,
        EVEN_N=even, **_kernel_constants(q, geometry, causal=causal), **config,
    )  # fmt: skip
    return dq


def _kernel_constants(q: torch.Tensor, geometry: Geometry, *, causal: bool) -> dict[str, Any]:
    """Returns name -> value of the compile-time constants that the dK/dV and the dQ kernel share."""
    import torch

    return {
        "CAUSAL": causal,
        "VARLEN": geometry.packed is not None,
        "HEAD_DIM": geometry.head_dim,
        "BLOCK_D": pad_size(geometry.head_dim),
        "V_TRANSPOSED": geometry.v_transposed,
        "PRECISION": "ieee",
        "IN_FP32": q.dtype == torch.bfloat16 and is_interpreted(q),
    }


def make_geometry(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    packed: Packed | None = None,
    *,
    v_transposed: bool = False,
) -> Geometry:
    """Checks the tensors of `flash_backward` and returns their sizes. Raises UsageError naming an argument and what it
    must be."""
    import torch

    dims = 3 if packed else 4
    _require_argument(q.dim() == dims, "q", f"{q.dim()} dimensions", f"{dims}")
    *batches, rows, heads, head_dim = q.shape
    _require_argument(k.dim() == dims, "k", f"{k.dim()} dimensions", f"{dims}")
    *_, keys, kv_heads, _ = k.shape
    _require_argument(str(q.dtype).removeprefix("torch.") in DTYPES, "q", str(q.dtype), f"one of {', '.join(DTYPES)}")
    _require_argument(head_dim <= HEAD_DIM_MAX, "q", f"head_dim {head_dim}", f"a head_dim of at most {HEAD_DIM_MAX}")
    _require_argument(heads % kv_heads == 0, "k", f"{kv_heads} heads", f"a number of heads that divides q's {heads}")
    like_k = (*batches, keys, kv_heads, head_dim)
    _require_argument(not (packed and v_transposed), "v_transposed", "True of packed sequences", "False")
    like_v = (*batches, kv_heads, head_dim, keys) if v_transposed else like_k
    expected = {"k": (k, like_k), "v": (v, like_v), "dout": (dout, tuple(q.shape)), "out": (out, tuple(q.shape))}
    for name, (tensor, shape) in expected.items():
        _require_argument(tuple(tensor.shape) == shape, name, f"shape {tuple(tensor.shape)}", f"{shape}")
        _require_argument(tensor.dtype == q.dtype, name, str(tensor.dtype), f"q's {q.dtype}")
    of_rows = (*batches, heads, rows)
    _require_argument(tuple(lse.shape) == of_rows, "lse", f"shape {tuple(lse.shape)}", f"{of_rows}")
    _require_argument(lse.dtype == torch.float32, "lse", str(lse.dtype), "torch.float32")
    for name, tensor in (("q", q), ("lse", lse), *((name, tensor) for name, (tensor, _) in expected.items())):
        _require_argument(tensor.is_contiguous(), name, "not contiguous", "contiguous")
        _require_argument(tensor.device == q.device, name, f"on {tensor.device}", f"on q's {q.device}")
    if packed is None:
        return Geometry(batches[0], rows, keys, heads, kv_heads, head_dim, rows, None, v_transposed)
    batch = _count_sequences(packed)
    return Geometry(batch, packed.max_q, packed.max_kv, heads, kv_heads, head_dim, rows, packed)


def _count_sequences(packed: Packed) -> int:
    """Returns the number of sequences, from the shape of the offsets; their values on the device are not read. Raises
    UsageError for invalid offsets or lengths."""
    import torch

    lengths = packed.cu_seqlens_q.numel()
    for name, tensor in (("cu_seqlens_q", packed.cu_seqlens_q), ("cu_seqlens_k", packed.cu_seqlens_k)):
        _require_argument(tensor.dtype == torch.int32, name, str(tensor.dtype), "torch.int32")
        whole = tensor.dim() == 1 and tensor.numel() == lengths >= 2
        _require_argument(whole, name, f"shape {tuple(tensor.shape)}", "(sequences + 1,), the same for q and k")
    for name, longest in (("max_q", packed.max_q), ("max_kv", packed.max_kv)):
        _require_argument(longest >= 1, name, str(longest), "at least 1")
    return lengths - 1


def _require_argument(fulfilled: bool, name: str, found: str, wanted: str) -> None:
    if not fulfilled:
        raise UsageError(f"flash_backward: {name} is {found}, must be {wanted}")
