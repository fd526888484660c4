from __future__ import annotations

import pytest

from pytest_attnperf.isa.faults import UnknownInstructionError
from tests.isa.one_wave import make_wave, run, set_vector, vector

PATTERNS = {
    "": (0, lambda lane: lane - lane % 32),
    " offset:swizzle(QUAD_PERM,3,1,0,1)": (0x8043 | 1 << 2, lambda lane: lane - lane % 4 + (3, 1, 0, 1)[lane % 4]),
    " offset:swizzle(SWAP,1)": (0x041F, lambda lane: lane ^ 1),
    " offset:swizzle(SWAP,16)": (0x401F, lambda lane: lane ^ 16),
    " offset:swizzle(REVERSE,8)": (0x1C1F, lambda lane: lane - lane % 8 + 7 - lane % 8),
    " offset:swizzle(BROADCAST,8,7)": (0x00F8, lambda lane: lane - lane % 8 + 7),
    ' offset:swizzle(BITMASK_PERM,"ppppp")': (0x001F, lambda lane: lane),
    ' offset:swizzle(BITMASK_PERM,"1ppi0")': (
        0x0A0E,
        lambda lane: lane - lane % 32 + 16 + (lane % 32 & 12) + (~lane & 2),
    ),
}
"""LLVM's spelling -> the number in the encoding, and the lane from which one takes its value."""


@pytest.mark.parametrize("text", PATTERNS)
def test_patterns_of_lanes(text: str) -> None:
    """Every mode that LLVM names moves the values that its words say, and those of its number."""
    number, source = PATTERNS[text]
    for size in (64, 32):
        wave = make_wave(size=size)
        set_vector(wave, 0, [7 * lane for lane in range(size)])
        run(wave, f"ds_swizzle_b32 v1, v0{text}", "s_waitcnt lgkmcnt(0)")
        assert vector(wave, "v1").tolist() == [7 * source(lane) for lane in range(size)]
        if "1ppi0" not in text and text:
            run(wave, f"ds_swizzle_b32 v2, v0 offset:{number:#x}", "s_waitcnt lgkmcnt(0)")
            assert vector(wave, "v2").tolist() == vector(wave, "v1").tolist()


@pytest.mark.parametrize("text", ["offset:swizzle(ROTATE,0,1)", "offset:swizzle(FFT,15)", "offset:0xc020"])
def test_modes_that_are_not_known(text: str) -> None:
    """A mode that is not implemented is refused by its name."""
    with pytest.raises(UnknownInstructionError, match=r"mode|modifier"):
        run(make_wave(), f"ds_swizzle_b32 v1, v0 {text}")
