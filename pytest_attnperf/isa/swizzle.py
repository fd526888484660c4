"""The pattern of DS_SWIZZLE_B32, which LLVM spells out.

Source: LLVM, "Syntax of AMDGPU Instruction Modifiers", swizzle; AMD, "CDNA3 Instruction Set Architecture",
DS_SWIZZLE_B32: bits 0 to 4 are an and mask, 5 to 9 an or mask, 10 to 14 an xor mask of a lane's number in its 32; with
bit 15 four numbers of two bits, of the lanes of each four.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from pytest_attnperf.isa.memory import Array

_FORM = re.compile(r'offset:swizzle\(([A-Z_]+),"?([^")]*)"?\)')
_QUADS = 0x8000
_EVERY = 31
_MASKS = {"0": (0, 0, 0), "1": (0, 1, 0), "p": (1, 0, 0), "i": (1, 0, 1)}
"""And, or and xor of a bit that becomes 0 or 1, stays, or is inverted."""


def is_swizzle(text: str) -> bool:
    """Returns whether a modifier is a pattern in words."""
    return text.startswith("offset:swizzle(")


def read_pattern(text: str) -> int | None:
    """Returns the 16 bits of 'offset:swizzle(SWAP,1)'; None for a mode that is not known."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    if found[1] == "BITMASK_PERM":
        masks = [sum(_MASKS[letter][at] << 4 - place for place, letter in enumerate(found[2])) for at in range(3)]
        return _join(*masks)
    numbers = [int(one) for one in found[2].split(",")]
    return _read_numbers(found[1], numbers)


def _read_numbers(mode: str, numbers: Sequence[int]) -> int | None:
    if mode == "QUAD_PERM":
        return _QUADS | sum(lane << 2 * place for place, lane in enumerate(numbers))
    if mode == "SWAP":
        return _join(_EVERY, 0, numbers[0])
    if mode == "REVERSE":
        return _join(_EVERY, 0, numbers[0] - 1)
    if mode == "BROADCAST":
        return _join(_EVERY & ~(numbers[0] - 1), numbers[1], 0)
    return None


def _join(and_mask: int, or_mask: int, xor_mask: int) -> int:
    return and_mask | or_mask << 5 | xor_mask << 10


def choose_lanes(pattern: int, lanes: int) -> Array | None:
    """Returns for each lane that whose value it gets, uint32 (lanes,); None for a mode that is not known."""
    own = np.arange(lanes)
    if pattern & _QUADS:
        if pattern >> 8 != _QUADS >> 8:
            return None
        chosen = own // 4 * 4 + (pattern >> 2 * (own % 4) & 3)
    else:
        chosen = own // 32 * 32 + ((own % 32 & pattern & _EVERY | pattern >> 5 & _EVERY) ^ (pattern >> 10 & _EVERY))
    found: Array = chosen.astype(np.uint32)
    return found
