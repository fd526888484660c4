"""DPP: a vector instruction whose first source comes from other lanes of a row of 16, of 8 lanes, or of the wave.

The moved source lies in registers of its own (`MOVED`), and the plain instruction runs on them, in the lanes that are
written. Sources: AMD, "CDNA3 Instruction Set Architecture", DPP; LLVM, "Syntax of AMDGPU Instruction Modifiers". RDNA
is not checked against its document (see `rdna`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import MOVED, DecodedInstruction, decode
from pytest_attnperf.isa.wave import Step, Wave, lanes_of, mask_of

_ROW = 16

_IN_ROW: dict[str, Callable[[Array, int], Array]] = {
    "row_shl": lambda lane, count: lane + count,
    "row_shr": lambda lane, count: lane - count,
    "row_ror": lambda lane, count: (lane - count) % _ROW,
    "row_mirror": lambda lane, _: _ROW - 1 - lane,
    "row_half_mirror": lambda lane, _: lane // 8 * 8 + 7 - lane % 8,
    "row_share": lambda lane, count: np.full_like(lane, count),
    "row_newbcast": lambda lane, count: np.full_like(lane, count),
    "row_xmask": lambda lane, count: lane ^ count,
}
"""Place in its row and operand of the control -> place in the row that is read, outside of 0 to 15 none."""

_IN_WAVE: dict[str, Callable[[Array, int], Array]] = {
    "quad_perm": lambda lane, _: lane,
    "dpp8": lambda lane, _: lane,
    "wave_shl": lambda lane, count: lane + count,
    "wave_shr": lambda lane, count: lane - count,
    "wave_rol": lambda lane, count: (lane + count) % len(lane),
    "wave_ror": lambda lane, count: (lane - count) % len(lane),
    "row_bcast": lambda lane, last: np.where(lane > last, (lane - lane % (last + 1)) - 1, -1),
}
"""The same of lanes in the wave. row_bcast:15 gives a row the last lane of the row before it, row_bcast:31 the upper
half of the wave lane 31."""

_CONTROLS = frozenset({*_IN_ROW, *_IN_WAVE})
_CONTROL = re.compile(rf"\b({'|'.join(sorted(_CONTROLS))})\b")
_MODIFIERS = frozenset({*_CONTROLS, "row_mask", "bank_mask", "bound_ctrl", "fi"})


@dataclass(frozen=True)
class _Move:
    """What the lanes of one EXEC do.

    writing   lanes that are written
    needed    lanes that are read
    sources   lane -> lane that it reads
    zeros     lanes that read 0; None if none does
    """

    writing: int
    needed: int
    sources: Array
    zeros: Array | None


def is_dpp(instruction: Instruction) -> bool:
    """Returns whether the instruction reads its first source from other lanes."""
    # LLVM writes some comparisons without the suffix.
    return "_dpp" in instruction.mnemonic or _CONTROL.search(instruction.operands) is not None


def make_dpp_step(
    instruction: Instruction, arch: str, lanes: int, make: Callable[[DecodedInstruction], Step]
) -> Step | None:
    """Returns the step of a DPP instruction, None for another one; `make` gives that of the plain one.

    A lane whose source is outside of its row, or inactive without `fi`, reads 0 with `bound_ctrl:1`, and is not written
    without. Raises UnknownInstructionError for an unknown control, and where it runs for a mask of lanes or DPP8 with
    a lane that has no source.
    """
    if not is_dpp(instruction):
        return None
    decoded = decode(instruction, arch, lanes)
    place = _place_of_source(decoded)
    source = decoded.operands[place]
    if source.kind != "v" or source.count > len(MOVED):
        raise decoded.refuse(f"the operand {source.text!r} with DPP")
    moved = replace(source, first=MOVED[0])
    operands = (*decoded.operands[:place], moved, *decoded.operands[place + 1 :])
    modifiers = {name: value for name, value in decoded.modifiers.items() if name not in _MODIFIERS}
    step = make(replace(decoded, encoding="e64", operands=operands, modifiers=modifiers))
    move_of = _make_moves(decoded)
    registers = [(source.first + at, MOVED[at]) for at in range(source.count)]

    def run(wave: Wave) -> None:
        active = wave.exec_mask
        move = move_of(active)
        for number, target in registers:
            if move.needed & ~wave.written[number]:
                wave.require_written(number, move.needed)
            row = wave.vectors[number][move.sources]
            if move.zeros is not None:
                row[move.zeros] = 0
            wave.vectors[target] = row
            wave.written[target] = wave.full
        if move.writing == active:
            step(wave)
            return
        wave.set_exec(move.writing)
        step(wave)
        wave.set_exec(active)

    return run


def _place_of_source(decoded: DecodedInstruction) -> int:
    """Returns the place of the first source: behind the destination, and behind a mask of carries."""
    if decoded.name.startswith("v_cmpx_"):
        return 0
    return 2 if "_co_" in decoded.name else 1


def _make_moves(decoded: DecodedInstruction) -> Callable[[int], _Move]:
    """Returns the move of each EXEC, made when it is first met."""
    controls = [name for name in _CONTROLS if name in decoded.modifiers]
    if len(controls) != 1 or decoded.modifiers.get("bound_ctrl") == 0:
        # bound_ctrl:0 is how LLVM before 13 wrote what is bound_ctrl:1 now.
        raise decoded.refuse("DPP with these modifiers")
    sources = _source_lanes(decoded, controls[0])
    inside = sources >= 0
    chosen = np.where(inside, sources, 0)
    lanes = np.arange(decoded.lanes)
    row_mask, bank_mask = decoded.number("row_mask", 15), decoded.number("bank_mask", 15)
    enabled = ((row_mask >> lanes // _ROW) & (bank_mask >> lanes % _ROW // 4) & 1).astype(bool)
    zero, fetch = decoded.number("bound_ctrl") == 1, decoded.number("fi") == 1
    strict = decoded.name.startswith("v_cmp") or "_co_" in decoded.name
    moves: dict[int, _Move] = {}

    def make(active: int) -> _Move:
        running = lanes_of(active, decoded.lanes)
        valid = inside if fetch else inside & running[chosen]
        writing = running & enabled & (valid | zero)
        if (strict and not (writing == running).all()) or ("dpp8" in controls and not valid[running].all()):
            raise decoded.refuse("a lane without a source")
        needed = np.zeros(decoded.lanes, bool)
        needed[chosen[writing & valid]] = True
        return _Move(mask_of(writing), mask_of(needed), chosen, None if valid.all() else ~valid)

    def move_of(active: int) -> _Move:
        if active not in moves:
            moves[active] = make(active)
        return moves[active]

    return move_of


def _source_lanes(decoded: DecodedInstruction, control: str) -> Array:
    """Returns the lane that each lane reads; -1 is none."""
    lanes = np.arange(decoded.lanes)
    for name, group in (("quad_perm", 4), ("dpp8", 8)):
        if control == name:
            order = np.array(decoded.numbers(name, ()))
            found: Array = lanes - lanes % group + order[lanes % group]
            return found
    count = decoded.number(control)
    if control in _IN_ROW:
        within = _IN_ROW[control](lanes % _ROW, count)
        return np.where((within >= 0) & (within < _ROW), lanes - lanes % _ROW + within, -1)
    if control == "row_bcast" and count not in (15, 31):
        raise decoded.refuse(f"row_bcast:{count}")
    found = _IN_WAVE[control](lanes, count)
    return np.where((found >= 0) & (found < decoded.lanes), found, -1)
