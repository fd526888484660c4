from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.elf import EM_AMDGPU, EM_CUDA, Cursor, Elf, ElfSection, Symbol, read_elf
from pytest_attnperf.errors import CodeObjectError

DATA = Path(__file__).parents[1] / "data/code_objects"
SECTION_TABLE = 0x28
SECTION_ENTRY = 0x3A
SECTION_COUNT = 0x3C
SECTION_NAMES = 0x3E


def opened(name: str) -> Elf:
    """A stored object."""
    return read_elf((DATA / name).read_bytes(), name)


def changed(name: str, position: int, value: bytes) -> bytes:
    """A stored object with these bytes overwritten."""
    data = bytearray((DATA / name).read_bytes())
    data[position : position + len(value)] = value
    return bytes(data)


def header_of(name: str, section: str) -> int:
    """Where the header of a section stands in a stored object."""
    data = (DATA / name).read_bytes()
    index = next(index for index, each in enumerate(opened(name).sections) if each.name == section)
    begin: int = struct.unpack_from("<Q", data, SECTION_TABLE)[0]
    return begin + 64 * index


def test_header_and_sections() -> None:
    """Machine, flags and the sections are those that `llvm-readelf -h -S` prints."""
    elf = opened("saxpy.gfx942.co")
    assert (elf.machine, elf.flags, elf.abi_version, elf.relocatable) == (EM_AMDGPU, 0x54C, 4, False)
    assert len(elf.sections) == 16
    text = elf.find_section(".text")
    assert text is not None
    assert (text.kind, text.flags, text.address, text.offset, text.size) == (1, 6, 0x1600, 0x600, 0x480)
    assert text.has_address(0x1600)
    assert not text.has_address(0x1A80)
    assert elf.find_section(".absent") is None
    assert opened("kernels.sm_90.cubin").machine == EM_CUDA


def test_symbols_and_their_bytes() -> None:
    """Symbols are those of the symbol table that are defined in a section, with their bytes."""
    elf = opened("two_kernels.gfx90a.co")
    found = {symbol.name: symbol for symbol in elf.symbols}
    first = found["first"]
    assert (first.address, first.size, first.kind, first.section.name) == (0x1A00, 264, 2, ".text")
    assert "first.num_vgpr" not in found
    assert "" not in found
    assert {function.name for function in elf.functions} == {
        "first",
        "second",
        "_ZL7look_upfi",
        "_ZL10differencefi",
    }
    descriptor = found["second.kd"]
    assert len(elf.read_code(descriptor.section, descriptor.address, 64)) == 64
    table = found["_ZL5table"]
    assert struct.unpack("<5f", elf.read_code(table.section, table.address, 20)) == (1, 2, 3, 4, 5)


def test_a_stripped_object_has_its_dynamic_symbols() -> None:
    """Without a symbol table, the symbols that the loader needs are read."""
    name = "saxpy.gfx942.co"
    stripped = read_elf(changed(name, header_of(name, ".symtab") + 4, struct.pack("<I", 1)), name)
    assert {symbol.name for symbol in stripped.symbols} >= {"saxpy", "saxpy.kd"}


def test_an_object_without_symbols_has_none() -> None:
    """No table at all is no error here."""
    elf = opened("saxpy.gfx942.co")
    bare = Elf("k", elf.data, elf.machine, elf.abi_version, elf.flags, False, sections=elf.sections[:1])
    assert bare.symbols == ()


def test_a_function_without_a_size_reaches_to_the_next() -> None:
    """The size of a hand-written function ends at the next one of its section, or where the section does."""
    text = ElfSection(".text", 1, 6, 0x100, 0, 0x80, 0, 0, 0)
    other = ElfSection(".more", 1, 6, 0x100, 0x200, 0x40, 0, 0, 0)
    functions = [
        Symbol(name, address, size, 2, 0, section, 0)
        for name, address, size, section in [
            ("sized", 0x100, 8, text),
            ("first", 0x110, 0, text),
            ("last", 0x140, 0, text),
            ("alone", 0x100, 0, other),
        ]
    ]
    elf = Elf("k", b"", EM_AMDGPU, 4, 0, False, (text, other))
    elf.__dict__["functions"] = tuple(functions)
    assert [elf.size_of(function) for function in functions] == [8, 0x30, 0x40, 0x40]


