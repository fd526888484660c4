"""Steps that move values between lanes, or between lanes and scalar registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pytest_attnperf.isa.operands import ACCUMULATORS, DecodedInstruction, Operand
from pytest_attnperf.isa.parts import write_row
from pytest_attnperf.isa.scalar import known_bits_reader, scalar_reader, scalar_writer
from pytest_attnperf.isa.sources import bits_reader
from pytest_attnperf.isa.vector_table import count_bits
from pytest_attnperf.isa.wave import Step, Wave

_WORD = 0xFFFFFFFF


def make_lane_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of an instruction that moves values between lanes or register files; None for another one."""
    make = _STEPS.get(decoded.name)
    if make is None:
        return None
    decoded.allow()
    return make(decoded)


def _require_vector(decoded: DecodedInstruction, operand: Operand) -> int:
    if operand.kind != "v" or operand.count != 1:
        raise decoded.refuse(f"the operand {operand.text!r} where a vector register stands")
    return operand.first


def _make_first_lane(decoded: DecodedInstruction) -> Step:
    """V_READFIRSTLANE_B32: the lowest active lane; lane 0 where none is active."""
    write = scalar_writer(decoded, decoded.operands[0], 32)
    number = _require_vector(decoded, decoded.operands[1])

    def run(wave: Wave) -> None:
        mask = wave.exec_mask or 1
        lane = (mask & -mask).bit_length() - 1
        wave.require_written(number, 1 << lane)
        write(wave, int(wave.vectors[number, lane]))

    return run


def _make_read_lane(decoded: DecodedInstruction) -> Step:
    """V_READLANE_B32: one lane, active or not. Compilers keep scalar registers in lanes: what nothing wrote there is
    copied as such."""
    target, source, lane_operand = decoded.operands
    write, number = scalar_writer(decoded, target, 32), _require_vector(decoded, source)
    lane_of = scalar_reader(decoded, lane_operand, 32)

    def run(wave: Wave) -> None:
        lane = lane_of(wave) % wave.size
        if wave.flying.get(number):
            wave.require_written(number, 1 << lane)
        value = int(wave.vectors[number, lane])
        write(wave, value)
        kept, missing = wave.kept_scalars.get((number, lane), (0, 0))
        if not wave.written[number] >> lane & 1:
            wave.write_known_bits(target.first, 0, _WORD, 1)
        elif missing and kept == value:
            wave.write_known_bits(target.first, value, missing, 1)

    return run


def _make_write_lane(decoded: DecodedInstruction) -> Step:
    """V_WRITELANE_B32: one lane, active or not; of a register that nothing wrote it becomes unwritten."""
    target, source, lane_operand = decoded.operands
    number, read = _require_vector(decoded, target), known_bits_reader(decoded, source, 32)
    lane_of = scalar_reader(decoded, lane_operand, 32)

    def run(wave: Wave) -> None:
        lane = lane_of(wave) % wave.size
        wave.require_landed(number)
        value, missing = read(wave)
        wave.vectors[number, lane] = value
        wave.written[number] = wave.written[number] & ~(1 << lane) | (0 if missing == _WORD else 1 << lane)
        wave.kept_scalars[number, lane] = value, missing

    return run


def _make_register_move(decoded: DecodedInstruction) -> Step:
    """V_ACCVGPR_READ, WRITE and MOV: between v and a registers, active lanes."""
    number, read = _require_vector(decoded, decoded.operands[0]), bits_reader(decoded, decoded.operands[1])
    accumulator = number >= ACCUMULATORS
    if accumulator == (decoded.name == "v_accvgpr_read_b32"):
        raise decoded.refuse(f"the destination {decoded.operands[0].text!r}")
    return lambda wave: write_row(wave, number, read(wave))


def _make_half_swap(swapped: int) -> Callable[[DecodedInstruction], Step]:
    """V_PERMLANE32_SWAP and V_PERMLANE16_SWAP of gfx950: rows of 32 or 16 lanes; the odd rows of the first register and
    the even rows of the second change places. All lanes must be active."""
    lanes = np.arange(64)
    odd = lanes[lanes // swapped % 2 == 1]
    even = odd - swapped

    def make(decoded: DecodedInstruction) -> Step:
        first, second = (_require_vector(decoded, one) for one in decoded.operands)

        def run(wave: Wave) -> None:
            if wave.exec_mask != wave.full:
                raise decoded.refuse("a swap of rows with inactive lanes")
            for number in (first, second):
                wave.require_written(number, wave.full)
            upper = wave.vectors[first, odd].copy()
            wave.vectors[first, odd] = wave.vectors[second, even]
            wave.vectors[second, even] = upper

        return run

    return make


def _make_swap(decoded: DecodedInstruction) -> Step:
    """V_SWAP_B32: the active lanes of two registers change places."""
    first, second = (_require_vector(decoded, one) for one in decoded.operands)

    def run(wave: Wave) -> None:
        for number in (first, second):
            wave.require_written(number, wave.exec_mask)
        left = wave.vectors[first].copy()
        write_row(wave, first, wave.vectors[second])
        write_row(wave, second, left)

    return run


def _make_lane_count(decoded: DecodedInstruction) -> Step:
    """V_MBCNT_LO and HI: the second source plus the set bits of a mask's half that belong to lower lanes."""
    target, mask, addend = decoded.operands
    number, read_mask, read = _require_vector(decoded, target), bits_reader(decoded, mask), bits_reader(decoded, addend)
    start = 32 if decoded.name == "v_mbcnt_hi_u32_b32" else 0
    lower = np.array([(1 << min(max(lane - start, 0), 32)) - 1 for lane in range(decoded.lanes)], np.uint32)
    return lambda wave: write_row(wave, number, count_bits(read_mask(wave) & lower) + read(wave))


_STEPS: dict[str, Callable[[DecodedInstruction], Step]] = {
    "v_readfirstlane_b32": _make_first_lane,
    "v_readlane_b32": _make_read_lane,
    "v_writelane_b32": _make_write_lane,
    "v_accvgpr_read_b32": _make_register_move,
    "v_accvgpr_write_b32": _make_register_move,
    "v_accvgpr_mov_b32": _make_register_move,
    "v_swap_b32": _make_swap,
    "v_mbcnt_lo_u32_b32": _make_lane_count,
    "v_mbcnt_hi_u32_b32": _make_lane_count,
    "v_permlane32_swap_b32": _make_half_swap(32),
    "v_permlane16_swap_b32": _make_half_swap(16),
}
