from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.elf import read_elf
from pytest_attnperf.codeobject.pc_relative import FarReference, far_references, with_names

DATA = Path(__file__).parents[1] / "data/code_objects"


def words(*values: int) -> bytes:
    """Machine code of these 32-bit words."""
    return struct.pack(f"<{len(values)}I", *values)


NOP = 0xBF800000

# As llvm-objdump 22 prints them: s_getpc_b64 s[4:5]; s_add_u32 s4, s4, LOW; s_addc_u32 s5, s5, HIGH. On gfx1201 waits
# and a sign extension stand between, on gfx1250 one 64-bit addition follows.
SEQUENCES = {
    "gfx90a": (words(0xBE841C00, 0x8004FF04, 0xFFFFEEB0, 0x8205FF05, 0xFFFFFFFF), (8, 16), 4 - 0x1150),
    "gfx942": (words(0xBE801C00, 0x8000FF00, 0x24C4, 0x8201FF01, 0), (8, 16), 4 + 0x24C4),
    "gfx1030": (words(0xBE841F00, 0x8004FF04, 0xFFFFEEB4, 0x8205FF05, 0xFFFFFFFF), (8, 16), 4 - 0x114C),
    "gfx1100": (words(0xBE804700, 0x8000FF00, 0xFFFFEEB4, 0x8201FF01, 0xFFFFFFFF), (8, 16), 4 - 0x114C),
    "gfx1201": (
        words(0xBE804700, 0xBF88FF9E, 0xBE810F01, 0x8000FF00, 0xFFFFEEA4, 0xBF88FF9E, 0x8201FF01, 0xFFFFFFFF),
        (16, 28),
        4 - 0x115C,
    ),
    "gfx1250": (words(0xBE804700, 0xA980FE00, 0xFFFFEE70, 0xFFFFFFFF), (8, 12), 4 - 0x1190),
}


@pytest.mark.parametrize("arch", SEQUENCES)
def test_the_address_of_each_generation(arch: str) -> None:
    """The constants and the address that they make are found in the words that clang 22 writes."""
    code, literals, target = SEQUENCES[arch]
    assert far_references(code, arch) == [FarReference(literals, target)]
    shifted = far_references(words(NOP) + code + words(NOP), arch)
    assert shifted == [FarReference((literals[0] + 4, literals[1] + 4), target + 4)]


@pytest.mark.parametrize(
    ("code", "arch"),
    [
        (SEQUENCES["gfx90a"][0], "gfx1100"),
        (SEQUENCES["gfx1100"][0], "gfx942"),
        (SEQUENCES["gfx90a"][0], "sm_90"),
        (b"\0\0" + SEQUENCES["gfx90a"][0], "gfx90a"),
        (words(0xBE841C00, 0x8006FF06, 0xFFFFEEB0, 0x8207FF07, 0xFFFFFFFF), "gfx90a"),
        (words(0xBE841C00, 0x8205FF05, 0xFFFFFFFF, 0x8004FF04, 0xFFFFEEB0), "gfx90a"),
        (words(0xBE841C00, *[NOP] * 8, 0x8004FF04, 0xFFFFEEB0, 0x8205FF05, 0xFFFFFFFF), "gfx90a"),
        (words(0xBE841C00, 0x8004FF04, 0xFFFFEEB0, 0x8205FF05), "gfx90a"),
        (words(0xBE804700, 0xA980FE00, 0xFFFFEE70), "gfx1250"),
        (words(0xBE841C00, NOP), "gfx90a"),
        (b"", "gfx90a"),
    ],
)
def test_other_code_is_left_alone(code: bytes, arch: str) -> None:
    """Another generation's opcode, other registers, an upper half alone, code that ends too early: no reference."""
    assert far_references(code, arch) == []


def test_an_address_within_the_function_is_no_far_one() -> None:
    """A long jump's distance does not depend on where the function stands."""
    near = words(0xBE841C00, 0x8004FF04, 16, 0x8205FF05, 0) + words(NOP) * 4
    assert far_references(near, "gfx90a") == []
    beyond = words(0xBE841C00, 0x8004FF04, len(near) - 4, 0x8205FF05, 0) + words(NOP) * 4
    assert [found.target for found in far_references(beyond, "gfx90a")] == [len(near)]


def test_real_code() -> None:
    """The stored kernel refers to two functions, a table and a variable; each address is that of its symbol."""
    elf = read_elf((DATA / "two_kernels.gfx90a.co").read_bytes(), "")
    first = next(symbol for symbol in elf.symbols if symbol.name == "first")
    found = far_references(elf.code(first.section, first.address, first.size), "gfx90a")
    by_address = {symbol.address: symbol.name for symbol in elf.symbols}
    names = {by_address[first.address + each.target] for each in found}
    assert names == {"_ZL7look_upfi", "_ZL10differencefi", "_ZL5table", "scale"}


def test_constants_are_blanked_and_named() -> None:
    """Two distances to the same thing are equal code; another thing at the same distance is other code."""
    code, _, _ = SEQUENCES["gfx90a"]
    moved = code[:8] + b"\x10\xee\xff\xff" + code[12:]
    both = [with_names(each, far_references(each, "gfx90a"), [b"table"]) for each in (code, moved)]
    assert both[0] == both[1]
    assert both[0][: len(code)] == code[:8] + bytes(4) + code[12:16] + bytes(4)
    assert with_names(code, far_references(code, "gfx90a"), [b"other"]) != both[0]
    assert with_names(code, [], []) == code
