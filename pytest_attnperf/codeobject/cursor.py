"""Reading a stretch of bytes from front to back, never past its end: what it holds may be truncated or made up."""

from __future__ import annotations

import struct

from pytest_attnperf.errors import CodeObjectError

_LEB128_BYTES = 10
"""Of a 64-bit number; a longer one is none."""

_STRING_BYTES = 1 << 16
"""The longest name that is looked for: mangled names of templates reach several thousand bytes."""


class Cursor:
    """A position within `data`. Every method raises CodeObjectError, naming `what`, where the bytes end too early.

    what       file and part, e.g. "k.hsaco: the symbol table"
    position   of the next byte
    end        of what may be read; the end of `data` unless told
    """

    def __init__(self, data: bytes, what: str, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.what = what
        self.end = len(data) if end is None else min(end, len(data))
        self.position = position
        if not 0 <= position <= self.end:
            raise CodeObjectError(f"{what} begins at byte {position} of {self.end}; is the file truncated?")

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return self.position < self.end

    def skip(self, count: int) -> int:
        """Move on by `count` bytes; the position before it."""
        begin = self.position
        if not 0 <= count <= self.end - begin:
            raise CodeObjectError(
                f"{self.what} ends at byte {self.end}, but {count} bytes are to be read at byte {begin}; "
                "is the file truncated?"
            )
        self.position += count
        return begin

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        begin = self.skip(count)
        return self.data[begin : begin + count]

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        """The next fields of a layout that holds integers only."""
        return layout.unpack_from(self.data, self.skip(layout.size))

    def unsigned(self, size: int) -> int:
        """The next little-endian number of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def uleb128(self) -> int:
        """The next unsigned LEB128 number (DWARF 5, section 7.6)."""
        return self._leb128()[0]

    def sleb128(self) -> int:
        """The next signed LEB128 number."""
        value, bits = self._leb128()
        return value - (1 << bits) if value >> (bits - 1) else value

    def string(self) -> str:
        """The bytes up to the next zero, as UTF-8; what is none is escaped."""
        limit = min(self.end, self.position + _STRING_BYTES)
        zero = self.data.find(b"\0", self.position, limit)
        if zero < 0:
            raise CodeObjectError(f"{self.what}: the text at byte {self.position} has no end; is the file damaged?")
        begin, self.position = self.position, zero + 1
        return self.data[begin:zero].decode("utf-8", "backslashreplace")

    def _leb128(self) -> tuple[int, int]:
        value = bits = 0
        for _ in range(_LEB128_BYTES):
            byte = self.data[self.skip(1)]
            value |= (byte & 0x7F) << bits
            bits += 7
            if byte < 0x80:
                return value, bits
        raise CodeObjectError(f"{self.what}: the number before byte {self.position} has no end; is the file damaged?")
