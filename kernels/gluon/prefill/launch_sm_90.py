"""Launches the kernel of `gluon.flash` for sm_90: descriptors of its tensors, and a plan of who does what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.configs import pad_size
from kernels.gluon.prefill.padding import resize_rows
from kernels.gluon.prefill.schedule import schedule_of
from kernels.gluon.prefill.sm_90 import prefill_sm_90_kernel
from kernels.gluon.prefill.tile_loads import ROWS

if TYPE_CHECKING:
    import torch

    from kernels.triton.prefill.launch import PrefillSizes

ROW_STEP, SECTOR_STEP = 8, 16
"""Columns of 16 bits. TMA reads rows that begin at multiples of 16 bytes; those that begin between multiples of 32, the
sectors of the L2 cache, take it longer."""

PAYS_FROM = 4096
"""Rows of queries for a row of K and V, all heads that share it, from which on to copy K and V into rows of whole
sectors takes less time than it saves, on an H200: (4, 4096, 16, 104) causal with 4 K/V heads took 475 us, and 505
without."""


def launch_sm_90(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    shape: PrefillSizes,
    *,
    causal: bool,
    config: Mapping[str, Any],
) -> None:
    """Writes attention to `out` and, unless it is None, the log-sum-exp to `lse`; tensors as `prefill_forward` has
    checked them. `config` has BLOCK_M, 64 rows for each of two or three groups of warps, BLOCK_N and the compiler's
    options. Rows that TMA does not take, or takes long for, are copied into longer ones first, and out of them at the
    end.
    """
    q, k, v = lengthen_rows(q, k, v, shape)
    padded = out if q.shape == out.shape else q.new_empty(q.shape)
    block_m, block_n = config["BLOCK_M"], config["BLOCK_N"]
    options = {name: value for name, value in config.items() if not name.startswith("BLOCK")}
    schedule = schedule_of(q, shape, block_m, block_n, causal=causal)
    prefill_sm_90_kernel[(len(schedule),)](
        _describe(q, ROWS.value), _describe(k, block_n), _describe(v, block_n), _describe(padded, ROWS.value), lse,
        schedule, schedule.shape[1] - 1, shape.heads, shape.kv_heads, shape.seq_q, shape.seq_kv,
        math.log2(math.e) / math.sqrt(shape.head_dim), CAUSAL=causal, GROUPS=block_m // ROWS.value, **options,
    )  # fmt: skip
    if padded is not out:
        resize_rows(padded, shape.head_dim, out)


def lengthen_rows(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, shape: PrefillSizes
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns q, k, v with zeros behind their rows where TMA does not take these, and k, v where it pays."""
    columns = -(-shape.head_dim // SECTOR_STEP) * SECTOR_STEP
    if shape.head_dim % ROW_STEP:
        q = resize_rows(q, columns)
    elif shape.seq_q * (shape.heads // shape.kv_heads) < PAYS_FROM:
        return q, k, v
    return q, resize_rows(k, columns), resize_rows(v, columns)


def _describe(tensor: torch.Tensor, rows: int) -> TensorDescriptor:
    """Returns what TMA copies of a tensor (B, S, H, D): `rows` rows of one head at a time, with zeros up to a power of
    two behind the D columns."""
    block = [1, rows, 1, max(64, pad_size(tensor.shape[3]))]
    element = {"float16": gl.float16, "bfloat16": gl.bfloat16}[str(tensor.dtype).removeprefix("torch.")]
    return TensorDescriptor.from_tensor(tensor, block, gl.NVMMASharedLayout.get_default_for(block, element))
