from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.elf import read_elf
from pytest_attnperf.codeobject.line_table import LineTable, line_table
from pytest_attnperf.errors import CodeObjectError

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
        section = elf.section(name)
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
    table = line_table(with_table(unit(program, files=files)))
    return [table.place(address) for address in addresses]


@pytest.mark.parametrize(("data", "file"), [(VERSION_5, "/src/two_kernels.hip"), (VERSION_4, "two_kernels.hip")])
def test_stored_objects(data: bytes, file: str) -> None:
    """Lines are those that llvm-dwarfdump prints, between its rows, too; version 4 has no folder."""
    table = line_table(data)
    for address, line in ROWS:
        assert table.place(address) == table.place(address + 3) == ((file, line) if line else None)


def test_outside_of_the_code_there_is_no_line() -> None:
    """Before the first row, between two functions and behind the last row nothing is known."""
    table = line_table(VERSION_5)
    assert table.place(0) is None
    assert table.place(0x18FF) is None
    assert table.place(max(table.addresses)) is None
    assert table.place(2**63) is None


@pytest.mark.parametrize("name", ["saxpy.gfx942.co", "by_hand.gfx942.co", "kernels.sm_90.cubin"])
def test_without_debug_information_it_is_empty(name: str) -> None:
    """An object compiled without -g has no lines; a cubin's are not read."""
    table = line_table((DATA / name).read_bytes())
    assert table == LineTable((), ())
    assert table.place(0x1600) is None


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
    found = line_table(with_table(table, b"a\0b\0c\0"))
    assert [found.place(address) for address in (0x1900, 0x1904, 0x1908)] == [
        ("/src/a", 1),
        ("/src/inner/b", 1),
        ("/abs/c", 1),
    ]


HOSTILE_FILES = {
    "entries of nothing": (b"\x00\xff\xff\xff\xff\x0f", "its line table has 4294967295 entries of nothing"),
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
        line_table(with_table(unit(END, version=5, files=files)))


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
        line_table(with_table(table), "k.co")
    assert str(raised.value).startswith("k.co: ")


def test_compressed_debug_information() -> None:
    """It is not unpacked; the error says how to compile without it."""
    elf = read_elf(VERSION_5, "k")
    section = elf.section(".debug_line")
    assert section is not None
    data = bytearray(VERSION_5)
    struct.pack_into("<Q", data, struct.unpack_from("<Q", data, 0x28)[0] + 64 * elf.sections.index(section) + 8, 0x800)
    with pytest.raises(CodeObjectError, match=r"is compressed; compile it without -gz"):
        line_table(bytes(data))
