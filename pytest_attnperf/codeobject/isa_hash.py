"""A hash that two objects share where machine code and register allocation are the same.

Paths, names, line tables, notes and build ids are no part of it. Functions that are not kernels are: what a kernel
calls is its code, too, and who calls whom is not followed.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Collection, Iterable
from functools import cached_property

from pytest_attnperf.codeobject.elf import SHF_WRITE, STT_FUNC, STT_OBJECT, Elf, Symbol
from pytest_attnperf.codeobject.pc_relative import far_references, with_names

_HEX_DIGITS = 32

_ENTRY_OFFSET = slice(16, 24)
"""Of a kernel descriptor: KERNEL_CODE_ENTRY_BYTE_OFFSET, which moves with whatever else is in the file."""


class AmdHashes:
    """Hashes of the kernels of one AMD object.

    kernels   names of the functions that are kernels: each is hashed without the others
    """

    def __init__(self, elf: Elf, arch: str, kernels: Collection[str]) -> None:
        self._elf = elf
        self._arch = arch
        self._kernels = kernels

    def of(self, kernel: Symbol, descriptor: bytes) -> str:
        """The hash of one kernel and everything that it may call."""
        where = bytearray(descriptor)
        where[_ENTRY_OFFSET] = bytes(8)
        return _digest([b"amd", self._arch.encode(), bytes(where), self._code(kernel), *self._others])

    @cached_property
    def _others(self) -> list[bytes]:
        """Digests of the other functions, in an order that does not depend on where or by which name they stand."""
        functions = {
            (function.address, function.section.offset): function
            for function in self._elf.functions
            if function.name not in self._kernels
        }
        return sorted(hashlib.sha256(self._code(function)).digest() for function in functions.values())

    def _code(self, function: Symbol) -> bytes:
        """A function's machine code, every reference beyond it replaced by what stands there.

        The distance to a table or another function is a matter of names and notes: they move the sections.
        """
        code = self._bytes(function)
        found = far_references(code, self._arch)
        return with_names(code, found, [self._name(function.address + each.target) for each in found])

    def _name(self, address: int) -> bytes:
        """What stands at an address: a digest of its place within a function or constant, b'' where that is not told.

        Of a function its own references are blanked here: its code is hashed among the others. Constants without a
        symbol (texts) and variables have no name, so that a path in a message changes nothing.
        """
        index = bisect.bisect_right(self._starts, address) - 1
        symbol = self._targets[index] if index >= 0 else None
        if symbol is None or address >= symbol.address + self._size(symbol):
            return b""
        content = b""
        if symbol.kind == STT_FUNC:
            code = self._bytes(symbol)
            found = far_references(code, self._arch)
            content = with_names(code, found, [b""] * len(found))
        elif not symbol.section.flags & SHF_WRITE:
            content = self._bytes(symbol)
        return _digest([b"%d" % (address - symbol.address), content]).encode()

    @cached_property
    def _targets(self) -> list[Symbol]:
        symbols = (symbol for symbol in self._elf.symbols if symbol.kind in (STT_FUNC, STT_OBJECT))
        return sorted(symbols, key=lambda symbol: symbol.address)

    @cached_property
    def _starts(self) -> list[int]:
        return [symbol.address for symbol in self._targets]

    def _bytes(self, symbol: Symbol) -> bytes:
        return self._elf.code(symbol.section, symbol.address, self._size(symbol))

    def _size(self, symbol: Symbol) -> int:
        return self._elf.size_of(symbol) if symbol.kind == STT_FUNC else symbol.size


def cubin_hash(arch: str, code: bytes, registers: int, shared_bytes: int, others: Iterable[bytes]) -> str:
    """The hash of a kernel in a cubin: its section's bytes, registers per thread and static shared memory.

    others   machine code of functions that have a section of their own, in any order
    """
    allocation = b"%d %d" % (registers, shared_bytes)
    return _digest([b"nvidia", arch.encode(), allocation, code, *sorted(others)])


def _digest(parts: Iterable[bytes]) -> str:
    """The hash of a sequence: each part's length goes before it, so that moving a border changes the hash."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()[:_HEX_DIGITS]
