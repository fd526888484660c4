"""Reads the sections, symbols and notes of a 64-bit little-endian ELF file, as code objects have them.

Layouts from the System V ABI, chapters 4 and 5. pyelftools is not used, because the bytes are not trusted: it allocates
what a header claims (an uninitialised section's size, a hash table's length) and makes an object of every entry. Here,
nothing is larger than the file. A cursor reads a range of bytes forwards, never past its end.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pytest_attnperf.errors import CodeObjectError

ELF_MAGIC = b"\x7fELF"
EM_CUDA = 190
EM_AMDGPU = 224

SHF_WRITE = 1
SHF_EXECINSTR = 4
SHF_COMPRESSED = 0x800
STT_OBJECT = 1
STT_FUNC = 2

_ET_REL = 1
_SHT_SYMTAB, _SHT_NOTE, _SHT_NOBITS, _SHT_DYNSYM = 2, 7, 8, 11
_SHN_XINDEX = 0xFFFF

_HEADER = struct.Struct("<HHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOTE = struct.Struct("<III")
_IDENT_BYTES = 16


@dataclass(frozen=True)
class ElfSection:
    """One section header; `address` is 0 in a relocatable file, whose symbols count from their section's start."""

    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int

    def has_address(self, address: int) -> bool:
        """Returns whether the address lies in the section's address range."""
        return self.address <= address < self.address + self.size


@dataclass(frozen=True)
class Symbol:
    """One symbol that is defined in this file; `kind` is STT_FUNC ..., `other` the byte st_other."""

    name: str
    address: int
    size: int
    kind: int
    other: int
    section: ElfSection
    index: int


@dataclass(frozen=True)
class ElfNote:
    """One entry of a note section."""

    owner: str
    kind: int
    content: bytes


