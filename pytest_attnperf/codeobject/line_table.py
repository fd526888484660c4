"""Source lines of machine code: DWARF's line number programs, versions 2 to 5 (DWARF 5, section 6.2).

pyelftools is not used, for the reason given in `elf`: a version 5 header may claim any number of entries of no bytes,
and pyelftools makes an object of each. AMD objects only: the addresses in a cubin need its relocations.

`source_lines` lists the source lines of the instructions that move data or multiply matrices.
"""

from __future__ import annotations

import bisect
import posixpath
import stat
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import TypeAlias

from pytest_attnperf.codeobject.elf import EM_AMDGPU, SHF_COMPRESSED, SHF_EXECINSTR, Cursor, Elf, read_elf
from pytest_attnperf.codeobject.instructions import CLASSES, Instruction, Place
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import SourceLine

_LNCT_PATH, _LNCT_DIRECTORY_INDEX = 1, 2
_FORM_STRING, _FORM_LINE_STRP, _FORM_STRP, _FORM_UDATA = 0x08, 0x1F, 0x0E, 0x0F
_FORM_BYTES = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16}
"""DW_FORM_data1, data2, data4, data8, data16."""

_STRING_SECTIONS = {_FORM_LINE_STRP: ".debug_line_str", _FORM_STRP: ".debug_str"}

_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE = 1, 2, 3, 4
_CONST_ADD_PC, _FIXED_ADVANCE_PC = 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2

_ADDRESS_MASK = 2**64 - 1
_HEADER = struct.Struct("<BBB")

Row: TypeAlias = "tuple[int, tuple[str, int] | None]"
"""An address, and the file and line from there on; None if a sequence ends or the compiler added code."""


@dataclass(frozen=True)
class LineTable:
    """Source lines by address.

    addresses   start addresses of places, in order
    places      file and line from that address on, None for code without a line
    """

    addresses: tuple[int, ...]
    places: tuple[tuple[str, int] | None, ...]

    def find_place(self, address: int) -> tuple[str, int] | None:
        """Returns (path, line) of an address, the path as passed to the compiler or absolute; None if unknown."""
        index = bisect.bisect_right(self.addresses, address) - 1
        return self.places[index] if index >= 0 else None


@dataclass(frozen=True)
class _Program:
    """The header of one line number program; `files` maps the program's file numbers to paths."""

    files: dict[int, str]
    instruction_bytes: int
    line_base: int
    line_range: int
    operand_counts: bytes

    @property
    def opcode_base(self) -> int:
        """Number of the first special opcode of the line number program."""
        return len(self.operand_counts) + 1


def read_line_table(elf: bytes, source: str = "the code object") -> LineTable:
    """Returns the line table of an AMD code object's ELF file; an empty one without debug information, and for a cubin.
    Raises CodeObjectError, naming `source`, for an invalid line table."""
    image = read_elf(elf, source)
    section = image.find_section(".debug_line")
    if section is None or image.machine != EM_AMDGPU or image.relocatable:
        return LineTable((), ())
    if section.flags & SHF_COMPRESSED:
        raise CodeObjectError(f"{image.source}: its debug information is compressed; compile it without -gz")
    code = [each for each in image.sections if each.flags & SHF_EXECINSTR]
    rows: list[Row] = []
    for sequence in _read_sequences(image, image.read_content(section)):
        # Functions that the linker removed still have a line table, at address 0.
        if any(each.has_address(sequence[0][0]) for each in code):
            rows += sequence
    # At the same address, the end of one sequence comes before the start of the next.
    rows.sort(key=lambda row: (row[0], row[1] is not None))
    return LineTable(tuple(address for address, _ in rows), tuple(place for _, place in rows))


def _read_sequences(image: Elf, content: bytes) -> Iterator[list[Row]]:
    """Yields the rows of every sequence of ascending addresses; its last row marks the end."""
    begin = 0
    while begin < len(content):
        length = Cursor(content, f"{image.source}: section .debug_line", begin)
        unit = length.read_unsigned(4)
        if unit >= 0xFFFFFFF0:
            raise CodeObjectError(f"{image.source}: its line table is 64-bit DWARF; compile it without -gdwarf64")
        begin = length.position + unit
        cursor = Cursor(content, f"{image.source}: section .debug_line", length.position, begin)
        yield from _run_program(cursor, _read_header(image, cursor))