def test_notes() -> None:
    """Notes have an owner, a kind and their content."""
    (note,) = opened("saxpy.gfx942.co").read_notes()
    assert (note.owner, note.kind) == ("AMDGPU", 32)
    assert b"amdhsa.kernels" in note.content


def test_a_section_without_room_in_the_file_is_empty() -> None:
    """Of an uninitialised section nothing is read, whatever its size; nothing is allocated for it."""
    elf = opened("kernels.sm_90.cubin")
    shared = elf.find_section(".nv.shared.reversed")
    assert shared is not None
    assert (shared.size, elf.read_content(shared)) == (2048, b"")
    with pytest.raises(CodeObjectError, match=r"at address 0x0 ends at byte"):
        elf.read_code(shared, 0, 4)


@pytest.mark.parametrize(
    ("position", "value", "expected"),
    [
        (0, b"\x7fELG", "begins with 7f 45 4c 47 02 01"),
        (4, b"\x01", "a code object is a 64-bit little-endian ELF file"),
        (5, b"\x02", "a code object is a 64-bit little-endian ELF file"),
        (SECTION_TABLE, bytes(8), "section headers were stripped cannot be read"),
        (SECTION_TABLE, b"\xff" * 8, "the table of sections begins at byte 18446744073709551615"),
        (SECTION_ENTRY, b"\0\0", "entries of 0 bytes; expected entries of 64"),
        (SECTION_COUNT, b"\xff\xfe", "the table of sections ends at byte 4560"),
        (SECTION_NAMES, b"\x40\x00", "has 16 entries, and its names in section 64"),
    ],
)
def test_a_damaged_header_is_named(position: int, value: bytes, expected: str) -> None:
    """Every field of the header that leads astray is an error that names the file, the value and what was expected."""
    with pytest.raises(CodeObjectError, match=expected) as raised:
        read_elf(changed("saxpy.gfx942.co", position, value), "k.co")
    assert str(raised.value).startswith("k.co: ")


def test_counts_that_do_not_fit_the_header() -> None:
    """Where the header says 0 sections and names in 0xffff, the first section's header holds both numbers."""
    name = "saxpy.gfx942.co"
    whole = opened(name)
    data = bytearray((DATA / name).read_bytes())
    (names,) = struct.unpack_from("<H", data, SECTION_NAMES)
    struct.pack_into("<HH", data, SECTION_COUNT, 0, 0xFFFF)
    first = header_of(name, "")
    struct.pack_into("<QII", data, first + 32, len(whole.sections), names, 0)
    assert [each.name for each in read_elf(bytes(data), name).sections] == [each.name for each in whole.sections]
    struct.pack_into("<Q", data, first + 32, 2**40)
    with pytest.raises(CodeObjectError, match=r"70368744177664 bytes are to be read"):
        read_elf(bytes(data), name)


@pytest.mark.parametrize(
    ("section", "field", "value", "expected"),
    [
        (".text", 32, 2**63, "section '.text'"),
        (".text", 24, 2**62, "section '.text' begins at byte"),
        (".symtab", 56, 0, "the symbol table '.symtab' has entries of 0 bytes"),
        (".symtab", 32, 2**40, "section '.symtab' ends at byte"),
        (".symtab", 40, 0xFFFF, "names in section 65535; expected 24 bytes and one of 16 sections"),
        (".strtab", 32, 3, "a name of '.symtab' begins at byte 202 of 3"),
        (".note", 32, 6, "note section '.note' ends at byte 6, but 12 bytes"),
    ],
)
def test_a_damaged_section_is_named(section: str, field: int, value: int, expected: str) -> None:
    """A section that reaches beyond the file, or whose entries are none, is an error when it is read."""
    name = "saxpy.gfx942.co"
    layout = "<I" if field == 40 else "<Q"
    elf = read_elf(changed(name, header_of(name, section) + field, struct.pack(layout, value)), "k.co")
    with pytest.raises(CodeObjectError, match=expected):
        for each in elf.sections:
            elf.read_content(each)
        len(elf.symbols), list(elf.read_notes())


