from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.elf import read_elf
from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.codeobject.line_table import (
    TEXT_CHARACTERS,
    LineTable,
    read_line_table,
    source_lines,
    without_numbers,
)
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import SourceLine

DATA = Path(__file__).parents[1] / "data/code_objects"
VERSION_5 = (DATA / "lines5.gfx942.co").read_bytes()
VERSION_4 = (DATA / "lines4.gfx942.co").read_bytes()

# Some of the rows that llvm-dwarfdump 22 --debug-line prints for both; 0 is code of the compiler's own.
ROWS = [(0x1900, 13), (0x1934, 13), (0x1938, 14), (0x1A00, 17), (0x1A10, 0), (0x1A14, 18), (0x1C00, 22), (0x1C28, 23)]


def with_table(table: bytes, strings: bytes = b"") -> bytes:
    """The version 5 object with another line table, and with other texts behind it for DW_FORM_line_strp."""
    elf = read_elf(VERSION_5, "k")
    data = bytearray(VERSION_5 + table + strings)
    headers = struct.unpack_from("<Q", data, 0x28)[0]
    for name, offset, size in [
        (".debug_line", len(VERSION_5), len(table)),
        (".debug_line_str", len(VERSION_5) + len(table), len(strings)),
    ]:
        section = elf.find_section(name)
        assert section is not None
        struct.pack_into("<QQ", data, headers + 64 * elf.sections.index(section) + 24, offset, size)
    return bytes(data)


def unit(program: bytes, *, version: int = 4, files: bytes = b"", base: int = 13, line_range: int = 14) -> bytes:
    """One line number program: clang's header, with four-byte instructions, lines from -5 and these files."""
    counts = bytes([0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1])[: base - 1]
    fields = bytes([4, 1, 1, 0x100 - 5, line_range, base]) + counts + files
    middle = b"\x08\x00" if version == 5 else b""
    content = struct.pack("<H", version) + middle + struct.pack("<I", len(fields)) + fields + program
    return struct.pack("<I", len(content)) + content


def at(address: int) -> bytes:
    """The instruction that sets the address."""
    return b"\x00\x09\x02" + struct.pack("<Q", address)


OLD_FILES = b"/include\0deep/er\0\0" + b"k.hip\0\0\0\0" + b"math.h\0\x01\0\0" + b"f.h\0\x02\0\0" + b"lost.h\0\x09\0\0\0"
END = b"\x00\x01\x01"
COPY = b"\x01"


def places(program: bytes, *addresses: int, files: bytes = OLD_FILES) -> list[tuple[str, int] | None]:
    """Where a program says these addresses come from."""
    table = read_line_table(with_table(unit(program, files=files)))
    return [table.find_place(address) for address in addresses]


@pytest.mark.parametrize(("data", "file"), [(VERSION_5, "/src/two_kernels.hip"), (VERSION_4, "two_kernels.hip")])
def test_stored_objects(data: bytes, file: str) -> None:
    """Lines are those that llvm-dwarfdump prints, between its rows, too; version 4 has no folder."""
    table = read_line_table(data)
    for address, line in ROWS:
        assert table.find_place(address) == table.find_place(address + 3) == ((file, line) if line else None)


def test_outside_of_the_code_there_is_no_line() -> None:
    """Before the first row, between two functions and behind the last row nothing is known."""
    table = read_line_table(VERSION_5)
    assert table.find_place(0) is None
    assert table.find_place(0x18FF) is None
    assert table.find_place(max(table.addresses)) is None
    assert table.find_place(2**63) is None


@pytest.mark.parametrize("name", ["saxpy.gfx942.co", "by_hand.gfx942.co", "kernels.sm_90.cubin"])
def test_without_debug_information_it_is_empty(name: str) -> None:
    """An object compiled without -g has no lines; a cubin's are not read."""
    table = read_line_table((DATA / name).read_bytes())
    assert table == LineTable((), ())
    assert table.find_place(0x1600) is None


def test_every_instruction_of_a_program() -> None:
    """Special opcodes, advances of both kinds, other files and the opcodes that change neither line nor address."""
    program = (
        at(0x1900)
        + COPY
        + b"\x03\x05\x02\x02"
        + COPY
        + bytes([13 + 14 * 3 + 5 + 2])
        + b"\x04\x02\x08"
        + COPY
        + b"\x09\x08\x00\x03\x7f"
        + COPY
        + b"\x05\x07\x06\x07\x0a\x0b\x0c\x01"
        + bytes([13 + 14 * 1 + 5])
        + b"\x02\x01"
        + END
    )
    addresses = [0x1900, 0x1908, 0x1914, 0x1958, 0x1960, 0x1964, 0x1968]
    expected = [("k.hip", 1), ("k.hip", 6), ("k.hip", 8), ("/include/math.h", 8), ("/include/math.h", 7)]
    assert places(program, *addresses) == [*expected, ("/include/math.h", 7), None]


