"""A kernel as steps: its instructions decoded, each with the function that executes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from pytest_attnperf.codeobject.disassembly import disassemble
from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.codeobject.line_table import read_line_table
from pytest_attnperf.codeobject.objects import ObjectContents, ObjectKernel
from pytest_attnperf.codeobject.tools import find_objdumps
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.isa.atomics import make_lds_atomic_step
from pytest_attnperf.isa.dot import make_dot_step
from pytest_attnperf.isa.dpp import make_dpp_step
from pytest_attnperf.isa.dual import make_dual_step
from pytest_attnperf.isa.faults import UnknownInstructionError
from pytest_attnperf.isa.flat import make_flat_step
from pytest_attnperf.isa.flow import make_flow_step
from pytest_attnperf.isa.global_access import make_global_step
from pytest_attnperf.isa.hardware import make_hardware_step
from pytest_attnperf.isa.hazards import ARCHS as hazard_archs
from pytest_attnperf.isa.hazards import HazardWatch, find_hazards
from pytest_attnperf.isa.lanes import make_lane_step
from pytest_attnperf.isa.lds_access import make_lds_step
from pytest_attnperf.isa.matrix import make_matrix_step
from pytest_attnperf.isa.moves import make_move_step
from pytest_attnperf.isa.operands import DecodedInstruction, decode
from pytest_attnperf.isa.packed import make_packed_step
from pytest_attnperf.isa.rdna import make_rdna_step
from pytest_attnperf.isa.scalar import make_scalar_step
from pytest_attnperf.isa.scalar_floats import make_scalar_float_step
from pytest_attnperf.isa.scratch import make_scratch_step
from pytest_attnperf.isa.small_floats import make_small_float_step
from pytest_attnperf.isa.vector import make_vector_step
from pytest_attnperf.isa.wave import Step, Wave
from pytest_attnperf.isa.wmma import make_wmma_step

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")
"""Architectures whose instructions are executed: CDNA, RDNA3 and RDNA4."""

_FORMS = (make_dual_step, make_dpp_step)
"""Makers of instructions that run one or two plain ones."""

_MAKERS: tuple[Callable[[DecodedInstruction], Step | None], ...] = (
    make_flow_step,
    make_move_step,
    make_hardware_step,
    make_scalar_float_step,
    make_scalar_step,
    make_packed_step,
    make_wmma_step,
    make_matrix_step,
    make_dot_step,
    make_small_float_step,
    make_lane_step,
    make_lds_atomic_step,
    make_lds_step,
    make_flat_step,
    make_global_step,
    make_scratch_step,
    make_rdna_step,
    make_vector_step,
)


@dataclass(frozen=True)
class Program:
    """Instructions in order, a step for each, and address -> number."""

    instructions: tuple[Instruction, ...]
    steps: tuple[Step, ...]
    indices: Mapping[int, int]


def list_instructions(contents: ObjectContents, kernel: ObjectKernel) -> tuple[Instruction, ...]:
    """Returns a kernel's instructions with their source lines. Raises CodeObjectError if no disassembler decodes all of
    them, ToolMissingError if there is none."""
    place = read_line_table(contents.elf).find_place
    reasons = []
    for tool in find_objdumps(contents.arch):
        listing = disassemble(
            contents.elf,
            contents.arch,
            start=kernel.address,
            size=kernel.size,
            tool=tool,
            place=place,
            lanes=kernel.code.wave_size,
        )
        if not listing.undecoded:
            return listing.instructions
        reasons.append(f"{tool}: {listing.undecoded}")
    raise CodeObjectError(f"{kernel.code.name} cannot be disassembled: {'; '.join(reasons)}")


@lru_cache(maxsize=4)
def make_program(instructions: tuple[Instruction, ...], arch: str = "gfx942", lanes: int = 64) -> Program:
    """Returns the steps of a kernel for waves of `lanes` on `arch`.

    An instruction that is unknown raises where it is executed, not here: a kernel may hold code that it never reaches.
    """
    indices = {one.address: index for index, one in enumerate(instructions)}
    with np.errstate(all="ignore"):
        steps = tuple(_make_step_or_refusal(one, arch, lanes) for one in _refuse_indexed(instructions))
    if hazards := find_hazards(instructions, arch) if arch in hazard_archs else ():
        watch = HazardWatch(instructions, hazards, arch)
        steps = tuple(watch.watch(step, index) for index, step in enumerate(steps))
    return Program(instructions, steps, indices)


def make_step(instruction: Instruction, arch: str = "gfx942", lanes: int = 64) -> Step:
    """Returns the step of an instruction. Raises UnknownInstructionError, naming the opcode, operand or modifier that
    is not implemented."""
    for make in _FORMS:
        if (step := make(instruction, arch, lanes, _make_plain_step)) is not None:
            return step
    return _make_plain_step(decode(instruction, arch, lanes))


def _make_plain_step(decoded: DecodedInstruction) -> Step:
    for make in _MAKERS:
        try:
            step = make(decoded)
        except (ValueError, IndexError) as error:
            raise decoded.refuse(f"the form with {len(decoded.operands)} operands ({error})") from error
        if step is not None:
            return step
    raise decoded.refuse("the opcode")


def _make_step_or_refusal(instruction: Instruction, arch: str, lanes: int) -> Step:
    try:
        return make_step(instruction, arch, lanes)
    except UnknownInstructionError as error:
        refusal = error

    def refuse(_wave: Wave) -> None:
        raise refusal

    return refuse


def _refuse_indexed(instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    """Returns the instructions, with the opcode of those made unknown that stand between S_SET_GPR_IDX_ON and OFF and
    are no plain move, whose registers are indexed there."""
    checked, inside = [], False
    for one in instructions:
        inside = inside and one.mnemonic != "s_set_gpr_idx_off"
        known = one.mnemonic in ("v_mov_b32_e32", "s_nop") or not one.mnemonic.startswith(
            ("v_", "s_cbranch", "s_branch")
        )
        checked.append(one if known or not inside else replace(one, mnemonic=f"{one.mnemonic} with indices"))
        inside = inside or one.mnemonic == "s_set_gpr_idx_on"
    return tuple(checked)
