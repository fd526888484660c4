"""The launcher of `gluon.flash_backward`: checks the arguments and calls the three kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernels.gluon.prefill.space import tile_head_dim
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

    from kernels.triton.backward.launch import Geometry, Packed

DTYPES = ("float16", "bfloat16")
WRAP = 2**30
"""Rows of a descriptor, as in `kernels.gluon.backward.sm_90`."""


def flash_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    config: Mapping[str, Any],
    packed: Packed | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Computes (dq, dk, dv), with the shapes and dtypes of q, k and v, on sm_90.

    q, dout, out    (B, Sq, H, D), contiguous, all fp16 or all bf16; D at most 256
    k, v            (B, Skv, Hk, D), Hk divides H: query head h reads key head h // (H / Hk)
    lse             (B, H, Sq) fp32, the natural log-sum-exp of the scaled scores, -inf where a row sees no key
    causal          bottom-right aligned: query row i sees key j iff j <= i + Skv - Sq
    config          BLOCK_M, BLOCK_N, SLOTS, PAIRS (see `kernels.gluon.backward.sm_90`) and the compiler's options
    packed          for packed sequences, whose tensors have no B: q (Tq, H, D), k (Tk, Hk, D), lse (H, Tq)

    dq is summed by atomics, in fp32: its last bits differ from call to call. Rows of another length than those of the
    tiles are copied into longer ones first, and the results out of them. Raises UsageError naming the argument for
    other shapes, dtypes or memory layouts.
    """
    from kernels.triton.backward.launch import make_geometry

    geometry = make_geometry(q, k, v, dout, out, lse, packed)
    if str(q.dtype).removeprefix("torch.") not in DTYPES:
        raise UsageError(f"flash_backward: q is {q.dtype}, must be {' or '.join(DTYPES)}; use triton.flash_backward")
    scale, head_dim = 1.0 / math.sqrt(geometry.head_dim), tile_head_dim(geometry.head_dim)
    if head_dim == geometry.head_dim:
        run = BackwardRun(q, k, v, dout, out, lse, geometry, scale, causal=causal, config=config)
        return run.run_kernels()
    from kernels.gluon.prefill.padding import resize_rows

    q, k, v, dout, out = (resize_rows(tensor, head_dim) for tensor in (q, k, v, dout, out))
    longer = replace(geometry, head_dim=head_dim)
    run = BackwardRun(q, k, v, dout, out, lse, longer, scale, causal=causal, config=config)
    dq, dk, dv = (resize_rows(result, geometry.head_dim) for result in run.run_kernels())
    return dq, dk, dv


class BackwardRun:
    """One call: its results, its workspace, and its three launches in order. `geometry` must be of these tensors, whose
    D is one of the tiles'; `scale` is that of the scores.

    dq, dk, dv         results, like q, k and v
    delta, lse_log2    (H * P,) fp32, P padded rows: see `kernels.gluon.backward.passes`
    dq_sums            (H, P, D) fp32
    """

    def __init__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        dout: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        geometry: Geometry,
        scale: float,
        *,
        causal: bool,
        config: Mapping[str, Any],
    ) -> None:
        import torch

        self.inputs, self.geometry, self.causal, self.config = (q, k, v, dout, out, lse), geometry, causal, config
        tile = config["BLOCK_M"]
        # A packed sequence may end in a tile that is not full, and its padded rows begin after a whole one.
        tiles = geometry.batch * math.ceil(geometry.seq_q / tile)
        if geometry.packed is not None:
            tiles = math.ceil(q.shape[0] / tile) + geometry.batch
        self.padded = tiles * tile
        self.delta, self.lse_log2 = torch.empty((2, geometry.heads * self.padded), dtype=torch.float32, device=q.device)
        sums = (geometry.heads, self.padded, geometry.head_dim)
        self.dq_sums = torch.empty(sums, dtype=torch.float32, device=q.device)
        self.dq, self.dk, self.dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        self.offsets_q = geometry.packed.cu_seqlens_q if geometry.packed else None
        self.offsets_k = geometry.packed.cu_seqlens_k if geometry.packed else None
        self.scale = scale
        self.tiles_of_rows = (math.ceil(geometry.seq_q / tile), geometry.batch * geometry.heads)
        self.constants = {"HEAD_DIM": geometry.head_dim, "BLOCK_M": tile, "num_warps": 4}

    def run_kernels(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Launches the three kernels and returns (dq, dk, dv)."""
        self.prepare()
        self.multiply()
        self.round()
        return self.dq, self.dk, self.dv

    def prepare(self) -> None:
        """Writes the statistics of the rows, and zeros to dq_sums."""
        from kernels.gluon.backward.passes import backward_prepare_kernel

        *_, dout, out, lse = self.inputs
        backward_prepare_kernel[self.tiles_of_rows](
            dout, out, lse, self.delta, self.lse_log2, self.dq_sums, self.offsets_q, self.geometry.heads,
            self.geometry.seq_q, self.geometry.stats_stride, self.padded, **self.constants,
        )  # fmt: skip

    def multiply(self) -> None:
        """Writes dk and dv, and adds to dq_sums."""
        from kernels.gluon.backward.sm_90 import backward_sm_90_kernel

        q, k, v, dout, *_ = self.inputs
        block_m, block_n = self.config["BLOCK_M"], self.config["BLOCK_N"]
        options = {name: value for name, value in self.config.items() if not name.startswith("BLOCK")}
        sizes = (self.geometry.heads, self.geometry.kv_heads, self.geometry.seq_q, self.geometry.seq_kv, self.padded)
        backward_sm_90_kernel[math.ceil(self.geometry.seq_kv / block_n), self.geometry.batch * self.geometry.kv_heads](
            describe(q, block_m), describe(k, block_n), describe(v, block_n), describe(dout, block_m),
            describe_statistic(self.lse_log2, block_m), describe_statistic(self.delta, block_m),
            describe(self.dk, block_n), describe(self.dv, block_n), self.dq_sums, self.offsets_q, self.offsets_k,
            *sizes, self.scale * math.log2(math.e), self.scale, CAUSAL=self.causal, **options,
        )  # fmt: skip

    def round(self) -> None:
        """Writes dq."""
        from kernels.gluon.backward.passes import backward_round_kernel

        backward_round_kernel[self.tiles_of_rows](
            self.dq_sums, self.dq, self.offsets_q, self.geometry.heads, self.geometry.seq_q, self.padded, self.scale,
            **self.constants,
        )  # fmt: skip


def describe(tensor: torch.Tensor, rows: int) -> Any:
    """Returns what TMA copies of a tensor (..., H, D): `rows` rows of one head of one sequence at a time, see
    `kernels.gluon.backward.sm_90.place`."""
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    *_, heads, head_dim = tensor.shape
    stride = heads * head_dim
    block = [1, 1, rows, head_dim]
    element = {"float16": gl.float16, "bfloat16": gl.bfloat16}[str(tensor.dtype).removeprefix("torch.")]
    layout = gl.NVMMASharedLayout.get_default_for(block, element)
    # The first two strides add up to 2^34 elements: WRAP of them are 2^64, which is 0 to an address.
    return TensorDescriptor(
        tensor, [2**31 - 2**16, 2**31 - 2**16, WRAP, stride], [2**34 - stride, stride, stride, 1], block, layout
    )


def describe_statistic(tensor: torch.Tensor, rows: int) -> Any:
    """Returns what TMA copies of a fp32 tensor of one dimension: `rows` elements at a time."""
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    return TensorDescriptor.from_tensor(tensor, [rows], gl.NVMMASharedLayout(0, 32, rank=1))