def test_files_of_older_versions() -> None:
    """Directories count from one; a relative one, and a number beyond them, leave what is known."""
    program = at(0x1900) + b"".join(bytes([4, number]) + COPY + b"\x02\x01" for number in (1, 2, 3, 4, 9)) + END
    assert places(program, *range(0x1900, 0x1914, 4)) == [
        ("k.hip", 1),
        ("/include/math.h", 1),
        ("deep/er/f.h", 1),
        ("lost.h", 1),
        None,
    ]


def test_a_line_of_the_compilers_own() -> None:
    """Line 0 is code of the compiler's: it has no place, and takes none over from the row before."""
    program = at(0x1900) + COPY + b"\x02\x01\x03\x7f" + COPY + b"\x02\x01\x03\x05" + COPY + b"\x02\x01" + END
    assert places(program, 0x1900, 0x1904, 0x1908) == [("k.hip", 1), None, ("k.hip", 5)]


def test_sequences_are_put_in_order() -> None:
    """A later sequence of lower addresses is found, one may begin where another ends, dropped code is not there."""
    rows = [(0x1A00, 2), (0x1900, 3), (0, 5)]
    program = b"".join(at(address) + b"\x03" + bytes([line]) + COPY + b"\x02\x40" + END for address, line in rows)
    assert places(program, 0x19FF, 0x1A00, 0x1AFF, 0x1B00, 0x10) == [
        ("k.hip", 4),
        ("k.hip", 3),
        ("k.hip", 3),
        None,
        None,
    ]


def test_an_unknown_extended_instruction_is_passed_over() -> None:
    """Its length says where the next one begins."""
    assert places(at(0x1900) + b"\x00\x03\x04\x01\x02" + COPY + b"\x02\x01" + END, 0x1900) == [("k.hip", 1)]


def test_files_of_version_5() -> None:
    """Numbers of directories and files are bytes, halves or LEB128 numbers, names stand within or in a text section."""
    directories = b"\x01\x01\x08\x03" + b"/src\0" + b"inner\0" + b"/abs\0"
    names = b"\x03\x01\x1f\x02\x05\x05\x1e\x03"
    rows = [struct.pack("<IH", offset, index) + bytes(16) for offset, index in [(0, 0), (2, 1), (4, 2)]]
    program = at(0x1900) + b"".join(bytes([4, number]) + COPY + b"\x02\x01" for number in (0, 1, 2)) + END
    table = unit(program, version=5, files=directories + names + b"".join(rows))
    found = read_line_table(with_table(table, b"a\0b\0c\0"))
    assert [found.find_place(address) for address in (0x1900, 0x1904, 0x1908)] == [
        ("/src/a", 1),
        ("/src/inner/b", 1),
        ("/abs/c", 1),
    ]


HOSTILE_FILES = {
    "entries of nothing": (b"\x00\xff\xff\xff\xff\x0f", "its line table has 4294967295 entries without data"),
    "more entries than bytes": (b"\x01\x01\x08\xff\xff\xff\xff\x0f/src\0", "is the file (truncated|damaged)"),
    "an unknown form": (b"\x01\x01\x19\x01", "a value of DWARF form 0x19, which is not known"),
    "a name outside of its section": (
        b"\x01\x01\x1f\x01\xff\xff\0\0",
        "section .debug_line_str begins at byte 65535 of",
    ),
}


@pytest.mark.parametrize("case", HOSTILE_FILES)
def test_hostile_files_of_version_5(case: str) -> None:
    """A header that claims billions of files, or forms that take no byte, is an error at once."""
    files, expected = HOSTILE_FILES[case]
    with pytest.raises(CodeObjectError, match=expected):
        read_line_table(with_table(unit(END, version=5, files=files)))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (b"\x01\x00", "section .debug_line ends at byte 2, but 4 bytes"),
        (b"\xff\xff\xff\xff" + bytes(8), "is 64-bit DWARF; compile it without -gdwarf64"),
        (struct.pack("<IH", 2, 9), "its line table is DWARF version 9; only 2 to 5"),
        (struct.pack("<IH", 2, 4), "section .debug_line ends at byte 6, but 4 bytes"),
        (unit(END, files=OLD_FILES, line_range=0), "a line range of 0"),
        (unit(END, files=OLD_FILES, base=0), "special opcodes from 0"),
        (unit(END, files=b"/include"), "has no end"),
        (unit(b"\x00\x09\x02\x01", files=OLD_FILES), "section .debug_line ends at byte"),
        (unit(b"\x00\x02\x02" + bytes(8), files=OLD_FILES), "-7 bytes are to be read"),
        (unit(b"\x02" + b"\x80" * 12, files=OLD_FILES), "has no end"),
    ],
)
def test_a_damaged_table(table: bytes, expected: str) -> None:
    """Whatever is cut short, or is no line table, is an error that says what and where."""
    with pytest.raises(CodeObjectError, match=expected) as raised:
        read_line_table(with_table(table), "k.co")
    assert str(raised.value).startswith("k.co: ")


