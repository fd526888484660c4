from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from pytest_attnperf.isa.faults import ExecutionFault, UnknownInstructionError
from tests.isa.one_wave import make_wave, run, set_vector, vector

CONTROLS: dict[str, Callable[[int, int], int | None]] = {
    "quad_perm:[1,0,3,2]": lambda lane, _: lane ^ 1,
    "quad_perm:[3,3,0,1]": lambda lane, _: lane // 4 * 4 + (3, 3, 0, 1)[lane % 4],
    "row_shl:3": lambda lane, _: lane + 3 if lane % 16 + 3 < 16 else None,
    "row_shr:1": lambda lane, _: lane - 1 if lane % 16 else None,
    "row_ror:5": lambda lane, _: lane - 5 if lane % 16 >= 5 else lane + 11,
    "row_mirror": lambda lane, _: lane ^ 15,
    "row_half_mirror": lambda lane, _: lane ^ 7,
    "row_share:6": lambda lane, _: lane // 16 * 16 + 6,
    "row_newbcast:15": lambda lane, _: lane // 16 * 16 + 15,
    "row_xmask:9": lambda lane, _: lane ^ 9,
    "dpp8:[7,0,2,5,1,3,6,4]": lambda lane, _: lane // 8 * 8 + (7, 0, 2, 5, 1, 3, 6, 4)[lane % 8],
    "row_bcast:15": lambda lane, _: lane // 16 * 16 - 1 if lane >= 16 else None,
    "row_bcast:31": lambda lane, _: 31 if lane >= 32 else None,
    "wave_shl:1": lambda lane, size: lane + 1 if lane + 1 < size else None,
    "wave_shr:1": lambda lane, _: lane - 1 if lane else None,
    "wave_rol:1": lambda lane, size: (lane + 1) % size,
    "wave_ror:1": lambda lane, size: (lane - 1) % size,
}
"""Control -> the lane that a lane of a wave of that size reads; None is none. From AMD's tables of DPP_CTRL."""


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("control", CONTROLS)
def test_every_control(control: str, size: int) -> None:
    """A sum with the moved source, in both sizes of wave, with masks of rows and banks, active and inactive lanes,
    zeros for what is outside, and inactive lanes fetched or not."""
    random = Random(control)
    for bound in ("", " bound_ctrl:1"):
        for fetch in ("", " fi:1"):
            rows, banks = random.choice(((15, 15), (10, 15), (15, 5))), "row_mask:{:#x} bank_mask:{:#x}"
            active = random.choice(((1 << size) - 1, random.getrandbits(size)))
            if control.startswith("dpp8"):
                rows, active, bound = (15, 15), (1 << size) - 1, ""
            values, added, old = ([random.getrandbits(31) for _ in range(size)] for _ in range(3))
            wave = make_wave(size=size)
            for place, each in enumerate((values, added, old)):
                set_vector(wave, place, each)
            wave.set_exec(active)
            masks = "" if control.startswith("dpp8") else " " + banks.format(*rows) + bound
            run(wave, f"v_add_u32_dpp v2, v0, v1 {control}{masks}{fetch}")
            for lane, found in enumerate(vector(wave, "v2").tolist()):
                source = CONTROLS[control](lane, size)
                if source is not None and not fetch and not active >> source & 1:
                    source = None
                written = active >> lane & 1 and rows[0] >> lane // 16 & 1 and rows[1] >> lane % 16 // 4 & 1
                if not written or (source is None and not bound):
                    assert found == old[lane]
                else:
                    assert found == ((values[source] if source is not None else 0) + added[lane]) % 2**32
            assert wave.exec_mask == active


def test_modifiers_of_the_source_and_two_registers() -> None:
    """neg and abs act on the moved source; 64 bits move together; the destination may be the source."""
    wave = make_wave()
    set_vector(wave, 0, [0x3F800000 + (lane << 10) for lane in range(64)])
    set_vector(wave, 1, [7 * lane for lane in range(64)])
    run(wave, "v_mul_f32_e64_dpp v2, -|v0|, v0 quad_perm:[0,0,2,2] row_mask:0xf bank_mask:0xf")
    run(wave, "v_mov_b64_dpp v[0:1], v[0:1] row_newbcast:3 row_mask:0xf bank_mask:0xf")
    assert vector(wave, "v2").tolist()[0] == 0xBF800000
    assert vector(wave, "v0").tolist() == [0x3F800000 + (lane // 16 * 16 + 3 << 10) for lane in range(64)]
    assert vector(wave, "v1").tolist() == [7 * (lane // 16 * 16 + 3) for lane in range(64)]


def test_comparison_without_the_suffix() -> None:
    """LLVM writes a comparison with DPP as a plain one; a lane without a source is refused there."""
    wave = make_wave(size=32)
    set_vector(wave, 0, list(range(32)))
    run(wave, "v_cmp_lt_u32 vcc_lo, v0, v0 row_xmask:1 row_mask:0xf bank_mask:0xf")
    assert wave.read_scalar(106) == 0xAAAAAAAA
    with pytest.raises(UnknownInstructionError, match="a lane without a source"):
        run(wave, "v_cmp_lt_u32 vcc_lo, v0, v0 row_shr:1 row_mask:0xf bank_mask:0xf")


def test_only_lanes_that_are_read_must_be_written() -> None:
    """A broadcast of lane 3 needs lane 3 of a row, and no other; one that nothing wrote is a fault."""
    wave = make_wave()
    run(wave, "s_mov_b32 exec_lo, 0x80008", "s_mov_b32 exec_hi, 0x80008", "v_mov_b32_e32 v0, 5")
    text = "v_mov_b32_dpp v1, v0 row_newbcast:{} row_mask:0xf bank_mask:0xf"
    wave.set_exec(wave.full)
    run(wave, text.format(3))
    assert set(vector(wave, "v1").tolist()) == {5}
    with pytest.raises(ExecutionFault, match="lane 4 of v0: nothing wrote"):
        run(wave, text.format(4))
