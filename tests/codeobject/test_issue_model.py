"""Estimated cycles of loops whose answer is known by hand, and what must make a loop slower."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.decoding import read_assembly
from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.codeobject.issue_model import estimate_key_loop, estimate_loop, read_steps
from pytest_attnperf.records.code import KernelCode, LoopEstimate

DATA = Path(__file__).parents[1] / "data" / "assembly"

CODE = KernelCode(
    name="k", arch="gfx942", vgprs=128, agprs=0, unified_vgprs=128, sgprs=40, vgpr_spills=0, sgpr_spills=0,
    scratch_bytes=0, lds_static_bytes=0, lds_dynamic_bytes=32768, kernarg_bytes=64, threads=256, max_threads=256,
    wave_size=64, wgp_mode=None, dynamic_stack=False, code_bytes=4096, isa_hash="00",
)  # fmt: skip

MFMA = "v_mfma_f32_32x32x8_f16 v[0:15], v[64:65], v[66:67], v[0:15]"
OTHER_MFMA = "v_mfma_f32_32x32x8_f16 v[16:31], v[64:65], v[66:67], v[16:31]"
ADD = "v_add_f32_e32 v100, v101, v102"
EXP = "v_exp_f32_e32 v100, v101"
SALU = "s_add_u32 s0, s1, s2"
LOAD = "global_load_dwordx4 v[104:107], v[108:109], off"


def instructions(*texts: str) -> list[Instruction]:
    """Instructions in a row, addressed by their index."""
    return [Instruction(*(text.partition(" ")[::2]), index) for index, text in enumerate(texts)]


def estimate(*texts: str, arch: str = "gfx942", waves: int = 1, group: int = 1) -> LoopEstimate:
    """The estimate of a loop of these instructions."""
    return estimate_loop(read_steps(instructions(*texts), arch), arch, waves, group)


@pytest.mark.parametrize(
    ("texts", "arch", "cycles"),
    [
        ((ADD,) * 10, "gfx942", 40),
        ((EXP,) * 10, "gfx942", 160),
        ((EXP,) * 10, "gfx950", 80),
        ((SALU,) * 10, "gfx942", 40),
        (("s_nop 7",), "gfx942", 32),
        ((MFMA, OTHER_MFMA), "gfx942", 64),
        (("v_mfma_f32_16x16x16_f16 v[0:3], v[64:65], v[66:67], v[0:3]",), "gfx942", 16),
        (("v_mfma_f32_16x16x32_f16 v[0:3], v[64:67], v[68:71], v[0:3]",), "gfx950", 16),
        (("ds_read_b128 v[0:3], v4",), "gfx942", 32),
        (("ds_read_b128 v[0:3], v4",), "gfx950", 16),
    ],
)
def test_one_unit_alone(texts: tuple[str, ...], arch: str, cycles: float) -> None:
    """A loop of one kind of instruction takes as long as its unit, whatever the number of waves."""
    assert estimate(*texts, arch=arch).cycles == cycles
    if SALU not in texts and "s_nop 7" not in texts:
        assert estimate(*texts, arch=arch, waves=2).cycles == cycles


def test_vector_instructions_run_beside_the_matrix_unit() -> None:
    """Four additions fit beneath a product that none of them needs; a ninth does not fit any more."""
    assert estimate(MFMA, *[ADD] * 4).cycles == 32
    assert estimate(MFMA, *[ADD] * 9).cycles == 40


def test_a_product_that_is_read_at_once_is_waited_for() -> None:
    """One wave waits for all passes and the result; two waves fill each other's gaps."""
    reader = "v_mul_f32_e32 v50, v0, v51"
    alone = estimate(MFMA, reader).cycles
    assert alone == 32 + 16 + 4
    assert estimate(MFMA, reader, waves=2).cycles == 32


def test_a_load_that_is_waited_for_at_once_costs_its_latency() -> None:
    """Loads a tile ahead cost a wave no more than their bytes."""
    at_once = estimate(LOAD, "s_waitcnt vmcnt(0)", *[ADD] * 200).cycles
    ahead = estimate(LOAD, "s_waitcnt vmcnt(1)", *[ADD] * 200).cycles
    assert at_once == pytest.approx(64 + 500 + 200 * 4, abs=8)
    assert ahead == 200 * 4 + 8


def test_lds_is_waited_for_by_its_own_counter() -> None:
    """A wait for global loads does not wait for LDS."""
    read = "ds_read_b128 v[0:3], v4"
    assert estimate(read, "s_waitcnt lgkmcnt(0)").cycles == pytest.approx(32 + 64 + 4, abs=4)
    assert estimate(read, "s_waitcnt vmcnt(0)").cycles == 32


def test_waves_of_one_workgroup_meet_at_a_barrier() -> None:
    """They run in step and cannot fill each other's gaps; those of two workgroups can."""
    loop = (LOAD, "s_waitcnt vmcnt(0)", "s_barrier", *[ADD] * 200)
    together, apart = estimate(*loop, waves=2, group=2), estimate(*loop, waves=2, group=1)
    assert together.cycles > apart.cycles
    assert apart.barriers == 1


def test_counts_are_those_of_the_loop() -> None:
    """Instructions by kind, cycles by unit, and the peak of the element types used."""
    found = estimate(
        MFMA, EXP, ADD, SALU, LOAD, "ds_read_b128 v[0:3], v4", "ds_write_b64 v4, v[0:1]", "s_waitcnt vmcnt(0)",
        "s_barrier", "s_cbranch_scc1 0",
    )  # fmt: skip
    assert (found.matrix, found.valu, found.transcendental, found.salu) == (1, 1, 1, 2)
    assert (found.lds, found.loads, found.waits, found.barriers) == (2, 1, 1, 1)
    assert (found.matrix_cycles, found.vector_cycles, found.lds_cycles) == (32, 20, 32 + 16)
    assert found.peak_cycles == 32
    assert found.peak_share == 32 / found.cycles
    assert estimate(MFMA, arch="gfx950").peak_share == 0.5