def _read_header(image: Elf, cursor: Cursor) -> _Program:
    version = cursor.read_unsigned(2)
    if not 2 <= version <= 5:
        raise CodeObjectError(
            f"{image.source}: its line table is DWARF version {version}; only 2 to 5 can be read: use -gdwarf-5"
        )
    if version == 5:
        cursor.skip(2)
    header_bytes = cursor.read_unsigned(4)
    program = cursor.position + header_bytes
    instruction_bytes = cursor.read_unsigned(1)
    operations = cursor.read_unsigned(1) if version >= 4 else 1
    _, line_base, line_range = cursor.read_fields(_HEADER)
    opcode_base = cursor.read_unsigned(1)
    if operations != 1 or not line_range or not opcode_base:
        raise CodeObjectError(
            f"{image.source}: its line table has {operations} operations an instruction, a line range of {line_range} "
            f"and special opcodes from {opcode_base}; is the file damaged?"
        )
    counts = cursor.take(opcode_base - 1)
    files = _read_files(image, cursor) if version == 5 else _read_old_files(cursor)
    cursor.skip(program - cursor.position)
    return _Program(files, instruction_bytes, line_base - 256 if line_base > 127 else line_base, line_range, counts)


def _read_old_files(cursor: Cursor) -> dict[int, str]:
    """Returns file number -> path of a header up to DWARF 4: directories and files count from 1; directory 0 is the
    compiler's, stored elsewhere."""
    directories = [""]
    while directory := cursor.read_string():
        directories.append(directory)
    files: dict[int, str] = {}
    while name := cursor.read_string():
        index, _, _ = cursor.read_uleb128(), cursor.read_uleb128(), cursor.read_uleb128()
        files[len(files) + 1] = posixpath.join(directories[index] if index < len(directories) else "", name)
    return files


def _read_files(image: Elf, cursor: Cursor) -> dict[int, str]:
    """Returns file number -> path of a DWARF 5 header: directories and files count from 0, and directory 0 is the
    compiler's."""
    directories = [path for path, _ in _read_entries(image, cursor)]
    files = {}
    for number, (name, index) in enumerate(_read_entries(image, cursor)):
        directory = directories[index] if index < len(directories) else ""
        files[number] = posixpath.join(*directories[:1], directory, name)
    return files


def _read_entries(image: Elf, cursor: Cursor) -> list[tuple[str, int]]:
    """Returns (path, directory number) for each entry of a DWARF 5 table of directories or files."""
    layout = [(cursor.read_uleb128(), cursor.read_uleb128()) for _ in range(cursor.read_unsigned(1))]
    count = cursor.read_uleb128()
    if not layout and count:
        raise CodeObjectError(f"{image.source}: its line table has {count} entries without data; is the file damaged?")
    entries = []
    for _ in range(count):
        values = {kind: _read_value(image, cursor, form) for kind, form in layout}
        path, directory = values.get(_LNCT_PATH, ""), values.get(_LNCT_DIRECTORY_INDEX, 0)
        entries.append((path if isinstance(path, str) else "", directory if isinstance(directory, int) else 0))
    return entries


def _read_value(image: Elf, cursor: Cursor, form: int) -> str | int:
    """Returns one value of the DWARF form `form`. Each form takes at least one byte, so a false count ends with the
    section. Raises CodeObjectError for an unknown form."""
    if form == _FORM_STRING:
        return cursor.read_string()
    if form in _STRING_SECTIONS:
        section = image.find_section(_STRING_SECTIONS[form])
        offset = cursor.read_unsigned(4)
        texts = image.read_content(section) if section else b""
        return Cursor(texts, f"{image.source}: section {_STRING_SECTIONS[form]}", offset).read_string()
    if form == _FORM_UDATA:
        return cursor.read_uleb128()
    if form in _FORM_BYTES:
        return cursor.read_unsigned(_FORM_BYTES[form])
    raise CodeObjectError(
        f"{image.source}: its line table has a value of DWARF form {form:#x}, which is not known; compile it with "
        "clang's default debug information (-g)"
    )


