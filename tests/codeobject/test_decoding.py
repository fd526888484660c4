from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType

import pytest

from pytest_attnperf.codeobject import amdgcn, sass
from pytest_attnperf.codeobject.amdgcn import classify
from pytest_attnperf.codeobject.decoding import (
    Decoded,
    decode_machine_code,
    disassembler_version,
    find_loops,
    read_assembly,
)
from pytest_attnperf.codeobject.disassembly import disassemble, parse_cubin_listing, parse_listing
from pytest_attnperf.codeobject.instructions import CLASSES, Instruction, Listing
from pytest_attnperf.codeobject.tools import cuda_tools, find_objdump
from pytest_attnperf.errors import ToolMissingError
from pytest_attnperf.records.code import SourceLine

DATA = Path(__file__).parents[1] / "data" / "assembly"
TILE = {"matrix": 1, "global_load_8B": 2, "global_store_16B": 1, "lds_read_8B": 1, "lds_write_8B": 1, "barrier": 2}
IN_TILE_LOOP = {"matrix": 1, "global_load_8B": 2, "lds_read_8B": 1, "lds_write_8B": 1, "barrier": 2}


TEXT = """
	.text
	.type	other,@function
other:
	s_branch .LBB0_1
.LBB0_1:
	s_endpgm
.Lfunc_end0:
	.size	other, .Lfunc_end0-other
	.p2align	8
	.type	kernel,@function
kernel:                                 ; @kernel
.Lfunc_begin1:
	.file	1 "/src/kernels" "a.py"
	.file	2 "/src/b;c.py"
; %bb.0:
	v_mov_b32_e32 v0, 0                     // v_mfma_f32
	.loc	1 12 7 prologue_end             ; a.py:12:7
	s_load_dwordx2 s[2:3], s[0:1], 0x0      ; 8-byte Folded Reload
	.loc	1 0 7 is_stmt 0                 ; a.py:0:7
	s_cbranch_scc1 .LBB1_2
.LBB1_1:                                ; =>This Inner Loop Header: Depth=1
	.loc	2 3 1
	;;#ASMSTART
	v_dual_fmac_f32 v0, v1, v2 :: v_dual_mul_f32 v3, v4, v5
	;;#ASMEND
	s_cbranch_vccnz .LBB1_1
.LBB1_2:
	.loc	3 9 1
	s_endpgm
.Lfunc_end1:
	.size	kernel, .Lfunc_end1-kernel
	s_nop 0
"""


