from __future__ import annotations

import numpy as np
import pytest

from pytest_attnperf.isa.faults import UnknownInstructionError
from tests.isa.one_wave import make_wave, run, set_vector, vector

VALUES = (2.0, 3.0, 5.0, 7.0)


def floats_after(text: str) -> list[float]:
    """v0 to v4 after a pair, of a wave whose v0 to v3 are `VALUES`."""
    wave = make_wave(size=32)
    for number, value in enumerate((*VALUES, 11.0)):
        set_vector(wave, number, np.full(32, value, np.float32))
    wave.write_scalar(106, 1)
    run(wave, text)
    return [float(vector(wave, f"v{number}").view(np.float32)[0]) for number in range(5)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v_dual_add_f32 v0, v2, v3 :: v_dual_mul_f32 v1, v2, v3", [12, 35, 5, 7, 11]),
        ("v_dual_add_f32 v0, v2, v3 :: v_dual_mul_f32 v1, v0, v3", [12, 14, 5, 7, 11]),
        ("v_dual_add_f32 v0, v1, v3 :: v_dual_mul_f32 v1, v2, v3", [10, 35, 5, 7, 11]),
        ("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v1, v0", [3, 2, 5, 7, 11]),
        ("v_dual_sub_f32 v0, v1, v0 :: v_dual_mul_f32 v1, v0, v1", [1, 6, 5, 7, 11]),
        ("v_dual_fmac_f32 v0, v1, v2 :: v_dual_fmac_f32 v1, v0, v2", [17, 13, 5, 7, 11]),
        ("v_dual_cndmask_b32 v0, v1, v2 :: v_dual_mov_b32 v1, 1.0", [5, 1, 5, 7, 11]),
        ("v_dual_fmaak_f32 v0, v1, v2, 0x3f800000 :: v_dual_fmamk_f32 v3, v1, 0x40000000, v2", [16, 3, 5, 11, 11]),
    ],
)
def test_both_read_before_either_writes(text: str, expected: list[float]) -> None:
    """The second of a pair sees the registers as they were, whatever the first writes, and the other way round."""
    assert floats_after(text) == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("v_dual_mov_b32 v0, v1", "this form of a pair"),
        ("v_dual_mov_b32 v0, v1 :: v_mov_b32 v2, v1", "this form of a pair"),
        ("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v0, v2", "one destination"),
        ("v_dual_magic_f32 v0, v1 :: v_dual_mov_b32 v2, v1", "v_dual_magic_f32 v0, v1 :: .*the opcode"),
    ],
)
def test_pairs_that_are_unknown_are_named(text: str, named: str) -> None:
    """Half a pair, two results in one register, and an unknown instruction of the two."""
    with pytest.raises(UnknownInstructionError, match=named):
        floats_after(text)