def test_bytes_are_those_of_a_wave() -> None:
    """64 lanes each; an exchange between lanes is neither a read nor a write of LDS."""
    found = estimate(
        MFMA, LOAD, "ds_read_b128 v[0:3], v4", "ds_read2_b64 v[0:3], v4", "ds_write_b64 v4, v[0:1]",
        "ds_bpermute_b32 v1, v2, v3",
    )  # fmt: skip
    assert (found.lds, found.lds_reads, found.lds_writes) == (4, 2, 1)
    assert (found.lds_read_bytes, found.lds_write_bytes, found.load_bytes) == (2048, 512, 1024)
    assert (found.load_cycles, found.flops) == (64, 16384)


def test_the_time_of_a_wave_is_that_of_its_instructions() -> None:
    """Cycles by mnemonic and line add up to the wave's, and what is waited for stands first."""
    rows = instructions(LOAD, "s_waitcnt vmcnt(0)", *[ADD] * 8, EXP, EXP)
    placed = [replace(one, place=("k.hip", 7 if index < 4 else 9)) for index, one in enumerate(rows)]
    found = estimate_loop(read_steps(placed, "gfx942"), "gfx942", 2, 1, placed)
    assert sum(one.cycles for one in found.heaviest) == pytest.approx(2 * found.cycles, rel=0.01)
    assert next((one.mnemonic, one.count, one.line) for one in found.heaviest) == ("s_waitcnt vmcnt(0)", 1, 7)
    assert {(one.mnemonic, one.count, one.line) for one in found.heaviest} >= {
        ("v_add_f32_e32", 2, 7), ("v_add_f32_e32", 6, 9), ("v_exp_f32_e32", 2, 9),
    }  # fmt: skip
    assert estimate(LOAD).heaviest == ()


def test_a_kernel_is_estimated_with_the_waves_that_fit() -> None:
    """256 registers leave two waves of a SIMD, 320 one; a second wave hides latency."""
    loop = instructions(MFMA, "v_mul_f32_e32 v50, v0, v51", *[ADD] * 8)
    two = estimate_key_loop(replace(CODE, vgprs=200, unified_vgprs=200), [loop])
    one = estimate_key_loop(replace(CODE, agprs=120, vgprs=200, unified_vgprs=320), [loop])
    assert two is not None
    assert one is not None
    assert (two.waves, one.waves) == (2, 1)
    assert two.peak_share > one.peak_share


def test_the_loop_nearest_the_peak_is_the_key_loop() -> None:
    """Not the masked one, and not a loop without products."""
    plain, masked, other = instructions(MFMA), instructions(MFMA, *[ADD] * 40), instructions(ADD)
    found = estimate_key_loop(CODE, [other, masked, plain])
    assert found is not None
    assert found.valu == 0


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        (replace(CODE, arch="gfx1100", wave_size=32), (MFMA,)),
        (replace(CODE, lds_dynamic_bytes=1 << 20), (MFMA,)),
        (replace(CODE, vgprs=300), (MFMA,)),
        (replace(CODE, threads=0, max_threads=0), (MFMA,)),
        (CODE, (ADD,)),
        (CODE, ("v_smfmac_f32_16x16x32_f16 v[0:3], v[8:9], v[10:13], v14",)),
    ],
)
def test_what_cannot_be_estimated_is_left_open(code: KernelCode, texts: tuple[str, ...]) -> None:
    """Another architecture, no launch that fits, no product, or one that is not known."""
    assert estimate_key_loop(code, [instructions(*texts)]) is None


def compiled(name: str, arch: str) -> LoopEstimate:
    """The estimate of a key loop that Triton compiled, with the two waves that its registers allow."""
    listing = read_assembly((DATA / f"prefill-{name}-{arch}.s").read_text(), "key_loop")
    return estimate_loop(read_steps(listing.instructions, arch), arch, 2)


@pytest.mark.parametrize(
    ("name", "arch", "matrix_cycles", "vector", "transcendental", "salu", "waits", "barriers"),
    [
        ("shipped", "gfx942", 1024, 189, 17, 9, 19, 4),
        ("two-stages", "gfx942", 1024, 189, 17, 7, 7, 2),
        ("shipped", "gfx950", 512, 107, 17, 7, 22, 4),
    ],
)
def test_compiled_loops_have_the_counts_of_the_executed_ones(
    name: str, arch: str, matrix_cycles: int, vector: int, transcendental: int, salu: int, waits: int, barriers: int
) -> None:
    """Of 32 keys; an interpreter of the same machine code counted them as it ran."""
    found = compiled(name, arch)
    assert (found.matrix_cycles, found.valu + found.transcendental) == (matrix_cycles, vector)
    assert (found.transcendental, found.salu, found.waits, found.barriers) == (transcendental, salu, waits, barriers)


def test_loads_a_tile_ahead_are_estimated_to_be_better() -> None:
    """Fewer cycles per key: two stages on gfx942, and on gfx950 two stages with tiles of 64 keys."""
    assert compiled("two-stages", "gfx942").peak_share > compiled("shipped", "gfx942").peak_share
    assert compiled("wide-two-stages", "gfx950").peak_share > 1.5 * compiled("shipped", "gfx950").peak_share