@pytest.mark.parametrize("field", [0, 4])
def test_a_note_of_hostile_size_is_named(field: int) -> None:
    """A note whose owner or content is larger than its section is an error, and nothing is allocated for it."""
    name = "saxpy.gfx942.co"
    note = opened(name).find_section(".note")
    assert note is not None
    elf = read_elf(changed(name, note.offset + field, b"\xf0\xff\xff\xff"), "k.co")
    with pytest.raises(CodeObjectError, match=r"note section '.note' ends at byte 612, but 4294967280 bytes"):
        list(elf.read_notes())


def test_every_truncation_is_an_error() -> None:
    """A file cut short anywhere cannot be read; the table of sections stands at its end."""
    data = (DATA / "by_hand.gfx942.co").read_bytes()
    for size in range(len(data)):
        with pytest.raises(CodeObjectError, match=r"k.co"):
            read_elf(data[:size], "k.co")


def test_it_reads_from_front_to_back() -> None:
    """Every reading begins where the last one ended, and at the end the cursor is false."""
    cursor = Cursor(b"\x01\x02\x03\x04\x05\x06name\0\xff", "k.co: a part", 1)
    assert cursor.read_unsigned(1) == 2
    assert cursor.read_fields(struct.Struct("<BH")) == (3, 0x0504)
    assert cursor.take(1) == b"\x06"
    assert cursor.read_string() == "name"
    assert cursor
    assert cursor.read_unsigned(1) == 255
    assert not cursor


@pytest.mark.parametrize(
    ("encoded", "unsigned", "signed"),
    [
        (b"\x02", 2, 2),
        (b"\x7f", 127, -1),
        (b"\x80\x01", 128, 128),
        (b"\xff\x00", 127, 127),
        (b"\x80\x7f", 16256, -128),
        (b"\xe5\x8e\x26", 624485, 624485),
    ],
)
def test_leb128(encoded: bytes, unsigned: int, signed: int) -> None:
    """The examples of DWARF 5, section 7.6, and the borders between their bytes."""
    assert Cursor(encoded, "").read_uleb128() == unsigned
    assert Cursor(encoded, "").read_sleb128() == signed


@pytest.mark.parametrize("read", ["take", "read_unsigned", "skip"])
def test_the_end_is_an_error(read: str) -> None:
    """Reading beyond the end, or backwards, names what was read, where, and where it ends."""
    cursor = Cursor(bytes(8), "k.co: a part", 2, end=6)
    with pytest.raises(CodeObjectError, match=r"k.co: a part ends at byte 6, but 5 bytes are to be read at byte 2"):
        getattr(cursor, read)(5)
    with pytest.raises(CodeObjectError, match=r"-1 bytes"):
        cursor.skip(-1)
    assert cursor.take(4) == bytes(4)


def test_an_end_beyond_the_data_is_its_end() -> None:
    """Whatever a header claims, no more is read than there is."""
    with pytest.raises(CodeObjectError, match=r"ends at byte 3"):
        Cursor(b"abc", "k.co: a part", end=100).take(4)


@pytest.mark.parametrize("position", [-1, 4, 2**64])
def test_a_begin_outside_is_an_error(position: int) -> None:
    """A part that begins outside of the data is refused at once."""
    with pytest.raises(CodeObjectError, match=rf"k.co: a part begins at byte {position} of 3"):
        Cursor(b"abc", "k.co: a part", position)


def test_numbers_and_texts_without_an_end() -> None:
    """A LEB128 number of more than ten bytes and a text without a zero are errors that say where."""
    with pytest.raises(CodeObjectError, match=r"the number before byte 10 has no end"):
        Cursor(b"\x80" * 20, "k.co").read_uleb128()
    with pytest.raises(CodeObjectError, match=r"the text at byte 1 has no end"):
        Cursor(b"\0abc", "k.co", 1).read_string()
    with pytest.raises(CodeObjectError, match=r"has no end"):
        Cursor(b"a" * 70_000 + b"\0", "k.co").read_string()


def test_a_text_that_is_no_utf8_is_escaped() -> None:
    """Bytes that are no UTF-8 stay readable in messages."""
    assert Cursor(b"a\xff\0", "k.co").read_string() == "a\\xff"
