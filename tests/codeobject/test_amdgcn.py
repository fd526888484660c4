from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.amdgcn import (
    PEAK_FLOPS_PER_CYCLE,
    MatrixStep,
    classify,
    falls_through,
    read_matrix_step,
    scratch_resource,
)
from pytest_attnperf.codeobject.instructions import CLASSES, Instruction

TABLE = Path(__file__).parents[1] / "data" / "assembly" / "amd_instructions.txt"


def table() -> list[tuple[str, str, str]]:
    """Architecture, class and text of every instruction of the table."""
    rows = [line.split(" | ", 2) for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return [(arch, name, text) for arch, name, text in rows]


def listing(*texts: str) -> list[Instruction]:
    """Instructions in a row."""
    rows = (text.split(" ", 1) for text in texts)
    return [Instruction(mnemonic, operands, 4 * index) for index, (mnemonic, operands) in enumerate(rows)]


def test_every_instruction_of_the_table_is_in_its_class() -> None:
    """Instructions of gfx900 to gfx1250 are told apart by mnemonic and operands."""
    rows = table()
    assert len(rows) >= 160
    wrong = [
        (arch, text, expected, found)
        for arch, expected, text in rows
        for found in [classify(text.partition(" ")[0], text.partition(" ")[2])]
        if found != expected
    ]
    assert not wrong


@pytest.mark.skipif(shutil.which("llvm-mc-22") is None, reason="needs llvm-mc-22 (Debian: apt-get install llvm-22)")
def test_every_instruction_of_the_table_exists() -> None:
    """The table holds what an assembler takes for that architecture, no invention."""
    by_arch: defaultdict[str, list[str]] = defaultdict(list)
    for arch, _, text in table():
        by_arch[arch].append(text)
    for arch, texts in by_arch.items():
        command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-filetype=null"]
        done = subprocess.run(command, input="\n".join(texts) + "\n", text=True, capture_output=True, check=False)
        assert done.returncode == 0, (arch, done.stderr)


@pytest.mark.parametrize(
    "mnemonic", ["", "v", "v_", "_", "mfma_f32", "frobnicate_b32", "V_ADD_F32", ".long", "ds_frob"]
)
def test_an_unknown_mnemonic_is_other(mnemonic: str) -> None:
    """What is not known is said to be so, and never stops the count."""
    assert classify(mnemonic, "v0, v1") == "other"


@pytest.mark.parametrize(
    ("mnemonic", "operands", "liar"),
    [
        ("v_mfma_ld_scale_b32", "v0, v1", "matrix"),
        ("v_mul_f32_e32", "v0, v1, v2 ; v_mfma_f32", "matrix"),
        ("s_waitcnt", "vmcnt(0)", "barrier"),
        ("buffer_wbl2", "sc1", "global_store"),
        ("ds_storexchg_rtn_b32", "v0, v1, v2", "lds_write_4B"),
        ("scratch_store_dword", "off, v0, off", "global_store_4B"),
        ("global_prefetch_b8", "v[0:1], off", "global_load_1B"),
        ("global_load_dword", "v0, v[2:3], off ldsx", "global_load_lds_4B"),
    ],
)
def test_what_looks_like_another_class_is_not_it(mnemonic: str, operands: str, liar: str) -> None:
    """A name that contains a promised instruction's name does not keep the promise."""
    found = classify(mnemonic, operands)
    assert found != liar
    assert found in CLASSES


def test_a_width_that_no_class_has_is_still_a_load_or_store() -> None:
    """Blocks of gfx1250 move as many words as a register says: counted, without a width."""
    assert classify("global_store_block", "v[0:1], v[2:33], off") == "global_store"
    assert classify("global_load_block", "v[2:33], v[0:1], off") == "global_load"


@pytest.mark.parametrize(
    ("mnemonic", "expected"),
    [
        ("s_branch", False),
        ("s_endpgm", False),
        ("s_setpc_b64", False),
        ("s_cbranch_scc1", True),
        ("s_swappc_b64", True),
    ],
)
def test_only_unconditional_jumps_and_ends_do_not_fall_through(mnemonic: str, expected: bool) -> None:
    """A conditional branch and a call may run the next instruction."""
    assert falls_through(mnemonic) is expected


MOVED = ("s_mov_b64 s[10:11], s[2:3]", "s_mov_b64 s[8:9], s[0:1]", "s_add_u32 s8, s8, s7", "s_addc_u32 s9, s9, 0")
IN_PLACE = ("s_add_u32 s0, s0, s17", "s_addc_u32 s1, s1, 0")


@pytest.mark.parametrize(
    ("texts", "arch", "scratch_bytes", "expected"),
    [
        (MOVED, "gfx90a", 132, "s[8:11]"),
        (MOVED, "gfx906", 4, "s[8:11]"),
        (("s_add_u32 s0, s0, s6", *MOVED), "gfx908", 4, "s[8:11]"),
        (IN_PLACE, "gfx90a", 16, "s[0:3]"),
        (IN_PLACE, "gfx1030", 16, "s[0:3]"),
        (MOVED, "gfx90a", 0, ""),
        (MOVED, "gfx942", 132, ""),
        (MOVED[:2], "gfx90a", 132, ""),
        (("s_cbranch_scc1 5", *MOVED), "gfx90a", 132, ""),
        (("s_add_u32 s0, s0, 16",), "gfx90a", 132, ""),
    ],
)
def test_the_resource_of_private_memory_is_found_in_the_prologue(
    texts: tuple[str, ...], arch: str, scratch_bytes: int, expected: str
) -> None:
    """The compiler uses s[0:3] or moves it; without scratch, or on later architectures, there is none."""
    assert scratch_resource(listing(*texts), arch, scratch_bytes) == expected


def test_a_buffer_access_through_that_resource_is_scratch() -> None:
    """Spills of gfx90a are told from stores, which other resources keep being."""
    spilled, stored = "v4, off, s[8:11], 0 offset:20", "v4, v5, s[4:7], 0 offen"
    assert classify("buffer_store_dword", spilled, scratch_resource="s[8:11]") == "scratch_store"
    assert classify("buffer_load_dword", spilled, scratch_resource="s[8:11]") == "scratch_load"
    assert classify("buffer_store_dword", stored, scratch_resource="s[8:11]") == "global_store_4B"
    assert classify("buffer_store_dword", spilled) == "global_store_4B"


SHAPES = {
    "v_mfma_f32_32x32x8_f16": (16, 2),
    "v_mfma_f32_32x32x8_bf16": (16, 2),
    "v_mfma_f32_16x16x16_bf16": (4, 2),
    "v_mfma_f32_32x32x4_2b_f16": (32, 2),
    "v_mfma_f32_16x16x4_4b_f16": (16, 2),
    "v_mfma_f32_4x4x4_16b_f16": (4, 2),
    "v_mfma_f32_32x32x2_f32": (16, 1),
    "v_mfma_f32_16x16x4_f32": (4, 1),
    "v_mfma_f32_16x16x1_4b_f32": (16, 1),
    "v_mfma_i32_32x32x16_i8": (16, 2),
    "v_mfma_f32_16x16x32_fp8_bf8": (4, 2),
    "v_mfma_f64_16x16x4_f64": (8, 2),
    "v_mfma_f64_4x4x4_4b_f64": (2, 2),
}
"""Instructions of gfx942 and gfx950 -> registers of the sums and of a factor."""

ONLY = {
    "gfx942": {"v_mfma_f32_32x32x4_xf32": (16, 2), "v_mfma_f32_16x16x8_xf32": (4, 2)},
    "gfx950": {
        "v_mfma_f32_32x32x16_bf16": (16, 4),
        "v_mfma_f32_16x16x32_f16": (4, 4),
        "v_mfma_i32_32x32x32_i8": (16, 4),
        "v_mfma_i32_16x16x64_i8": (4, 4),
    },
}


GFX90A = {
    "v_mfma_f32_32x32x8f16": (16, 2),
    "v_mfma_f32_16x16x16f16": (4, 2),
    "v_mfma_f32_32x32x8bf16_1k": (16, 2),
    "v_mfma_f32_16x16x16bf16_1k": (4, 2),
    "v_mfma_f32_32x32x4bf16": (16, 1),
    "v_mfma_f32_32x32x4f16": (32, 2),
    "v_mfma_f32_16x16x4f16": (16, 2),
    "v_mfma_f32_4x4x4f16": (4, 2),
    "v_mfma_f32_32x32x2f32": (16, 1),
    "v_mfma_f32_16x16x4f32": (4, 1),
    "v_mfma_i32_32x32x8i8": (16, 1),
    "v_mfma_i32_16x16x16i8": (4, 1),
    "v_mfma_f64_16x16x4f64": (8, 2),
    "v_mfma_f64_4x4x4f64": (2, 2),
}
"""gfx90a writes names without the last underscore."""


@pytest.mark.skipif(shutil.which("llvm-mca-22") is None, reason="llvm-mca-22 is not installed (Debian: llvm-22)")
@pytest.mark.parametrize("arch", ["gfx90a", *sorted(ONLY)])
def test_passes_are_those_of_llvm_mca(arch: str) -> None:
    """A pass is a cycle of llvm-mca's matrix unit."""
    known = GFX90A if arch == "gfx90a" else SHAPES | ONLY[arch]
    lines = [
        f"{name} v[0:{sums - 1}], v[64:{63 + own}], v[80:{79 + own}], v[0:{sums - 1}]"
        for name, (sums, own) in known.items()
    ]
    text = re.sub(r"v\[(\d+):\1\]", r"v\1", "\n".join(lines) + "\n")
    ran = subprocess.run(
        ["llvm-mca-22", "-mtriple=amdgcn", f"-mcpu={arch}", "-instruction-tables"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    table = re.findall(r"^ +\d+ +\d+ +([\d.]+) .*?(v_mfma\w+) ", ran.stdout, re.M)
    measured = {name: float(passes) for passes, name in table}
    assert measured.keys() == known.keys()
    for name, passes in measured.items():
        step = read_matrix_step(name, "", arch)
        assert step is not None, name
        assert step.cycles == 4 * passes, name


@pytest.mark.parametrize(
    ("arch", "bits", "name"),
    [
        ("gfx90a", 16, "v_mfma_f32_32x32x8bf16_1k"),
        ("gfx90a", 8, "v_mfma_i32_16x16x16i8"),
        ("gfx90a", 32, "v_mfma_f32_32x32x2f32"),
        ("gfx90a", 64, "v_mfma_f64_16x16x4f64"),
        ("gfx942", 16, "v_mfma_f32_32x32x8_f16"),
        ("gfx942", 8, "v_mfma_f32_32x32x16_fp8_fp8"),
        ("gfx942", 32, "v_mfma_f32_32x32x2_f32"),
        ("gfx942", 19, "v_mfma_f32_32x32x4_xf32"),
        ("gfx942", 64, "v_mfma_f64_16x16x4_f64"),
        ("gfx950", 16, "v_mfma_f32_16x16x32_bf16"),
        ("gfx950", 8, "v_mfma_i32_32x32x32_i8"),
        ("gfx950", 32, "v_mfma_f32_16x16x4_f32"),
        ("gfx950", 64, "v_mfma_f64_16x16x4_f64"),
    ],
)
def test_the_best_instruction_of_a_type_reaches_the_peak(arch: str, bits: int, name: str) -> None:
    """Operations per cycle of one SIMD are a quarter of what AMD's pages say of a CU."""
    step = read_matrix_step(name, "", arch)
    assert step is not None
    assert step.bits == bits
    assert step.flops / step.cycles == PEAK_FLOPS_PER_CYCLE[arch][bits]


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("v_mfma_f32_32x32x4f16", 2 * 32 * 32 * 4 * 2),
        ("v_mfma_f32_16x16x4f16", 2 * 16 * 16 * 4 * 4),
        ("v_mfma_f32_4x4x4f16", 2 * 4 * 4 * 4 * 16),
        ("v_mfma_f32_32x32x4bf16", 2 * 32 * 32 * 4),
        ("v_mfma_f32_16x16x1f32", 2 * 16 * 16 * 4),
        ("v_mfma_f64_4x4x4f64", 2 * 4 * 4 * 4 * 4),
    ],
)
def test_pairs_that_gfx90as_names_leave_out_are_counted(name: str, flops: int) -> None:
    """Two pairs of 32 rows, four of 16, sixteen of 4."""
    step = read_matrix_step(name, "", "gfx90a")
    assert step is not None
    assert step.flops == flops


def test_gfx942s_instructions_reach_half_of_gfx950s_peak() -> None:
    """The same shape takes as long on both; only the deeper ones are faster."""
    step = read_matrix_step("v_mfma_f32_32x32x8_f16", "", "gfx950")
    assert step == read_matrix_step("v_mfma_f32_32x32x8_f16", "", "gfx942") == MatrixStep(32, 16384, 16)
    assert step is not None
    assert step.flops / step.cycles == PEAK_FLOPS_PER_CYCLE["gfx950"][16] / 2


@pytest.mark.parametrize(
    ("formats", "expected"),
    [
        ("", MatrixStep(64, 131072, 8)),
        (" cbsz:1 blgp:1", MatrixStep(64, 131072, 8)),
        (" blgp:4", MatrixStep(64, 131072, 8)),
        (" cbsz:4 blgp:4", MatrixStep(32, 131072, 4)),
        (" cbsz:2 blgp:3", MatrixStep(32, 131072, 4)),
    ],
)
def test_eight_bits_in_either_factor_take_twice_as_long(formats: str, expected: MatrixStep) -> None:
    """Formats 0 and 1 have 8 bits, the others 6 or 4 (CDNA4's guide; llvm-mca does not look at them)."""
    operands = "v[0:15], v[16:23], v[24:31], v[0:15]" + formats
    for name in ("v_mfma_f32_32x32x64_f8f6f4", "v_mfma_scale_f32_32x32x64_f8f6f4"):
        assert read_matrix_step(name, operands, "gfx950") == expected


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("v_mfma_f32_32x32x8_f16", "gfx1100"),
        ("v_smfmac_f32_16x16x32_f16", "gfx942"),
        ("v_mfma_f32_64x64x8_f16", "gfx942"),
        ("v_mfma_f32_32x32x4_xf32", "gfx950"),
        ("v_mfma_f32_32x32x16_fp8_fp8", "gfx90a"),
        ("v_add_f32_e32", "gfx942"),
    ],
)
def test_what_is_not_known_has_no_passes(name: str, arch: str) -> None:
    """Another architecture, sparse products, a shape or type that does not exist there, other instructions."""
    assert read_matrix_step(name, "v0, v1, v2", arch) is None