def objdump_here(arch: str) -> None:
    """Skips where no disassembler knows `arch`."""
    try:
        find_objdump(arch)
    except ToolMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def _no_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine where neither disassembler starts."""
    monkeypatch.setenv("ATTNPERF_LLVM_OBJDUMP", str(tmp_path / "none"))
    monkeypatch.setenv("ATTNPERF_NVDISASM", str(tmp_path / "none"))


def tile(arch: str = "gfx942", *, assembly: str = "", size: int = 284) -> Decoded:
    """The stored kernel."""
    return decode_machine_code((DATA / f"tile-{arch}.co").read_bytes(), arch, "tile", 0x1900, size, assembly=assembly)


def chosen(counts: dict[str, int], names: dict[str, int]) -> dict[str, int]:
    """The counts of these classes."""
    return {name: counts.get(name, 0) for name in names}


def test_an_object_is_counted_in_all_and_inside_loops() -> None:
    """The store of a row is in the outer loop, and so in a loop; the loads of arguments are not."""
    objdump_here("gfx942")
    found = tile()
    assert found.undecoded == ""
    assert chosen(found.instructions, TILE) == TILE
    assert chosen(found.in_loops, TILE) == TILE
    assert (found.instructions["scalar_load"], found.in_loops.get("scalar_load", 0)) == (3, 0)
    assert sum(found.instructions.values()) == 54
    assert found.lines == ()


def test_places_become_source_lines() -> None:
    """What the line table says of an address is the line of the instruction there."""
    objdump_here("gfx942")
    elf = (DATA / "tile-gfx942.co").read_bytes()
    places = {0x1A08: ("/src/tile.hip", 27), 0x19C4: ("/src/tile.hip", 24), 0x1900: ("/src/tile.hip", 19)}
    found = decode_machine_code(elf, "gfx942", "tile", 0x1900, 284, place=places.get)
    assert found.lines == (
        SourceLine("tile.hip", 24, "", {"global_load_8B": 1}),
        SourceLine("tile.hip", 27, "", {"matrix": 1}),
    )


def test_spills_of_gfx90a_are_scratch_and_no_stores() -> None:
    """The compiler noted 32 spills and 33 reloads, all of them buffer accesses; it stores 64 results."""
    objdump_here("gfx90a")
    elf = (DATA / "tile-gfx90a.co").read_bytes()
    found = decode_machine_code(elf, "gfx90a", "spill", 0x1B00, 2448, scratch_bytes=132)
    counts = {name: found.instructions.get(name, 0) for name in ("scratch_store", "scratch_load", "global_store_4B")}
    assert counts == {"scratch_store": 32, "scratch_load": 33, "global_store_4B": 64}


@pytest.mark.usefixtures("_no_tools")
def test_without_a_disassembler_the_assembler_text_is_counted() -> None:
    """It gives what the object gives, and the lines that it names."""
    found = tile(assembly=(DATA / "tile-gfx942.s").read_text())
    assert found.undecoded == ""
    assert chosen(found.instructions, TILE) == TILE
    assert sum(found.instructions.values()) == 54
    assert {line.line: line.counts for line in found.lines if line.file == "tile.hip"} == {
        24: {"global_load_8B": 1, "lds_write_8B": 1},
        26: {"barrier": 1},
        27: {"matrix": 1, "global_load_8B": 1, "lds_read_8B": 1},
        28: {"barrier": 1},
        30: {"global_store_16B": 1},
    }


@pytest.mark.usefixtures("_no_tools")
def test_without_either_the_reason_is_given() -> None:
    """Which tool is missing, and how to get it; for a text without the kernel, that, too."""
    found = tile()
    assert (found.instructions, found.in_loops, found.lines) == ({}, {}, ())
    assert "no llvm-objdump that disassembles gfx942 (LLVM 17 or newer)" in found.undecoded
    assert "apt-get install llvm-22" in found.undecoded
    wrong = tile(assembly="other:\n\ts_endpgm\n")
    assert wrong.undecoded.endswith("; the assembler text holds no function 'tile'")
    nvidia = decode_machine_code((DATA / "tile-sm_90.cubin").read_bytes(), "sm_90", "tile", 0, 0x700)
    assert nvidia.undecoded.startswith("no nvdisasm: ")


def test_what_the_disassembler_does_not_know_is_read_from_the_text() -> None:
    """A size beyond the code leaves words without instructions; the text is whole, without it nothing is known."""
    objdump_here("gfx942")
    assert "words not decoded: 1, the first at 0x2980" in tile(size=0x2000).undecoded
    assert tile(size=0x2000).instructions == {}
    assert chosen(tile(size=0x2000, assembly=(DATA / "tile-gfx942.s").read_text()).instructions, TILE) == TILE


def test_the_next_disassembler_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ROCm whose tool crashes on an object does not hide the working one on PATH."""
    objdump_here("gfx942")
    crashing = tmp_path / "llvm/bin/llvm-objdump"
    crashing.parent.mkdir(parents=True)
    crashing.write_text(
        "#!/bin/sh\n"
        "case $1$3 in --version) echo LLVM version 19.1.7;; *help) echo '  gfx942 - x';; *) kill -ABRT $$;; esac\n"
    )
    crashing.chmod(0o755)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert find_objdump("gfx942").path == crashing
    assert chosen(tile().instructions, TILE) == TILE


@pytest.mark.usefixtures("_no_tools")
def test_calls_leave_loops_unknown_and_everything_counted() -> None:
    """A kernel that calls through a register: instructions are known, loops are not, and that is said."""
    text = "kernel:\n.LBB0_1:\n\ts_swappc_b64 s[30:31], s[2:3]\n\ts_cbranch_scc1 .LBB0_1\n\ts_endpgm\n"
    found = decode_machine_code(b"", "gfx942", "kernel", 0, 12, assembly=text)
    assert found.instructions == {"branch": 1, "call": 1, "end": 1}
    assert (found.in_loops, found.undecoded) == ({}, "loops: calls or indirect branches")


def test_a_cubin_is_counted_as_well() -> None:
    """Through nvdisasm, with its own places."""
    try:
        cuda_tools("nvdisasm")[0]
    except ToolMissingError as error:
        pytest.skip(str(error))
    found = decode_machine_code((DATA / "tile-sm_90.cubin").read_bytes(), "sm_90", "tile", 0, 0x700)
    assert found.undecoded == ""
    assert (found.instructions["matrix"], found.in_loops["matrix"]) == (7, 4)
    assert [(line.file, line.line) for line in found.lines] == [("tile.py", line) for line in (20, 21, 22, 30)]


def test_rubbish_is_a_reason() -> None:
    """Neither disassembler's complaint stops the run."""
    for arch in ("gfx942", "sm_90"):
        found = decode_machine_code(b"rubbish", arch, "tile", 0x1900, 284)
        assert found.instructions == {}
        assert found.undecoded != ""