def test_compressed_debug_information() -> None:
    """It is not unpacked; the error says how to compile without it."""
    elf = read_elf(VERSION_5, "k")
    section = elf.find_section(".debug_line")
    assert section is not None
    data = bytearray(VERSION_5)
    struct.pack_into("<Q", data, struct.unpack_from("<Q", data, 0x28)[0] + 64 * elf.sections.index(section) + 8, 0x800)
    with pytest.raises(CodeObjectError, match=r"is compressed; compile it without -gz"):
        read_line_table(bytes(data))


def placed(*rows: tuple[str, str, int] | tuple[str]) -> tuple[list[Instruction], list[str]]:
    """Instructions and their classes, from (class, path, line); without a path they have no place."""
    made = [Instruction("x", "", at, place=row[1:] if len(row) == 3 else None) for at, row in enumerate(rows)]
    return made, [row[0] for row in rows]


def test_lines_stand_in_order_of_their_first_instruction_with_their_text(tmp_path: Path) -> None:
    """Counted by class in the order of CLASSES; arithmetic, and code without a place, is left out."""
    source = tmp_path / "kernel.py"
    source.write_text("def kernel():\n    k = tl.load(k_ptr)\n    s = tl.dot(q, k)\n")
    path = str(source)
    rows = (
        ("valu", path, 1),
        ("matrix", path, 3),
        ("lds_read_8B", path, 2),
        ("global_load_16B", path, 2),
        ("matrix", path, 3),
        ("lds_read_8B", path, 2),
        ("barrier",),
        ("scratch_store", path, 3),
    )
    assert source_lines(*placed(*rows)) == (
        SourceLine("kernel.py", 3, "s = tl.dot(q, k)", {"matrix": 2, "scratch_store": 1}),
        SourceLine("kernel.py", 2, "k = tl.load(k_ptr)", {"global_load_16B": 1, "lds_read_8B": 2}),
    )
    assert list(source_lines(*placed(*rows))[1].counts) == ["global_load_16B", "lds_read_8B"]


@pytest.mark.parametrize("name", ["wait", "nop", "salu", "scalar_load", "branch", "cross_lane", "agpr_move", "other"])
def test_what_moves_no_data_lists_no_line(name: str) -> None:
    """The list is for data and matrices."""
    assert source_lines(*placed((name, "/src/a.py", 1))) == ()


@pytest.mark.parametrize(
    "name",
    ["matrix", "barrier", "global_atomic", "global_store_4B", "global_load_lds_16B", "image_store", "lds_atomic"],
)
def test_what_moves_data_lists_its_line(name: str) -> None:
    """Loads and stores of every kind, atomics, barriers."""
    assert source_lines(*placed((name, "/src/a.py", 1))) == (SourceLine("a.py", 1, "", {name: 1}),)


def test_code_of_no_line_is_in_no_line() -> None:
    """The compiler writes line 0 for what it made itself, spill code for instance."""
    assert source_lines(*placed(("scratch_load", "/src/a.py", 0))) == ()


def test_a_text_is_cut(tmp_path: Path) -> None:
    """A line of a thousand characters is not kept."""
    source = tmp_path / "long.py"
    source.write_text("   " + "x" * 1000)
    assert source_lines(*placed(("matrix", str(source), 1)))[0].text == "x" * TEXT_CHARACTERS


def test_what_cannot_be_read_has_no_text(tmp_path: Path) -> None:
    """Missing, a folder, a pipe that nobody writes to, a line behind the end, no path at all, a huge file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "short.py").write_text("one line\n")
    with (tmp_path / "huge.py").open("wb") as file:
        file.truncate(5 << 20)
    names = [("missing.py", 1), ("", 1), ("pipe", 1), ("short.py", 9), ("a\0b", 1), ("huge.py", 1)]
    lines = source_lines(*placed(*(("matrix", str(tmp_path / name), line) for name, line in names)))
    assert [line.text for line in lines] == [""] * len(names)


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    """A session that compiles twice shows the text of each time."""
    source = tmp_path / "kernel.py"
    source.write_text("before")
    assert source_lines(*placed(("matrix", str(source), 1)))[0].text == "before"
    source.write_text("after")
    os.utime(source, ns=(1, 1))
    assert source_lines(*placed(("matrix", str(source), 1)))[0].text == "after"


def test_without_numbers_equal_texts_of_a_file_are_one() -> None:
    """Counts add up, in the order of CLASSES; equal texts of two files stay two."""
    lines = (
        SourceLine("a.py", 3, "x = tl.load(p)", {"lds_write_4B": 2}),
        SourceLine("b.py", 3, "x = tl.load(p)", {"matrix": 1}),
        SourceLine("a.py", 9, "x = tl.load(p)", {"global_load_4B": 1, "lds_write_4B": 1}),
    )
    assert without_numbers(lines) == (
        SourceLine("a.py", 0, "x = tl.load(p)", {"global_load_4B": 1, "lds_write_4B": 3}),
        SourceLine("b.py", 0, "x = tl.load(p)", {"matrix": 1}),
    )
    assert list(without_numbers(lines)[0].counts) == ["global_load_4B", "lds_write_4B"]
    assert without_numbers(without_numbers(lines)) == without_numbers(lines)
