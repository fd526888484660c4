"""Distances in AMD machine code: from the program counter to a table, a variable or another function.

The compiler makes an address of the program counter and a constant that the linker fills in (LLVM's
SI_PC_ADD_REL_OFFSET). Such a constant says where things were put, not what the code does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Opcode of S_GETPC_B64 (S_GET_PC_I64) in the SOP1 encoding of each generation: LLVM's SOPInstructions.td.
_GETPC_OPCODE = {"gfx6": 0x1F, "gfx7": 0x1F, "gfx8": 0x1C, "gfx9": 0x1C, "gfx10": 0x1F, "gfx11": 0x47, "gfx12": 0x47}

_GENERATION = re.compile(r"gfx(1[0-9]|[6-9])")

_WORD = 4
_WINDOW_BYTES = 8 * _WORD
"""In which the additions follow: on gfx12 up to four instructions stand between (s_wait_alu, s_sext_i32_i16)."""


@dataclass(frozen=True)
class FarReference:
    """An address that is computed from the program counter and lies outside the function.

    literals   positions of the four-byte constants in the code: the lower half, then the upper
    target     the address, counted from the function's begin
    """

    literals: tuple[int, int]
    target: int


def far_references(code: bytes, arch: str) -> list[FarReference]:
    """Every address outside of `code` that it computes from its program counter, in order."""
    return [found for found in _references(code, arch) if not 0 <= found.target < len(code)]


def with_names(code: bytes, references: Sequence[FarReference], names: Sequence[bytes]) -> bytes:
    """`code` with the constants of each reference blanked, and what it refers to noted behind the code."""
    blanked = bytearray(code)
    for found in references:
        for position in found.literals:
            blanked[position : position + _WORD] = bytes(_WORD)
    notes = (b"%d:%s" % (found.literals[0], name) for found, name in zip(references, names, strict=True))
    return bytes(blanked) + b"\n".join(notes)


def _references(code: bytes, arch: str) -> Iterator[FarReference]:
    generation = _GENERATION.match(arch)
    opcode = _GETPC_OPCODE.get(generation.group()) if generation else None
    if opcode is None:
        return
    # SOP1: 101111101 | destination (7 bits) | opcode (8) | source (8, unused here), lowest byte first.
    for found in re.finditer(rb"\x00%s[\x80-\xff]\xbe" % re.escape(bytes([opcode])), code, re.DOTALL):
        if found.start() % _WORD == 0:
            literals = _additions(code, found.end(), found.group()[2] & 0x7F)
            if literals:
                low, high = (code[position : position + _WORD] for position in literals)
                yield FarReference(literals, found.end() + int.from_bytes(low + high, "little", signed=True))


def _additions(code: bytes, begin: int, register: int) -> tuple[int, int] | None:
    """Where the constants stand that are added to this pair of registers next, if any are."""
    # SOP2: 10 | opcode (7 bits) | destination (7) | second source (8) | first source (8); a second source of 255 is a
    # 32-bit constant behind the instruction, 254 a 64-bit one (gfx1250). Opcodes: add 0, add with carry 4, 64-bit 83.
    low = bytes([register, 0xFF, register, 0x80])
    high = bytes([register + 1, 0xFF, register + 1, 0x82])
    whole = bytes([register, 0xFE, 0x80 | register, 0xA9])
    window = range(begin, min(begin + _WINDOW_BYTES, len(code) - 2 * _WORD + 1), _WORD)
    first = None
    for position in window:
        word = code[position : position + _WORD]
        if word == whole and position + 3 * _WORD <= len(code):
            return position + _WORD, position + 2 * _WORD
        if word == low:
            first = position + _WORD
        elif word == high and first is not None:
            return first, position + _WORD
    return None
