"""How the kernel is launched: said once, for the launch and for what perf/conftest.py compiles without a GPU."""

from __future__ import annotations

EPS = 1e-6
COLUMNS_MAX = 32768
"""A row must fit the registers of one program."""


def settings(columns: int) -> dict[str, int]:
    """BLOCK and num_warps for rows of this length. Raises ValueError for one that is empty or too long."""
    if not 0 < columns <= COLUMNS_MAX:
        raise ValueError(f"rows must have 1 to {COLUMNS_MAX} columns, got {columns}")
    block = 1 << (columns - 1).bit_length()
    return {"BLOCK": block, "num_warps": min(16, max(1, block // 1024))}
