from __future__ import annotations

import io
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.codeobject.nvdisasm import cubin_listing_of, disassemble_cubin
from pytest_attnperf.codeobject.sass import classify
from pytest_attnperf.codeobject.tools import Tool, cuda_tool
from pytest_attnperf.errors import CodeObjectError, ToolMissingError

DATA = Path(__file__).parents[1] / "data" / "assembly"
PRINTED = (DATA / "tile-sm_90.nvdisasm.txt").read_text()
SIZE = 0x700


def nvdisasm() -> Tool:
    """NVIDIA's disassembler; skips without one."""
    try:
        return cuda_tool("nvdisasm")
    except ToolMissingError as error:
        pytest.skip(str(error))


def test_every_line_of_the_kernel_is_an_instruction() -> None:
    """What nvdisasm 13.1 printed of a kernel for sm_90: 112 instructions of 16 bytes, seven of them HMMA."""
    listing = cubin_listing_of(PRINTED, symbol="tile", size=SIZE)
    assert listing.undecoded == ""
    assert [one.address for one in listing.instructions] == list(range(0, SIZE, 16))
    assert listing.instructions[0] == Instruction("LDC", "R1, c[0x0][0x28]", 0, place=("/src/tile.py", 10))
    found = Counter(classify(one.mnemonic, one.operands) for one in listing.instructions)
    expected = {"matrix": 7, "global_load_16B": 7, "global_store_16B": 1, "lds_read_16B": 7, "lds_write_16B": 7}
    assert {name: found[name] for name in expected} == expected
    assert found["other"] == 0


def test_labels_are_targets_and_predicates_conditions() -> None:
    """Backwards, forwards, to itself; a conditional branch runs on, the last one does not."""
    listing = cubin_listing_of(PRINTED, symbol="tile", size=SIZE)
    jumps = {
        one.address: (one.target, one.falls_through)
        for one in listing.instructions
        if classify(one.mnemonic) == "branch"
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
    listing = cubin_listing_of(SECTIONS, symbol="second", size=0x30)
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
    assert cubin_listing_of(SECTIONS, symbol=symbol, size=size).undecoded == reason


def test_a_gap_is_said() -> None:
    """A line that was not understood is a gap, and no shorter kernel."""
    text = SECTIONS.replace("        /*0010*/                   EXIT ;\n$", "        /*0010*/ ???\n$")
    assert cubin_listing_of(text, symbol="second", size=0x30).undecoded == "nvdisasm shows no instruction at 0x10"


def test_the_real_disassembler_says_the_same() -> None:
    """A stored cubin through nvdisasm is the listing of what was printed once."""
    elf = (DATA / "tile-sm_90.cubin").read_bytes()
    listing = disassemble_cubin(elf, symbol="tile", size=SIZE, tool=nvdisasm())
    assert listing == cubin_listing_of(PRINTED, symbol="tile", size=SIZE)


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
    found = Counter(classify(one.mnemonic, one.operands) for one in listing.instructions)
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
