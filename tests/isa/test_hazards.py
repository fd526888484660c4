from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.hazards import find_hazards
from pytest_attnperf.isa.program import make_program
from tests.isa.one_wave import make_wave, set_vector


def listing(texts: Sequence[str], jumps: dict[int, int] | None = None) -> tuple[Instruction, ...]:
    """Instructions 4 bytes apart; `jumps` names the number that a branch goes to."""
    found = []
    for place, text in enumerate(texts):
        mnemonic, _, operands = text.partition(" ")
        target = (jumps or {}).get(place)
        ends = mnemonic in ("s_branch", "s_endpgm")
        found.append(
            Instruction(
                mnemonic, operands, 4 * place, None if target is None else 4 * target, ("kernel.hip", place), not ends
            )
        )
    return tuple(found)


PRODUCT = "v_mfma_f32_16x16x16_f16 v[0:3], v[8:9], v[10:11], v[4:7]"
WIDE = "v_mfma_f32_32x32x8_f16 v[16:31], v[8:9], v[10:11], 0"
FLOAT32 = "v_mfma_f32_16x16x4_f32 v[0:3], v8, v9, v[4:7]"
DOUBLE = "v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], 0"

CASES: list[tuple[str, str, str, int]] = [
    ("gfx942", PRODUCT, "v_add_f32_e32 v40, v0, v41", 7),
    ("gfx942", PRODUCT, "v_mov_b32_e32 v3, v41", 7),
    ("gfx942", PRODUCT, "v_mov_b32_e32 v7, v41", 3),
    ("gfx942", PRODUCT, "global_store_dword v41, v2, s[0:1]", 7),
    ("gfx942", PRODUCT, "v_mfma_f32_16x16x16_f16 v[44:47], v[0:1], v[10:11], 0", 7),
    ("gfx942", PRODUCT, "v_mfma_f32_16x16x16_f16 v[44:47], v[8:9], v[10:11], v[2:5]", 5),
    ("gfx942", WIDE, "v_add_f32_e32 v40, v31, v41", 11),
    ("gfx942", FLOAT32, "v_add_f32_e32 v40, v0, v41", 10),
    ("gfx942", FLOAT32, "v_mfma_f32_16x16x4_f32 v[44:47], v42, v9, v[2:5]", 8),
    ("gfx942", DOUBLE, "v_add_f64 v[40:41], v[0:1], v[42:43]", 11),
    ("gfx942", DOUBLE, "global_store_dwordx2 v41, v[2:3], s[0:1]", 18),
    (
        "gfx942",
        "v_mfma_f32_4x4x4_16b_f16 v[0:3], v[8:9], v[10:11], 0",
        "v_mfma_f32_4x4x4_16b_f16 v[0:3], v[8:9], v[10:11], v[0:3]",
        2,
    ),
    ("gfx950", PRODUCT, "v_add_f32_e32 v40, v0, v41", 8),
    ("gfx950", WIDE, "v_add_f32_e32 v40, v31, v41", 12),
    ("gfx950", DOUBLE, "v_add_f64 v[40:41], v[0:1], v[42:43]", 19),
    ("gfx90a", "v_mfma_f32_16x16x16f16 v[0:3], v[8:9], v[10:11], 0", "v_add_f32_e32 v40, v0, v41", 11),
    ("gfx90a", "v_mfma_f32_32x32x8f16 v[16:31], v[8:9], v[10:11], 0", "v_add_f32_e32 v40, v31, v41", 19),
    ("gfx942", "v_mov_b32_e32 v8, v41", PRODUCT, 2),
    ("gfx942", "v_exp_f32_e32 v40, v41", "v_add_f32_e32 v42, v40, v41", 1),
    (
        "gfx942",
        "v_or_b32_sdwa v40, v41, v42 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD",
        "v_mov_b32_e32 v43, v40",
        1,
    ),
    ("gfx942", "v_readfirstlane_b32 s0, v40", "global_load_dword v41, v42, s[0:1]", 5),
    ("gfx942", "v_readfirstlane_b32 s4, v40", "buffer_load_dword v41, v42, s[4:7], 0 offen", 5),
    ("gfx942", "v_readfirstlane_b32 s4, v40", "v_add_u32_e32 v42, s4, v41", 2),
    ("gfx942", "v_readfirstlane_b32 s4, v40", "v_readlane_b32 s5, v41, s4", 4),
    ("gfx942", "v_cmp_lt_u32_e32 vcc, v40, v41", "v_div_fmas_f32 v42, v43, v44, v45", 4),
    ("gfx942", "v_mov_b32_e32 v40, v41", "v_mov_b32_dpp v42, v40 row_shr:1 row_mask:0xf bank_mask:0xf", 2),
    ("gfx942", "v_cmpx_lt_u32_e32 vcc, v40, v41", "v_mov_b32_dpp v42, v43 row_shr:1 row_mask:0xf bank_mask:0xf", 5),
    ("gfx942", "v_mov_b32_e32 v40, v41", "v_readlane_b32 s5, v40, 3", 1),
    ("gfx942", "global_store_dwordx4 v41, v[0:3], s[0:1]", "v_mov_b32_e32 v2, v40", 2),
    ("gfx942", "v_dot4_i32_i8 v40, v41, v42, v43", "v_add_u32_e32 v44, v40, v41", 3),
    ("gfx942", "s_mov_b32 m0, s4", "buffer_load_dword v42, s[4:7], 0 offen lds", 1),
]


