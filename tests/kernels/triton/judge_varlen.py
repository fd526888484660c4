"""What the persistent kernel over packed sequences does, in an interpreting process (see `run_interpreted`).

A case is JSON: lengths of q, heads, whether the mask is causal, and the name of a change of the kernel's source ('' for
none). What is found is (sequence, head, block) of each block of rows, in the order of the programs.
"""

from __future__ import annotations

import json
import linecache
import types
from typing import Any

import torch

import kernels.triton.varlen.persistent as shipped

CONFIG = {
    "BLOCK_M": 16,
    "BLOCK_N": 16,
    "PRELOAD_V": False,
    "GROUP_HEADS": 2,
    "PROGRAMS_PER_SM": 2,
    "num_warps": 1,
    "num_stages": 1,
}
CHANGES = {
    "": ("", ""),
    "skips the last item": ("while item < items:", "while item < items - 1:"),
    "does items twice": (
        "item += multiprocessors * PROGRAMS_PER_SM\n",
        "item += multiprocessors * PROGRAMS_PER_SM - 1\n",
    ),
    "counts on from the wrong item": ("item -= items\n", "item -= items - 1\n"),
    "halves an odd number down": ("(blocks + 1) // 2", "blocks // 2"),
    "forgets the early block": ("1 + (late != early).to(tl.int32)", "1"),
}


def changed_module(change: str) -> Any:
    """The kernel's module with one expression of its source changed."""
    if not change:
        return shipped
    old, new = CHANGES[change]
    source = str(shipped.__spec__.loader.get_source(shipped.__name__))  # type: ignore[union-attr]
    assert source.count(old) == 1
    module = types.ModuleType("changed")
    path = f"{shipped.__file__}.{list(CHANGES).index(change)}.py"
    module.__file__ = path
    text = source.replace(old, new)
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    exec(compile(text, path, "exec"), vars(module))
    return module


def number_of(value: Any) -> int:
    """The number that a scalar of the interpreter holds."""
    return int(value.handle.data.item()) if hasattr(value, "handle") else int(value)


def found(case: str) -> list[tuple[int, ...]]:
    """The blocks of rows that the kernel does, with 3 multiprocessors."""
    lengths, heads, causal, change = json.loads(case)
    module = changed_module(change)
    done: list[tuple[int, ...]] = []

    def record(*given: Any) -> None:
        done.append(tuple(map(number_of, given[14:17])))

    kept, module.attend_packed_block = module.attend_packed_block, record
    try:
        ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
        q = torch.zeros((sum(lengths), heads, 16))
        module.varlen_persistent(
            *(q, q, q, ends, ends),
            max_q=max(lengths),
            max_kv=max(lengths),
            causal=causal,
            with_lse=False,
            config=CONFIG,
            multiprocessors=3,
        )
    finally:
        module.attend_packed_block = kept
    return done
