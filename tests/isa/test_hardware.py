from __future__ import annotations

import pytest

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.isa.faults import ExecutionFault, UnknownInstructionError
from pytest_attnperf.isa.program import make_step
from tests.isa.one_wave import make_wave, run


def test_mode_is_read_and_written() -> None:
    """Fields of MODE are read and written; a rounding or denormal mode that is not implemented is refused."""
    wave = make_wave()
    run(wave, "s_getreg_b32 s0, hwreg(HW_REG_MODE, 4, 4)", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1")
    run(wave, "s_getreg_b32 s1, hwreg(HW_REG_MODE, 23, 1)", "s_getreg_b32 s2, hwreg(HW_REG_MODE)")
    assert [wave.read_scalar(at) for at in range(3)] == [15, 1, 0x8003F0]
    run(wave, "s_movk_i32 s3, 0x0", "s_setreg_b32 hwreg(HW_REG_MODE, 23, 1), s3")
    assert wave.mode == 0x3F0
    for field in ("0, 2", "4, 4", "8, 1"):
        value = {"0, 2": 1, "4, 4": 0, "8, 1": 0}[field]
        with pytest.raises(UnknownInstructionError, match="the mode 0x"):
            run(wave, f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, {field}), {value}")


@pytest.mark.parametrize("text", ["s_getreg_b32 s0, hwreg(HW_REG_HW_ID)", "s_setreg_b32 hwreg(HW_REG_TRAPSTS), s0"])
def test_other_registers_are_refused(text: str) -> None:
    """A register whose content is the machine's stops the run."""
    with pytest.raises(UnknownInstructionError, match="HW_REG_"):
        run(make_wave(), text)


def test_clocks_grow_and_arrive_at_the_wait() -> None:
    """S_MEMTIME is a scalar load: its value cannot be read before the wait, and the second is larger."""
    wave = make_wave()
    run(wave, "s_memtime s[0:1]", "s_memrealtime s[2:3]")
    with pytest.raises(ExecutionFault, match="s0: its load is in flight"):
        run(wave, "s_mov_b32 s4, s0")
    run(wave, "s_waitcnt lgkmcnt(0)")
    assert 0 < wave.read_scalar_pair(0) < wave.read_scalar_pair(2)


def test_jumps_through_registers() -> None:
    """S_SWAPPC_B64 stores the address behind itself and jumps, S_SETPC_B64 returns; an address outside of the kernel is
    a fault."""
    wave = make_wave()
    wave.indices = {0x100: 0, 0x104: 1, 0x200: 2}
    run(wave, "s_getpc_b64 s[0:1]")
    assert wave.read_scalar_pair(0) == 0x104
    run(wave, "s_movk_i32 s2, 0x200", "s_mov_b32 s3, 0")
    make_step(Instruction("s_swappc_b64", "s[30:31], s[2:3]", 0x100))(wave)
    assert (wave.index, wave.read_scalar_pair(30)) == (2, 0x104)
    run(wave, "s_setpc_b64 s[30:31]")
    assert wave.index == 1
    with pytest.raises(ExecutionFault, match="jumps to 0x208"):
        run(wave, "s_movk_i32 s2, 0x208", "s_setpc_b64 s[2:3]")


def test_the_die_is_the_first_one() -> None:
    """HW_REG_XCC_ID is 0."""
    wave = make_wave()
    run(wave, "s_getreg_b32 s0, hwreg(HW_REG_XCC_ID, 0, 4)")
    assert wave.read_scalar(0) == 0
