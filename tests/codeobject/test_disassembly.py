from __future__ import annotations

import io
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from pytest_attnperf.codeobject import amdgcn, sass
from pytest_attnperf.codeobject.disassembly import disassemble, disassemble_cubin, parse_cubin_listing, parse_listing
from pytest_attnperf.codeobject.instructions import Instruction, Listing
from pytest_attnperf.codeobject.tools import Tool, cuda_tools, find_objdump
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
        return find_objdump(arch)
    except ToolMissingError as error:
        pytest.skip(str(error))


def line(address: int, text: str, words: str) -> str:
    """One line as llvm-objdump prints it."""
    return f"\t{text:<58} // {address:012X}: {words}"


def counts(listing: Listing) -> Counter[str]:
    """Instructions by class."""
    return Counter(amdgcn.classify(one.mnemonic, one.operands) for one in listing.instructions)


def test_every_line_of_the_kernel_is_an_instruction() -> None:
    """What llvm-objdump 22 printed of a kernel for gfx942: 54 instructions in 0x11c bytes, headings left out."""
    text = (DATA / "tile-gfx942.objdump.txt").read_text()
    listing = parse_listing(text, start=START, size=SIZE, place=nowhere)
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
        for one in parse_listing(text, start=START, size=SIZE, place=nowhere).instructions
        if amdgcn.classify(one.mnemonic) == "branch"
    }
    assert jumps == {
        0x1910: 0x1A18,
        0x1964: 0x1994,
        0x1990: 0x1A18,
        0x19A0: 0x1968,
        0x1A10: 0x19C4,
        0x1A14: 0x1978,
    }
    cut = parse_listing(text, start=START, size=0x20, place=nowhere)
    assert cut.instructions[3].target is None


def test_places_come_from_the_caller() -> None:
    """The line table is another part's to read."""
    text = line(0x100, "s_nop 0", "BF800000") + "\n" + line(0x104, "s_endpgm", "BF810000")
    listing = parse_listing(text, start=0x100, size=8, place={0x104: ("/src/a.py", 7)}.get)
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
    listing = parse_listing("\n".join(line(*one) for one in lines), start=0x100, size=size, place=nowhere)
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


PRINTED = (DATA / "tile-sm_90.nvdisasm.txt").read_text()
CUBIN_SIZE = 0x700


def nvdisasm() -> Tool:
    """NVIDIA's disassembler; skips without one."""
    try:
        return cuda_tools("nvdisasm")[0]
    except ToolMissingError as error:
        pytest.skip(str(error))


def test_every_line_of_the_kernel_is_an_instruction_of_nvdisasm() -> None:
    """What nvdisasm 13.1 printed of a kernel for sm_90: 112 instructions of 16 bytes, seven of them HMMA."""
    listing = parse_cubin_listing(PRINTED, symbol="tile", size=CUBIN_SIZE)
    assert listing.undecoded == ""
    assert [one.address for one in listing.instructions] == list(range(0, CUBIN_SIZE, 16))
    assert listing.instructions[0] == Instruction("LDC", "R1, c[0x0][0x28]", 0, place=("/src/tile.py", 10))
    found = Counter(sass.classify(one.mnemonic, one.operands) for one in listing.instructions)
    expected = {"matrix": 7, "global_load_16B": 7, "global_store_16B": 1, "lds_read_16B": 7, "lds_write_16B": 7}
    assert {name: found[name] for name in expected} == expected
    assert found["other"] == 0


def test_labels_are_targets_and_predicates_conditions() -> None:
    """Backwards, forwards, to itself; a conditional branch runs on, the last one does not."""
    listing = parse_cubin_listing(PRINTED, symbol="tile", size=CUBIN_SIZE)
    jumps = {
        one.address: (one.target, one.falls_through)
        for one in listing.instructions
        if sass.classify(one.mnemonic) == "branch"
    }
    assert jumps == {
        0xB0: (0x5E0, True),
        0x140: (0x3A0, True),
        0x390: (0x160, True),
        0x3B0: (0x510, True),
        0x550: (0x5E0, True),
        0x620: (0x620, False),
    }


