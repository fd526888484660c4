"""Runs kernels in the order of blocks for several XCDs in an interpreting process (see `run_interpreted`).

A case is 'order K/V-HEADS GROUP BLOCKS XCDS', the head and the rank of every program, or 'backend/workload id'.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.configs import ConfigChoice, ConfigRule
from kernels.triton.backward.backend import BACKENDS as BACKWARD
from kernels.triton.prefill.backend import BACKENDS as PREFILL
from kernels.triton.prefill.forward import head_and_rank_on_xcd
from kernels.triton.trans_v.backend import BACKENDS as TRANS_V
from kernels.triton.varlen.backend import BACKENDS as VARLEN
from tests.kernels.run_interpreted import of_backend

TILE = {"BLOCK_M": 32, "BLOCK_N": 32, "XCDS": 8, "num_warps": 1, "num_stages": 1}
CONFIG = TILE | {"PRELOAD_V": False, "GROUP_HEADS": 4096}
SETTINGS = {
    "prefill_forward": CONFIG,
    "prefill_persistent": CONFIG | {"PROGRAMS_PER_SM": 8},
    "varlen_forward": CONFIG,
    "trans_v": TILE | {"PRELOAD_V": False},
    "backward_dq": TILE | {"SPLIT": True},
}


@triton.jit
def order_kernel(out_ptr, group, XCDS: tl.constexpr):
    """Store head and rank of each program of a grid (heads, blocks)."""
    rank = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    head, block = head_and_rank_on_xcd(rank, tl.num_programs(0), tl.num_programs(1), group, XCDS)
    tl.store(out_ptr + rank * 2, head)
    tl.store(out_ptr + rank * 2 + 1, block)


def found(case: str) -> dict[str, Any]:
    """{'order': (programs, 2)}, or what `of_backend` finds with XCDS of 8."""
    if not case.startswith("order "):
        pinned = [
            backend.with_choice(kernel, ConfigChoice("x", ConfigRule({}, config, "a test")))
            for backend in (*PREFILL, *VARLEN, *TRANS_V, *BACKWARD)
            for kernel, config in SETTINGS.items()
            if kernel in (space.kernel for space in getattr(backend, "spaces", ()))
        ]
        return of_backend(pinned, case)
    kv_heads, group, blocks, xcds = map(int, case.split()[1:])
    order = torch.full((kv_heads * group * blocks, 2), -1, dtype=torch.int32)
    order_kernel[(kv_heads * group, blocks)](order, group, XCDS=xcds)
    return {"order": order}
