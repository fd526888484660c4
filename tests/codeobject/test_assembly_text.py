from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.codeobject.amdgcn import classify
from pytest_attnperf.codeobject.assembly_text import read_assembly
from pytest_attnperf.codeobject.disassembly import disassemble
from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.codeobject.tools import objdump
from pytest_attnperf.errors import ToolMissingError

DATA = Path(__file__).parents[1] / "data" / "assembly"

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
        tool = objdump(arch)
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
