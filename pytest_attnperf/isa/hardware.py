"""Steps that read and write hardware registers, counters and the program counter.

MODE is the only register that is written. Of it the code follows round to nearest even, denormals kept and DX10_CLAMP,
as compilers start a kernel, and FP16_OVFL either way; another mode is refused. Source: AMD, "CDNA3 Instruction Set
Architecture", 3.3 (MODE register) and SOPK, SOP1 and SMEM.
"""

from __future__ import annotations

import re

from pytest_attnperf.isa.operands import DecodedInstruction, Operand
from pytest_attnperf.isa.scalar import scalar_reader, scalar_writer
from pytest_attnperf.isa.wave import Step, Wave

_REGISTER = re.compile(r"hwreg\((HW_REG_\w+)(?:, (\d+), (\d+))?\)")

_FIXED_MODE, _FIXED_BITS = 0x1F0, 0x1FF
"""Rounding (bits 0 to 3), denormals (4 to 7) and DX10_CLAMP (8) as the float code implements them."""

_CYCLES_A_READ = 100


def make_hardware_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of s_getreg, s_setreg, s_memtime, s_getpc, s_setpc or s_swappc; None for another one."""
    name = decoded.name
    if name in ("s_setreg_b32", "s_setreg_imm32_b32"):
        return _make_write(decoded)
    if name == "s_getreg_b32":
        return _make_read(decoded)
    if name in ("s_memtime", "s_memrealtime"):
        return _make_clock(decoded)
    if name in ("s_getpc_b64", "s_setpc_b64", "s_swappc_b64"):
        return _make_jump(decoded)
    return None


def _read_register(decoded: DecodedInstruction, operand: Operand) -> tuple[str, int, int]:
    """Returns name, lowest bit and bits of what `hwreg(...)` names."""
    found = _REGISTER.fullmatch(operand.text)
    if found is None:
        raise decoded.refuse(f"the operand {operand.text!r}")
    return found[1].replace("_WAVE_", "_"), int(found[2] or 0), int(found[3] or 32)


def _make_write(decoded: DecodedInstruction) -> Step:
    decoded.allow()
    target, source = decoded.operands
    name, lowest, bits = _read_register(decoded, target)
    if name != "HW_REG_MODE":
        raise decoded.refuse(f"a write of {name}")
    read, mask = scalar_reader(decoded, source, 32), ((1 << bits) - 1) << lowest

    def run(wave: Wave) -> None:
        mode = wave.mode & ~mask | read(wave) << lowest & mask
        if mode & _FIXED_BITS != _FIXED_MODE:
            raise decoded.refuse(f"the mode {mode:#x} of rounding and denormals")
        wave.mode = mode

    return run


def _make_read(decoded: DecodedInstruction) -> Step:
    """S_GETREG_B32 of MODE, and of XCC_ID, which is 0: there is one die."""
    decoded.allow()
    target, source = decoded.operands
    name, lowest, bits = _read_register(decoded, source)
    if name not in ("HW_REG_MODE", "HW_REG_XCC_ID"):
        raise decoded.refuse(f"a read of {name}")
    write, mask = scalar_writer(decoded, target, 32), (1 << bits) - 1
    return lambda wave: write(wave, (wave.mode if name == "HW_REG_MODE" else 0) >> lowest & mask)


def _make_clock(decoded: DecodedInstruction) -> Step:
    """S_MEMTIME and S_MEMREALTIME: a counter that grows with each read, and arrives as a scalar load does."""
    decoded.allow()
    (target,) = decoded.operands
    write = scalar_writer(decoded, target, 64)
    numbers = (target.first, target.first + 1)

    def run(wave: Wave) -> None:
        wave.clock += _CYCLES_A_READ
        now = wave.clock

        def complete() -> None:
            wave.flying_scalars.difference_update(numbers)
            write(wave, now)

        for number in numbers:
            wave.scalars[number] = None
            wave.flying_scalars.add(number)
        wave.issue("scalar", complete)

    return run


def _make_jump(decoded: DecodedInstruction) -> Step:
    """S_GETPC_B64 gives the address of the next instruction, S_SETPC_B64 continues at one, S_SWAPPC_B64 does both: a
    jump out of the kernel is a fault, because functions outside of it are not loaded."""
    decoded.allow()
    following = decoded.instruction.address + 4
    if decoded.name == "s_getpc_b64":
        write = scalar_writer(decoded, decoded.operands[0], 64)
        return lambda wave: write(wave, following)
    read = scalar_reader(decoded, decoded.operands[-1], 64)
    if decoded.name == "s_setpc_b64":
        return lambda wave: wave.jump(read(wave))
    store = scalar_writer(decoded, decoded.operands[0], 64)

    def swap(wave: Wave) -> None:
        target = read(wave)
        store(wave, following)
        wave.jump(target)

    return swap
