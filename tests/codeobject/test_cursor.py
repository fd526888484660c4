from __future__ import annotations

import struct

import pytest

from pytest_attnperf.codeobject.cursor import Cursor
from pytest_attnperf.errors import CodeObjectError


def test_it_reads_from_front_to_back() -> None:
    """Every reading begins where the last one ended, and at the end the cursor is false."""
    cursor = Cursor(b"\x01\x02\x03\x04\x05\x06name\0\xff", "k.co: a part", 1)
    assert cursor.unsigned(1) == 2
    assert cursor.fields(struct.Struct("<BH")) == (3, 0x0504)
    assert cursor.take(1) == b"\x06"
    assert cursor.string() == "name"
    assert cursor
    assert cursor.unsigned(1) == 255
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
    assert Cursor(encoded, "").uleb128() == unsigned
    assert Cursor(encoded, "").sleb128() == signed


@pytest.mark.parametrize("read", ["take", "unsigned", "skip"])
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
        Cursor(b"\x80" * 20, "k.co").uleb128()
    with pytest.raises(CodeObjectError, match=r"the text at byte 1 has no end"):
        Cursor(b"\0abc", "k.co", 1).string()
    with pytest.raises(CodeObjectError, match=r"has no end"):
        Cursor(b"a" * 70_000 + b"\0", "k.co").string()


def test_a_text_that_is_no_utf8_is_escaped() -> None:
    """Bytes that are no UTF-8 stay readable in messages."""
    assert Cursor(b"a\xff\0", "k.co").string() == "a\\xff"
