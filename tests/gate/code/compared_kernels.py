"""A compiled kernel before and after a change, as the code gate compares them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_attnperf.baselines.code_schema import StoredKernel
from pytest_attnperf.gate.code.code_policy import CodePolicy
from pytest_attnperf.gate.code.rules import Compared, CurrentKernel
from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.code import KernelCode, SourceLine

KEY = CaseKey("code_objects", "triton.prefill_forward", "d256-f16", "gfx942")
WHERE = "configs/prefill_forward.json"
COUNTS = {"matrix": 64, "global_load_16B": 8, "global_store_4B": 4, "lds_read_16B": 32, "lds_write_8B": 8}
LOOPS = {"matrix": 32, "global_load_16B": 4}
LOAD = SourceLine("prefill.py", 87, "k = tl.load(k_ptrs)", {"global_load_16B": 8})
BASE = KernelCode(
    "k", "gfx942", 120, 0, 120, 60, 0, 0, 0, 0, 8192, 56, 256, 512, 64, None, False, 9000, "a1b2",
    COUNTS, LOOPS, lines=(LOAD,),
)  # fmt: skip


def compared(old: KernelCode = BASE, policy: CodePolicy | None = None, **changes: Any) -> Compared:
    """A kernel that was changed in `changes` against `old`, by one compiler, with a block size changed."""
    changes.setdefault("isa_hash", "c3d4")
    compiler = changes.pop("compiler", "triton 3.9.0")
    now = CurrentKernel(KEY, replace(old, **changes), {"BLOCK_M": "128"}, compiler, True, WHERE)
    before = StoredKernel(old, {"BLOCK_M": "64"}, "triton 3.9.0", True, "p", "2026-01-02")
    return Compared(now, before, policy or CodePolicy())


def with_counts(**changes: int) -> dict[str, int]:
    """The instructions, some of them counted otherwise."""
    return {**COUNTS, **changes}
