from __future__ import annotations

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault, UnknownInstructionError
from pytest_attnperf.isa.program import make_step
from pytest_attnperf.isa.wave import Wave
from tests.isa.one_wave import instruction, make_wave, run, set_vector, vector


def wave_with_words() -> Wave:
    """A wave of 32 lanes whose v0 is 4 times the lane, whose LDS holds 100 + lane there, and s[0:1] a buffer of the
    same."""
    wave = make_wave(size=32)
    set_vector(wave, 0, np.arange(32, dtype=np.uint32) * 4)
    set_vector(wave, 1, np.arange(100, 132, dtype=np.uint32))
    run(wave, "ds_store_b32 v0, v1", "s_wait_dscnt 0x0", arch="gfx1201")
    buffer = wave.memory.add("K", 128, np.arange(100, 132, dtype=np.uint32).tobytes())
    wave.write_scalar_pair(0, buffer.base)
    return wave


@pytest.mark.parametrize(
    ("load", "wait", "other"),
    [
        ("ds_load_b32 v2, v0", "s_wait_dscnt 0x0", "s_wait_loadcnt 0x0"),
        ("global_load_b32 v2, v0, s[0:1]", "s_wait_loadcnt 0x0", "s_wait_storecnt_dscnt 0x0"),
        ("ds_load_b32 v2, v0", "s_wait_loadcnt_dscnt 0x3f00", "s_wait_loadcnt_dscnt 0x3f"),
        ("global_load_b32 v2, v0, s[0:1]", "s_wait_loadcnt_dscnt 0x3f", "s_wait_loadcnt_dscnt 0x3f00"),
        ("ds_load_b32 v2, v0", "s_wait_storecnt_dscnt 0x0", "s_wait_kmcnt 0x0"),
    ],
)
def test_a_value_arrives_at_the_wait_for_its_counter(load: str, wait: str, other: str) -> None:
    """A load is complete after the wait for its own counter of gfx12, and not after that for another one."""
    wave = wave_with_words()
    run(wave, load, other, arch="gfx1201")
    with pytest.raises(ExecutionFault, match=r"v2.*load is in flight"):
        run(wave, "v_mov_b32_e32 v3, v2")
    run(wave, wait, "v_mov_b32_e32 v3, v2", arch="gfx1201")
    assert vector(wave, "v3").tolist() == list(range(100, 132))


def test_scalar_loads_have_a_counter() -> None:
    """s_wait_kmcnt brings scalar loads; a wait for some of several is no guarantee."""
    wave = wave_with_words()
    run(wave, "s_load_b96 s[4:6], s[0:1], null", "s_wait_dscnt 0x0", arch="gfx1201")
    with pytest.raises(ExecutionFault, match="s6: its load is in flight"):
        run(wave, "s_add_co_u32 s7, s6, 1", arch="gfx1201")
    run(wave, "s_load_b32 s8, s[0:1], 0x10", "s_wait_kmcnt 0x2", arch="gfx1201")
    with pytest.raises(ExecutionFault, match="until 1 of 2 scalar loads"):
        run(wave, "s_wait_kmcnt 0x1", arch="gfx1201")
    run(wave, "s_wait_kmcnt 0x0", "s_add_co_u32 s7, s6, 1", arch="gfx1201")
    assert (wave.read_scalar(7), wave.read_scalar(8)) == (103, 104)


def test_stores_are_counted_alone() -> None:
    """On gfx11 vmcnt counts loads and vscnt stores. A load sees what its wave stored before it; the memory, as others
    see it, is changed at the wait."""
    wave = wave_with_words()
    run(wave, "global_load_b32 v2, v0, s[0:1]", "v_add_nc_u32_e32 v1, 7, v0", "global_store_b32 v0, v1, s[0:1]")
    run(wave, "s_waitcnt vmcnt(0)", "v_mov_b32_e32 v3, v2")
    assert vector(wave, "v3")[9] == 109
    assert np.frombuffer(wave.memory.buffers[0].read_bytes(), np.uint32)[9] == 109
    run(wave, "s_waitcnt_vscnt null, 0x0")
    assert np.frombuffer(wave.memory.buffers[0].read_bytes(), np.uint32)[9] == 43
    run(wave, "global_store_b32 v0, v0, s[0:1]", "global_load_b32 v4, v0, s[0:1]", "s_waitcnt vmcnt(0)")
    run(wave, "v_mov_b32_e32 v5, v4")
    assert vector(wave, "v5")[9] == 36


def test_barriers_in_two_parts() -> None:
    """A wave stops at s_barrier_wait, which needs its own signal; two signals without a wait are a fault."""
    wave = make_wave(size=32)
    signal, wait = (
        make_step(instruction(text), "gfx1201", 32) for text in ("s_barrier_signal -1", "s_barrier_wait -1")
    )
    for _ in range(2):
        assert not signal(wave)
        assert wait(wave)
    with pytest.raises(ExecutionFault, match="without having signalled"):
        wait(wave)
    signal(wave)
    with pytest.raises(ExecutionFault, match="a second time"):
        signal(wave)


def test_hints_do_nothing() -> None:
    """Hints to the scheduler, to caches, and the message that gives registers back change nothing."""
    wave = make_wave(size=32)
    run(wave, "s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_2)", "s_clause 0x1")
    run(wave, "s_waitcnt_depctr depctr_va_vdst(0)", "s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)", "buffer_gl0_inv")
    run(wave, "s_wait_alu depctr_sa_sdst(0)", "global_inv scope:SCOPE_SE", arch="gfx1201")
    assert not any(wave.written)


def test_the_mode_that_limits_halves() -> None:
    """While FP16_OVFL is set, an infinite result of float16 is refused, and others are not."""
    wave = make_wave(size=32)
    set_vector(wave, 0, np.full(32, 1e6, np.float32))
    set_vector(wave, 1, np.full(32, 1.0, np.float32))
    run(wave, "s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 23, 1), 1", "v_cvt_f16_f32_e32 v2.l, v1", arch="gfx1201")
    with pytest.raises(UnknownInstructionError, match="FP16_OVFL"):
        run(wave, "v_cvt_f16_f32_e32 v2.l, v0")
    run(wave, "s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 23, 1), 0", "v_cvt_f16_f32_e32 v2.l, v0", arch="gfx1201")
    assert vector(wave, "v2")[0] & 0xFFFF == 0x7C00


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("s_sendmsg sendmsg(MSG_INTERRUPT)", "MSG_INTERRUPT"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 3", "the mode"),
        ("s_barrier_signal m0", "the barrier"),
        ("s_barrier_signal_isfirst -1", "the opcode"),
        ("s_wait_loadcnt s0", "the operand"),
        ("s_waitcnt_vscnt s0, 0x0", "the operand 's0'"),
    ],
)
def test_what_is_no_hint_is_refused(text: str, named: str) -> None:
    """Messages, modes and barriers that do more than nothing stop the run."""
    with pytest.raises(UnknownInstructionError, match=named):
        run(make_wave(size=32), text)