@pytest.mark.parametrize("name", ["tile-gfx942.objdump.txt", "tile-sm_90.nvdisasm.txt", "tile-gfx942.s"])
def test_damaged_text_never_raises(name: str) -> None:
    """Whatever a tool prints is a listing, complete or with a reason, whose classes and loops can be asked for."""
    text, chance = (DATA / name).read_text(), random.Random(name)
    for _ in range(150):
        damaged = list(text)
        for _ in range(chance.randint(1, 30)):
            at = chance.randrange(len(damaged))
            character = chance.choice("0129afsv_[]:,./*`()@! \n\t\0\u2028;")
            damaged[at : at + chance.randint(0, 20)] = character * chance.choice((1, 1, 1, 5000))
        vendor, listing = listed(name, "".join(damaged))
        classes = [vendor.classify(one.mnemonic, one.operands) for one in listing.instructions]
        assert set(classes) <= set(CLASSES)
        assert find_loops(listing.instructions, classes).members <= {one.address for one in listing.instructions}
        amdgcn.scratch_resource(listing.instructions, "gfx90a", 4)


def listed(name: str, text: str) -> tuple[ModuleType, Listing]:
    """The text read by the reader of its kind, and who classifies it."""
    if "objdump" in name:
        return amdgcn, parse_listing(text, start=0x1900, size=284, place=lambda _address: None)
    if "nvdisasm" in name:
        return sass, parse_cubin_listing(text, symbol="tile", size=0x700)
    return amdgcn, read_assembly(text, "tile")


def test_the_version_names_what_would_decode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are remembered under it: another tool may read the same object in another way."""
    tool = tmp_path / "my-objdump"
    tool.write_text("#!/bin/sh\ncase $3 in --mcpu=help) echo '  gfx942 - x';; *) echo LLVM version 21.1.0;; esac\n")
    tool.chmod(0o755)
    monkeypatch.setenv("ATTNPERF_LLVM_OBJDUMP", str(tool))
    assert disassembler_version("gfx942", assembly=True) == "my-objdump 21.1.0"
    assert disassembler_version("gfx950", assembly=True) == "assembler text"
    assert disassembler_version("gfx950", assembly=False) == "none"


def test_the_function_is_read_from_its_label_to_its_end() -> None:
    """Labels are targets, .loc and .file are places, comments and directives are nothing, addresses are indices."""
    a, b = "/src/kernels/a.py", "/src/b;c.py"
    assert read_assembly(TEXT, "kernel").instructions == (
        Instruction("v_mov_b32_e32", "v0, 0", 0),
        Instruction("s_load_dwordx2", "s[2:3], s[0:1], 0x0", 1, place=(a, 12)),
        Instruction("s_cbranch_scc1", ".LBB1_2", 2, target=5, place=(a, 0)),
        Instruction("v_dual_fmac_f32", "v0, v1, v2 :: v_dual_mul_f32 v3, v4, v5", 3, place=(b, 3)),
        Instruction("s_cbranch_vccnz", ".LBB1_1", 4, target=3, place=(b, 3)),
        Instruction("s_endpgm", "", 5, falls_through=False),
    )


def test_functions_before_it_are_left_out() -> None:
    """Two functions of one text are two listings."""
    first = read_assembly(TEXT, "other")
    assert [(one.mnemonic, one.target) for one in first.instructions] == [("s_branch", 1), ("s_endpgm", None)]


@pytest.mark.parametrize("text", ["", TEXT, "kernel2:\n", "\x00\xff"])
def test_a_text_without_the_function_says_so(text: str) -> None:
    """Nothing read is not an empty kernel."""
    listing = read_assembly(text, "kerne")
    assert listing.instructions == ()
    assert listing.undecoded == "the assembler text holds no function 'kerne'"


@pytest.mark.parametrize(
    ("arch", "symbol", "start", "size"),
    [
        ("gfx90a", "tile", 0x1900, 312),
        ("gfx90a", "spill", 0x1B00, 2448),
        ("gfx942", "tile", 0x1900, 284),
        ("gfx1201", "tile", 0x1900, 436),
    ],
)
def test_it_is_what_the_object_holds(arch: str, symbol: str, start: int, size: int) -> None:
    """Text and object of one compilation hold the same instructions, jumps included, in the same order."""
    try:
        tool = find_objdump(arch)
    except ToolMissingError as error:
        pytest.skip(str(error))
    elf = (DATA / f"tile-{arch}.co").read_bytes()
    listed = disassemble(elf, arch, start=start, size=size, tool=tool).instructions
    read = read_assembly((DATA / f"tile-{arch}.s").read_text(), symbol).instructions
    index_of = {one.address: index for index, one in enumerate(listed)}
    jumps = [None if one.target is None else index_of[one.target] for one in listed]
    assert [one.mnemonic for one in read] == [one.mnemonic for one in listed]
    assert [one.target for one in read] == jumps
    assert [one.falls_through for one in read] == [one.falls_through for one in listed]
    assert [classify(one.mnemonic, one.operands) for one in read] == [
        classify(one.mnemonic, one.operands) for one in listed
    ]
