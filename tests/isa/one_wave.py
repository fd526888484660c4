"""One wave that executes single instructions in LLVM's spelling, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.isa.lds import Lds
from pytest_attnperf.isa.memory import Array, GlobalMemory
from pytest_attnperf.isa.operands import ACCUMULATORS
from pytest_attnperf.isa.program import make_step
from pytest_attnperf.isa.wave import Wave


def make_wave(*, lds_bytes: int = 1024, number: int = 0, size: int = 64) -> Wave:
    """A wave with every lane active and nothing written."""
    return Wave(number, f"wave {number}", GlobalMemory(), Lds(lds_bytes), size=size)


def instruction(text: str, address: int = 0x100) -> Instruction:
    """The instruction that LLVM writes so."""
    mnemonic, _, operands = text.partition(" ")
    return Instruction(mnemonic, operands, address, None, ("kernel.hip", 12))


def run(wave: Wave, *texts: str, arch: str = "") -> None:
    """Executes the instructions, on gfx942 with 64 lanes and on gfx1100 with 32 unless `arch` says another one."""
    arch = arch or {64: "gfx942", 32: "gfx1100"}[wave.size]
    with np.errstate(all="ignore"):
        for text in texts:
            make_step(instruction(text), arch, wave.size)(wave)


def set_vector(wave: Wave, number: int, values: Array | Sequence[int]) -> None:
    """Writes a value of 32 bits per lane into v0 to v255, or from 256 on into AGPRs."""
    wave.write_words(
        number,
        np.asarray(values).view(np.uint32) if isinstance(values, np.ndarray) else np.array(values, np.uint32),
        wave.full,
    )


def vector(wave: Wave, name: str) -> Array:
    """The values of 'v3' or 'a3' as uint32."""
    number = int(name[1:]) + (ACCUMULATORS if name[0] == "a" else 0)
    row: Array = wave.vectors[number].copy()
    return row