@dataclass(frozen=True)
class Elf:
    """A file's header and sections. Its methods raise CodeObjectError naming `source` for unreadable parts."""

    source: str
    data: bytes
    machine: int
    abi_version: int
    flags: int
    relocatable: bool
    sections: tuple[ElfSection, ...]

    def find_section(self, name: str) -> ElfSection | None:
        """Returns the first section that is called `name`, None if there is none."""
        return self._sections_by_name.get(name)

    @cached_property
    def _sections_by_name(self) -> dict[str, ElfSection]:
        return {section.name: section for section in reversed(self.sections)}

    def read_content(self, section: ElfSection) -> bytes:
        """Returns the section's bytes; b'' for a section without content in the file."""
        if section.kind == _SHT_NOBITS:
            return b""
        cursor = Cursor(self.data, f"{self.source}: section {section.name or section.offset!r}", section.offset)
        return cursor.take(section.size)

    def read_code(self, section: ElfSection, address: int, size: int) -> bytes:
        """Returns `size` bytes of a section's content, from the address `address` on."""
        what = f"{self.source}: section {section.name!r} at address {address:#x}"
        end = section.offset + (section.size if section.kind != _SHT_NOBITS else 0)
        return Cursor(self.data, what, section.offset + address - section.address, end).take(size)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """Symbols defined in a section: from the symbol table or, in a stripped file, the dynamic one."""
        for kind in (_SHT_SYMTAB, _SHT_DYNSYM):
            for table in self.sections:
                if table.kind == kind:
                    return tuple(self._read_symbols(table))
        return ()

    @cached_property
    def functions(self) -> tuple[Symbol, ...]:
        """The symbols of kind STT_FUNC."""
        return tuple(symbol for symbol in self.symbols if symbol.kind == STT_FUNC)

    def size_of(self, function: Symbol) -> int:
        """Returns a function's size in bytes: its symbol's or, if 0 (hand-written code), up to the next function."""
        if function.size:
            return function.size
        section = function.section
        following = bisect.bisect_right(self._function_starts, (section.offset, function.address))
        end = section.address + section.size
        if following < len(self._function_starts) and self._function_starts[following][0] == section.offset:
            end = self._function_starts[following][1]
        return end - function.address

    @cached_property
    def _function_starts(self) -> list[tuple[int, int]]:
        return sorted((function.section.offset, function.address) for function in self.functions)

    def read_notes(self) -> Iterator[ElfNote]:
        """Yields owner, kind and content of every entry in the file's note sections."""
        for section in self.sections:
            if section.kind == _SHT_NOTE:
                cursor = Cursor(self.read_content(section), f"{self.source}: note section {section.name!r}")
                while cursor:
                    owner_bytes, content_bytes, kind = cursor.read_fields(_NOTE)
                    owner = cursor.take(owner_bytes).rstrip(b"\0").decode("utf-8", "backslashreplace")
                    _align_cursor(cursor)
                    yield ElfNote(owner, kind, cursor.take(content_bytes))
                    _align_cursor(cursor)

    def _read_symbols(self, table: ElfSection) -> Iterator[Symbol]:
        if table.entry_size != _SYMBOL.size or table.link >= len(self.sections):
            raise CodeObjectError(
                f"{self.source}: the symbol table {table.name!r} has entries of {table.entry_size} bytes and names in "
                f"section {table.link}; expected {_SYMBOL.size} bytes and one of {len(self.sections)} sections. "
                "Is the file damaged?"
            )
        names = self.read_content(self.sections[table.link])
        entries = Cursor(self.read_content(table), f"{self.source}: the symbol table {table.name!r}")
        for index in range(table.size // _SYMBOL.size):
            name, info, other, section, address, size = entries.read_fields(_SYMBOL)
            if 0 < section < len(self.sections):
                text = Cursor(names, f"{self.source}: a name of {table.name!r}", name).read_string()
                yield Symbol(text, address, size, info & 0xF, other, self.sections[section], index)


def read_elf(data: bytes, source: str) -> Elf:
    """Returns the header and the sections of an ELF file. Raises CodeObjectError, naming `source`, if it is truncated,
    32-bit, big-endian or has no sections."""
    cursor = Cursor(data, f"{source}: the ELF header")
    ident = cursor.take(_IDENT_BYTES)
    if not ident.startswith(ELF_MAGIC) or ident[4:6] != b"\x02\x01":
        raise CodeObjectError(
            f"{source}: begins with {ident[:6].hex(' ')}, expected 7f 45 4c 46 02 01: a code object is a 64-bit "
            "little-endian ELF file"
        )
    kind, machine, _, _, segments, table, flags, _, segment, segment_count, entry, count, names = cursor.read_fields(
        _HEADER
    )
    # Not used, but it is the last part of some files, so this detects a truncated file.
    Cursor(data, f"{source}: the table of segments", segments).skip(segment * segment_count)
    sections = _read_sections(data, source, table, entry, count, names)
    return Elf(source, data, machine, ident[8], flags, kind == _ET_REL, sections)


def _read_sections(data: bytes, source: str, table: int, entry: int, count: int, names: int) -> tuple[ElfSection, ...]:
    what = f"{source}: the table of sections"
    if not table or entry != _SECTION.size:
        raise CodeObjectError(
            f"{what} is at byte {table} with entries of {entry} bytes; expected entries of {_SECTION.size} bytes. "
            "A file whose section headers were stripped cannot be read: keep them"
        )
    first = Cursor(data, what, table).read_fields(_SECTION)
    # A count that does not fit 16 bits in the header is in the first section's header.
    count, names = count or first[5], first[6] if names == _SHN_XINDEX else names
    cursor = Cursor(data, what, table)
    raw = list(_SECTION.iter_unpack(cursor.take(count * _SECTION.size)))
    if names >= len(raw):
        raise CodeObjectError(f"{what} has {len(raw)} entries, and its names in section {names}; is the file damaged?")
    what = f"{source}: a section's name"
    texts = Cursor(data, what, raw[names][4]).take(raw[names][5])
    return tuple(
        ElfSection(Cursor(texts, what, name).read_string(), kind, bits, address, offset, size, link, info, entry_size)
        for name, kind, bits, address, offset, size, link, info, _, entry_size in raw
    )


def _align_cursor(cursor: Cursor) -> None:
    """Advances the cursor to the next multiple of four bytes, or to the end of its range."""
    cursor.skip(min(-cursor.position % 4, cursor.end - cursor.position))


_LEB128_BYTES = 10
"""Most LEB128 bytes of a 64-bit number; more are an error."""

_STRING_BYTES = 1 << 16
"""The longest name in bytes: mangled names of templates reach several thousand."""


class Cursor:
    """A position within `data`. Every method raises CodeObjectError, naming `what`, if the bytes end too early.

    what       file and part, e.g. "k.hsaco: the symbol table"
    position   offset of the next byte
    end        end of the readable range; by default the end of `data`
    """

    def __init__(self, data: bytes, what: str, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.what = what
        self.end = len(data) if end is None else min(end, len(data))
        self.position = position
        if not 0 <= position <= self.end:
            raise CodeObjectError(f"{what} begins at byte {position} of {self.end}; is the file truncated?")

    def __bool__(self) -> bool:
        """Returns whether bytes are left before `end`."""
        return self.position < self.end

    def skip(self, count: int) -> int:
        """Advances by `count` bytes; returns the previous position."""
        begin = self.position
        if not 0 <= count <= self.end - begin:
            raise CodeObjectError(
                f"{self.what} ends at byte {self.end}, but {count} bytes are to be read at byte {begin}; "
                "is the file truncated?"
            )
        self.position += count
        return begin

    def take(self, count: int) -> bytes:
        """Returns the next `count` bytes and advances past them."""
        begin = self.skip(count)
        return self.data[begin : begin + count]

    def read_fields(self, layout: struct.Struct) -> tuple[int, ...]:
        """Returns the next fields of `layout`, which has only integers, and advances past them."""
        return layout.unpack_from(self.data, self.skip(layout.size))

    def read_unsigned(self, size: int) -> int:
        """Reads the next little-endian number of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def read_uleb128(self) -> int:
        """Reads the next unsigned LEB128 number (DWARF 5, section 7.6)."""
        return self._read_leb128()[0]

    def read_sleb128(self) -> int:
        """Reads the next signed LEB128 number."""
        value, bits = self._read_leb128()
        return value - (1 << bits) if value >> (bits - 1) else value

    def read_string(self) -> str:
        """Reads the bytes up to the next zero as UTF-8; escapes invalid bytes."""
        limit = min(self.end, self.position + _STRING_BYTES)
        zero = self.data.find(b"\0", self.position, limit)
        if zero < 0:
            raise CodeObjectError(f"{self.what}: the text at byte {self.position} has no end; is the file damaged?")
        begin, self.position = self.position, zero + 1
        return self.data[begin:zero].decode("utf-8", "backslashreplace")

    def _read_leb128(self) -> tuple[int, int]:
        value = bits = 0
        for _ in range(_LEB128_BYTES):
            byte = self.data[self.skip(1)]
            value |= (byte & 0x7F) << bits
            bits += 7
            if byte < 0x80:
                return value, bits
        raise CodeObjectError(f"{self.what}: the number before byte {self.position} has no end; is the file damaged?")
