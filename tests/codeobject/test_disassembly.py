from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.amdgcn import classify
from pytest_attnperf.codeobject.disassembly import disassemble, listing_of
from pytest_attnperf.codeobject.instructions import Instruction, Listing
from pytest_attnperf.codeobject.tools import Tool, objdump
from pytest_attnperf.errors import CodeObjectError, ToolMissingError

DATA = Path(__file__).parents[1] / "data" / "assembly"
START, SIZE = 0x1900, 0x11C
FIRST = "words not decoded: 1, the first at 0x100"
SECOND = "words not decoded: 1, the first at 0x104"
SIZES = {"gfx90a": 312, "gfx942": SIZE, "gfx1201": 436}


def nowhere(_address: int) -> None:
    """A kernel without a line table."""


def needed(arch: str) -> Tool:
    """The disassembler of `arch`; skips without one."""
    try:
        return objdump(arch)
    except ToolMissingError as error:
        pytest.skip(str(error))


def line(address: int, text: str, words: str) -> str:
    """One line as llvm-objdump prints it."""
    return f"\t{text:<58} // {address:012X}: {words}"


def counts(listing: Listing) -> Counter[str]:
    """Instructions by class."""
    return Counter(classify(one.mnemonic, one.operands) for one in listing.instructions)


def test_every_line_of_the_kernel_is_an_instruction() -> None:
    """What llvm-objdump 22 printed of a kernel for gfx942: 54 instructions in 0x11c bytes, headings left out."""
    text = (DATA / "tile-gfx942.objdump.txt").read_text()
    listing = listing_of(text, start=START, size=SIZE, place=nowhere)
    assert listing.undecoded == ""
    assert len(listing.instructions) == 54
    assert listing.instructions[0] == Instruction("s_load_dwordx2", "s[2:3], s[0:1], 0x18", 0x1900)
    assert listing.instructions[-1] == Instruction("s_endpgm", "", 0x1A18, falls_through=False)
    found = counts(listing)
    expected = {
        "matrix": 1,
        "global_load_8B": 2,
        "global_store_16B": 1,
        "lds_read_8B": 1,
        "lds_write_8B": 1,
        "barrier": 2,
    }
    assert {name: found[name] for name in expected} == expected


def test_branches_lead_forwards_and_backwards() -> None:
    """The distance is 16 bits with sign, in words after the branch; a target outside the kernel is none."""
    text = (DATA / "tile-gfx942.objdump.txt").read_text()
    jumps = {
        one.address: one.target
        for one in listing_of(text, start=START, size=SIZE, place=nowhere).instructions
        if classify(one.mnemonic) == "branch"
    }
    assert jumps == {
        0x1910: 0x1A18,
        0x1964: 0x1994,
        0x1990: 0x1A18,
        0x19A0: 0x1968,
        0x1A10: 0x19C4,
        0x1A14: 0x1978,
    }
    cut = listing_of(text, start=START, size=0x20, place=nowhere)
    assert cut.instructions[3].target is None


def test_places_come_from_the_caller() -> None:
    """The line table is another part's to read."""
    text = line(0x100, "s_nop 0", "BF800000") + "\n" + line(0x104, "s_endpgm", "BF810000")
    listing = listing_of(text, start=0x100, size=8, place={0x104: ("/src/a.py", 7)}.get)
    assert [one.place for one in listing.instructions] == [None, ("/src/a.py", 7)]


@pytest.mark.parametrize(
    ("lines", "size", "reason"),
    [
        ([(0x100, ".long 0xffffffff", "FFFFFFFF"), (0x104, "s_endpgm", "BF810000")], 8, FIRST),
        ([(0x100, "s_nop 0", "BF800000"), (0x104, "<unknown>", "7FFFFFFF")], 8, SECOND),
        ([(0x100, "s_nop 0", "BF800000"), (0x108, "s_endpgm", "BF810000")], 12, SECOND),
        ([(0x100, "s_nop 0", "BF800000")], 8, SECOND),
        ([(0x104, "s_endpgm", "BF810000")], 8, FIRST),
        ([], 8, FIRST),
    ],
)
def test_what_is_not_decoded_is_said(lines: list[tuple[int, str, str]], size: int, reason: str) -> None:
    """Data among the code, a gap, a missing end and no output at all: never a shorter kernel."""
    listing = listing_of("\n".join(line(*one) for one in lines), start=0x100, size=size, place=nowhere)
    assert listing.undecoded == reason


@pytest.mark.parametrize("arch", SIZES)
def test_the_real_disassembler_decodes_a_real_object(arch: str) -> None:
    """All of the kernel is instructions of known classes, up to its end, and nothing is of its neighbour."""
    elf = (DATA / f"tile-{arch}.co").read_bytes()
    listing = disassemble(elf, arch, start=START, size=SIZES[arch], tool=needed(arch))
    assert listing.undecoded == ""
    found = counts(listing)
    assert (found["matrix"], found["end"], found["other"]) == (1, 1, 0)
    assert listing.instructions[0].address == START
    assert listing.instructions[-1].address == START + SIZES[arch] - 4


@pytest.mark.parametrize("arch", SIZES)
def test_words_that_are_no_instruction_are_said_by_the_real_one(arch: str) -> None:
    """Two words of ones, as data among the code would look, are reported and not skipped."""
    elf = (DATA / f"tile-{arch}.co").read_bytes()
    damaged = elf.replace(first_words(elf), b"\xff" * 8, 1)
    listing = disassemble(damaged, arch, start=START, size=SIZES[arch], tool=needed(arch))
    assert listing.undecoded == "words not decoded: 2, the first at 0x1900"


def first_words(elf: bytes) -> bytes:
    """The kernel's first eight bytes: .text is mapped with its offset 0x1000 below its address."""
    return elf[START - 0x1000 : START - 0x1000 + 8]


def test_upper_halves_of_registers_are_known_on_gfx1201() -> None:
    """`v_cvt_f16_f32 v114.h, v122`, which Triton's compiler writes, is an instruction and no data."""
    elf = (DATA / "tile-gfx1201.co").read_bytes()
    halves = bytes.fromhex("7a15e47f 7c15e67f")
    listing = disassemble(
        elf.replace(first_words(elf), halves, 1), "gfx1201", start=START, size=SIZES["gfx1201"], tool=needed("gfx1201")
    )
    assert listing.undecoded == ""
    assert [one.mnemonic for one in listing.instructions[:2]] == ["v_cvt_f16_f32_e32"] * 2


def test_a_failing_tool_is_an_error(tmp_path: Path) -> None:
    """A disassembler that crashes on an architecture has listed nothing."""
    crashing = tmp_path / "llvm-objdump-19"
    crashing.write_text("#!/bin/sh\necho 'PLEASE submit a bug report' >&2\nkill -ABRT $$\n")
    crashing.chmod(0o755)
    with pytest.raises(CodeObjectError, match=r"llvm-objdump-19 exited with status -6 \(SIGABRT\): PLEASE submit"):
        disassemble(b"", "gfx950", start=0, size=4, tool=Tool(crashing, "19.1.7"))
