"""A hash that is equal for two objects with the same machine code and register allocation.

It excludes paths, names, line tables, notes and build ids. It includes all functions that are not kernels, because a
kernel may call them; calls are not traced.

It also excludes distances in AMD machine code from the program counter to a table, a variable or another function.

The compiler computes such an address from the program counter and a constant that the linker sets (LLVM's
SI_PC_ADD_REL_OFFSET). This constant depends on the layout of the file, not on what the code does.
"""

from __future__ import annotations

import bisect
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pytest_attnperf.codeobject.elf import SHF_WRITE, STT_FUNC, STT_OBJECT, Elf, Symbol

_HEX_DIGITS = 32

_ENTRY_OFFSET = slice(16, 24)
"""Bytes of KERNEL_CODE_ENTRY_BYTE_OFFSET in a kernel descriptor, which depends on the layout of the file."""

# Opcode of S_GETPC_B64 (S_GET_PC_I64) in the SOP1 encoding of each generation: LLVM's SOPInstructions.td.
_GETPC_OPCODE = {"gfx6": 0x1F, "gfx7": 0x1F, "gfx8": 0x1C, "gfx9": 0x1C, "gfx10": 0x1F, "gfx11": 0x47, "gfx12": 0x47}

_GENERATION = re.compile(r"gfx(1[0-9]|[6-9])")

_WORD = 4
_WINDOW_BYTES = 8 * _WORD
"""Bytes in which the additions follow: on gfx12 up to four instructions are between (s_wait_alu, s_sext_i32_i16)."""


class AmdHashes:
    """Hashes of the kernels of one AMD object.

    kernels   names of the functions that are kernels: each is hashed without the others
    """

    def __init__(self, elf: Elf, arch: str, kernels: Collection[str]) -> None:
        self._elf = elf
        self._arch = arch
        self._kernels = kernels

    def hash_kernel(self, kernel: Symbol, descriptor: bytes) -> str:
        """Returns the hash of one kernel with its descriptor, and of all functions that are no kernels, because it may
        call them."""
        where = bytearray(descriptor)
        where[_ENTRY_OFFSET] = bytes(8)
        return _hash_parts(
            [b"amd", self._arch.encode(), bytes(where), self._normalise_code(kernel), *self._other_digests]
        )

    @cached_property
    def _other_digests(self) -> list[bytes]:
        """Digests of the functions that are no kernels, in an order independent of their positions and names."""
        functions = {
            (function.address, function.section.offset): function
            for function in self._elf.functions
            if function.name not in self._kernels
        }
        return sorted(hashlib.sha256(self._normalise_code(function)).digest() for function in functions.values())

    def _normalise_code(self, function: Symbol) -> bytes:
        """Returns a function's machine code, with every outside reference replaced by a digest of its target.

        Distances to tables or other functions are dropped, because names and notes move the sections.
        """
        code = self._read_bytes(function)
        found = far_references(code, self._arch)
        return with_names(code, found, [self._name_address(function.address + each.target) for each in found])

    def _name_address(self, address: int) -> bytes:
        """Returns a digest of the function or constant at an address and the offset in it; b'' if there is none.

        References inside that function are blanked; its full code is hashed with the others. Constants without a
        symbol (texts) and variables give b'', so that a path in a message changes nothing.
        """
        index = bisect.bisect_right(self._starts, address) - 1
        symbol = self._targets[index] if index >= 0 else None
        if symbol is None or address >= symbol.address + self._symbol_size(symbol):
            return b""
        content = b""
        if symbol.kind == STT_FUNC:
            code = self._read_bytes(symbol)
            found = far_references(code, self._arch)
            content = with_names(code, found, [b""] * len(found))
        elif not symbol.section.flags & SHF_WRITE:
            content = self._read_bytes(symbol)
        return _hash_parts([b"%d" % (address - symbol.address), content]).encode()

    @cached_property
    def _targets(self) -> list[Symbol]:
        symbols = (symbol for symbol in self._elf.symbols if symbol.kind in (STT_FUNC, STT_OBJECT))
        return sorted(symbols, key=lambda symbol: symbol.address)

    @cached_property
    def _starts(self) -> list[int]:
        return [symbol.address for symbol in self._targets]

    def _read_bytes(self, symbol: Symbol) -> bytes:
        return self._elf.read_code(symbol.section, symbol.address, self._symbol_size(symbol))

    def _symbol_size(self, symbol: Symbol) -> int:
        return self._elf.size_of(symbol) if symbol.kind == STT_FUNC else symbol.size


def cubin_hash(arch: str, code: bytes, registers: int, shared_bytes: int, others: Iterable[bytes]) -> str:
    """Returns a cubin kernel's hash: of its section's bytes, registers per thread, static shared memory, and `others`.

    others   machine code of functions in separate sections, in any order
    """
    allocation = b"%d %d" % (registers, shared_bytes)
    return _hash_parts([b"nvidia", arch.encode(), allocation, code, *sorted(others)])


def _hash_parts(parts: Iterable[bytes]) -> str:
    """Returns the hash of a sequence. Each part's length is hashed before it, so that moving a border changes it."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()[:_HEX_DIGITS]


@dataclass(frozen=True)
class FarReference:
    """An address outside the function that is computed from the program counter.

    literals   positions of the four-byte constants in the code: the lower half, then the upper
    target     the address, relative to the function's start
    """

    literals: tuple[int, int]
    target: int


def far_references(code: bytes, arch: str) -> list[FarReference]:
    """Returns, in order, the addresses outside of `code` that its instructions compute from the program counter."""
    return [found for found in _find_references(code, arch) if not 0 <= found.target < len(code)]


def with_names(code: bytes, references: Sequence[FarReference], names: Sequence[bytes]) -> bytes:
    """Returns `code` with the constants of each reference set to zero, followed by the position of each and the name of
    its target."""
    blanked = bytearray(code)
    for found in references:
        for position in found.literals:
            blanked[position : position + _WORD] = bytes(_WORD)
    notes = (b"%d:%s" % (found.literals[0], name) for found, name in zip(references, names, strict=True))
    return bytes(blanked) + b"\n".join(notes)


def _find_references(code: bytes, arch: str) -> Iterator[FarReference]:
    generation = _GENERATION.match(arch)
    opcode = _GETPC_OPCODE.get(generation.group()) if generation else None
    if opcode is None:
        return
    # SOP1: 101111101 | destination (7 bits) | opcode (8) | source (8, unused here), lowest byte first.
    for found in re.finditer(rb"\x00%s[\x80-\xff]\xbe" % re.escape(bytes([opcode])), code, re.DOTALL):
        if found.start() % _WORD == 0:
            literals = _find_additions(code, found.end(), found.group()[2] & 0x7F)
            if literals:
                low, high = (code[position : position + _WORD] for position in literals)
                yield FarReference(literals, found.end() + int.from_bytes(low + high, "little", signed=True))


def _find_additions(code: bytes, begin: int, register: int) -> tuple[int, int] | None:
    """Returns the positions of the two constants (lower half, upper half) that the next instructions add to this
    register pair; None if they add none."""
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