SECTIONS = """
	.section	.text.first,"ax",@progbits
first:
	//## File "/src/first.py", line 1
        /*0000*/                   EXIT ;
	.section	.text.second,"ax",@progbits
second:
        /*0000*/              @!P0 CALL.REL.NOINC `($second$divide) ;
	//## File "/src/second.py", line 2 inlined at "/src/third.py", line 9
        /*0010*/                   EXIT ;
$second$divide:
        /*0020*/                   RET.REL.NODEC R4 `(second) ;
"""


def test_a_kernel_is_its_own_section() -> None:
    """Neither instructions nor places of another kernel are taken over; a return leads nowhere that is known."""
    listing = parse_cubin_listing(SECTIONS, symbol="second", size=0x30)
    assert listing.undecoded == ""
    assert [(one.mnemonic, one.target, one.place) for one in listing.instructions] == [
        ("CALL.REL.NOINC", 0x20, None),
        ("EXIT", None, ("/src/second.py", 2)),
        ("RET.REL.NODEC", None, ("/src/second.py", 2)),
    ]


@pytest.mark.parametrize(
    ("symbol", "size", "reason"),
    [
        ("third", 16, "nvdisasm shows no code of 'third'"),
        ("fir", 16, "nvdisasm shows no code of 'fir'"),
        ("first", 32, "nvdisasm shows no instruction at 0x10"),
        ("second", 0x40, "nvdisasm shows no instruction at 0x30"),
    ],
)
def test_what_is_missing_is_said(symbol: str, size: int, reason: str) -> None:
    """A kernel that is not there, or shorter than its section."""
    assert parse_cubin_listing(SECTIONS, symbol=symbol, size=size).undecoded == reason


def test_a_gap_is_said() -> None:
    """A line that was not understood is a gap, and no shorter kernel."""
    text = SECTIONS.replace("        /*0010*/                   EXIT ;\n$", "        /*0010*/ ???\n$")
    assert parse_cubin_listing(text, symbol="second", size=0x30).undecoded == "nvdisasm shows no instruction at 0x10"


def test_the_real_disassembler_says_the_same() -> None:
    """A stored cubin through nvdisasm is the listing of what was printed once."""
    elf = (DATA / "tile-sm_90.cubin").read_bytes()
    listing = disassemble_cubin(elf, symbol="tile", size=CUBIN_SIZE, tool=nvdisasm())
    assert listing == parse_cubin_listing(PRINTED, symbol="tile", size=CUBIN_SIZE)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100", "sm_120"])
def test_other_architectures_are_read_as_well(arch: str, tmp_path: Path) -> None:
    """The same kernel for later architectures: all decoded, with its matrix instructions, loads and store."""
    tool = nvdisasm()
    assembler = tool.path.with_name("ptxas")
    if not assembler.exists():
        pytest.skip(f"needs ptxas beside {tool.path}")
    cubin = tmp_path / "tile.cubin"
    command = [str(assembler), f"-arch={arch}", "-lineinfo", str(DATA / "tile.ptx"), "-o", str(cubin)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{assembler} does not compile for {arch}: {done.stderr.strip()}")
    elf = cubin.read_bytes()
    listing = disassemble_cubin(elf, symbol="tile", size=section_bytes(elf, ".text.tile"), tool=tool)
    assert listing.undecoded == ""
    found = Counter(sass.classify(one.mnemonic, one.operands) for one in listing.instructions)
    assert found["matrix"] >= 1
    assert found["global_store_16B"] == 1
    assert found["other"] == 0


def section_bytes(elf: bytes, name: str) -> int:
    """Size of a section."""
    return int(ELFFile(io.BytesIO(elf)).get_section_by_name(name)["sh_size"])


def test_what_is_no_cubin_is_an_error() -> None:
    """The tool's own words are in it."""
    with pytest.raises(CodeObjectError, match=r"nvdisasm exited with status \d+: nvdisasm"):
        disassemble_cubin(b"no cubin", symbol="tile", size=16, tool=nvdisasm())