def _run_program(cursor: Cursor, program: _Program) -> Iterator[list[Row]]:
    """Yields the rows of each sequence of a line number program. It runs the state machine of DWARF 5, section 6.2.2,
    with only the registers for address, file and line."""
    rows: list[Row] = []
    address, file, line = 0, 1, 1
    while cursor:
        opcode = cursor.read_unsigned(1)
        copies = opcode == _COPY
        if opcode >= program.opcode_base:
            steps, lines = divmod(opcode - program.opcode_base, program.line_range)
            address += steps * program.instruction_bytes
            line += program.line_base + lines
            copies = True
        elif opcode == 0:
            end = cursor.read_uleb128() + cursor.position
            extended = cursor.read_unsigned(1)
            if extended == _SET_ADDRESS:
                address = cursor.read_unsigned(8)
            elif extended == _END_SEQUENCE:
                yield [*rows, (address, None)]
                rows, address, file, line = [], 0, 1, 1
            cursor.skip(end - cursor.position)
        elif opcode == _ADVANCE_PC:
            address += cursor.read_uleb128() * program.instruction_bytes
        elif opcode == _ADVANCE_LINE:
            line += cursor.read_sleb128()
        elif opcode == _SET_FILE:
            file = cursor.read_uleb128()
        elif opcode == _CONST_ADD_PC:
            address += (255 - program.opcode_base) // program.line_range * program.instruction_bytes
        elif opcode == _FIXED_ADVANCE_PC:
            address += cursor.read_unsigned(2)
        elif not copies:
            for _ in range(program.operand_counts[opcode - 1]):
                cursor.read_uleb128()
        address &= _ADDRESS_MASK
        if copies:
            # Line 0 is the compiler's own code.
            path = program.files.get(file, "")
            rows.append((address, (path, line) if path and line > 0 else None))


TEXT_CHARACTERS = 120
"""Most characters that are kept of a source line."""

LISTED_CLASSES = frozenset(
    name
    for name in CLASSES
    if name in ("matrix", "barrier") or name.startswith(("global_", "lds_", "scratch_", "image_"))
)
"""Instruction classes for which a source line is listed."""

_LARGEST_FILE_BYTES = 4 << 20


def source_lines(instructions: Sequence[Instruction], classes: Sequence[str]) -> tuple[SourceLine, ...]:
    """Returns the source lines of instructions of `LISTED_CLASSES`, each with its counts by class, in order of their
    first such instruction. Code without a single line (line 0), mainly half of the spill code, is not counted for any
    line. The text is '' if the file cannot be read."""
    counts: dict[Place, Counter[str]] = {}
    for one, name in zip(instructions, classes, strict=True):
        if one.place is not None and one.place[1] > 0 and name in LISTED_CLASSES:
            counts.setdefault(one.place, Counter())[name] += 1
    return tuple(
        SourceLine(PurePath(path).name, line, read_source_line(path, line), _order_classes(found))
        for (path, line), found in counts.items()
    )


def without_numbers(lines: Iterable[SourceLine]) -> tuple[SourceLine, ...]:
    """Returns the lines for a baseline: equal texts of a file become one with line 0 and summed counts, because edits
    change line numbers."""
    merged: dict[tuple[str, str], Counter[str]] = {}
    for line in lines:
        merged.setdefault((line.file, line.text), Counter()).update(line.counts)
    return tuple(SourceLine(file, 0, text, _order_classes(counts)) for (file, text), counts in merged.items())


def _order_classes(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in CLASSES if counts[name]}


def read_source_line(path: str, line: int) -> str:
    """Returns the text of one line, '' if it cannot be read. Reads only regular files of limited size, because the path
    comes from an untrusted object."""
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE_BYTES:
            return ""
        lines = _lines_of(path, status.st_mtime_ns)
    except (OSError, ValueError):
        return ""
    return lines[line - 1].strip()[:TEXT_CHARACTERS].rstrip() if 0 < line <= len(lines) else ""


@lru_cache(maxsize=64)
def _lines_of(path: str, _modified_ns: int) -> tuple[str, ...]:
    return tuple(Path(path).read_text(encoding="utf-8", errors="replace").split("\n"))
