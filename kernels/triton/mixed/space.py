"""The configuration space of the kernel for mixed steps."""

from __future__ import annotations

from kernels.configs import Space

SPACE = Space(
    "mixed",
    {"BLOCK_M": int, "BLOCK_N": int, "SMALL_M": int, "SMALL_N": int},
    ("head_dim", "group", "longest_query", "cache_bits"),
)
"""longest_query: the most query tokens of a sequence, 1 in a step without prompts. group: query heads per K/V head."""