@pytest.mark.parametrize(("arch", "first", "second", "needed"), CASES)
def test_each_rule_asks_for_its_wait_states(arch: str, first: str, second: str, needed: int) -> None:
    """One wait state too few is a hazard, just enough is none, by s_nop and by independent instructions."""
    waits = [f"s_nop {needed - 2}"] if needed > 1 else []
    found = find_hazards(listing([first, *waits, second, "s_endpgm"]), arch)
    assert [(one.first, one.second, one.needed) for one in found] == [(0, 1 + len(waits), needed)]
    assert not find_hazards(listing([first, f"s_nop {needed - 1}", second, "s_endpgm"]), arch)
    assert not find_hazards(listing([first, *["v_mov_b32_e32 v60, v61"] * needed, second, "s_endpgm"]), arch)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PRODUCT, "v_mfma_f32_16x16x16_f16 v[0:3], v[8:9], v[10:11], v[0:3]"),
        (FLOAT32, "v_mfma_f32_16x16x4_f32 v[0:3], v8, v9, v[0:3]"),
        (PRODUCT, "v_add_f32_e32 v40, v8, v4"),
        (PRODUCT, "v_mov_b32_e32 v9, v40"),
        ("v_exp_f32_e32 v40, v41", "v_exp_f32_e32 v42, v40"),
        ("v_cmp_lt_u32_e32 vcc, v40, v41", "v_cndmask_b32_e32 v42, v43, v44, vcc"),
        ("s_mov_b32 s0, s4", "global_load_dword v41, v42, s[0:1]"),
        ("v_mov_b32_e32 v42, v41", "global_load_dword v41, v42, s[0:1]"),
        ("global_store_dwordx2 v41, v[0:1], s[0:1]", "v_mov_b32_e32 v0, v40"),
    ],
)
def test_what_the_hardware_waits_for_is_no_hazard(first: str, second: str) -> None:
    """Accumulation into the same registers, A and B of a product, and what has an interlock."""
    assert not find_hazards(listing([first, second, "s_endpgm"]), "gfx942")


def test_a_register_that_is_written_again_belongs_to_the_later_one() -> None:
    """Two products into overlapping registers: the sum that continues the second waits for none."""
    other = "v_mfma_f32_16x16x4_f32 v[2:5], v8, v9, v[2:5]"
    chain = [FLOAT32, "s_nop 7", "s_nop 1", other, other, "s_endpgm"]
    assert not find_hazards(listing(chain), "gfx942")


def test_paths_through_branches() -> None:
    """The distance counts along each path: around a loop, and past a branch that jumps over the wait."""
    loop = ["v_add_f32_e32 v40, v0, v41", PRODUCT, "s_cbranch_scc1 0", "s_nop 7", "s_endpgm"]
    assert [(one.first, one.second) for one in find_hazards(listing(loop, {2: 0}), "gfx942")] == [(1, 0)]
    over = [PRODUCT, "s_cbranch_scc1 3", "s_nop 7", "v_add_f32_e32 v40, v0, v41", "s_endpgm"]
    assert [(one.first, one.second) for one in find_hazards(listing(over, {1: 3}), "gfx942")] == [(0, 3)]
    assert not find_hazards(listing([*over[:1], "s_nop 7", *over[1:]], {2: 4}), "gfx942")


def test_a_wave_stops_only_on_the_path_that_is_too_short() -> None:
    """A fault names both instructions, the line and what is needed; the wave that waits runs through."""
    texts = [PRODUCT, "s_cbranch_scc1 3", "s_nop 7", "v_add_f32_e32 v40, v0, v41", "s_endpgm"]
    program = make_program(listing(texts, {1: 3}), "gfx942")
    for scc in (0, 1):
        wave = make_wave()
        wave.indices, wave.scc = program.indices, scc
        for number in (*range(12), 41):
            set_vector(wave, number, np.zeros(64, np.uint32))
        while not wave.ended:
            step, wave.index = program.steps[wave.index], wave.index + 1
            if scc and wave.index == 4:
                with pytest.raises(ExecutionFault, match=r"reads v0, 1 wait states after v_mfma.*hip:0.*7 are n"):
                    step(wave)
                break
            step(wave)
        assert wave.ended != bool(scc)
