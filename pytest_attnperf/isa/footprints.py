"""What an instruction of gfx9 reads and writes, as far as the hardware leaves waiting for it to the program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, TypeAlias

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.isa.dpp import is_dpp
from pytest_attnperf.isa.faults import UnknownInstructionError
from pytest_attnperf.isa.matrix import read_shape
from pytest_attnperf.isa.operands import EXEC, M0, VCC, DecodedInstruction, Operand, decode

Unit: TypeAlias = Literal["xdl", "sgemm", "dgemm16", "dgemm4", "valu", "memory", "scalar", ""]

_EMPTY: frozenset[int] = frozenset()

LONGEST_WAIT = 20
"""Most wait states that any dependence asks for."""

VCC_REGISTERS, EXEC_REGISTERS = frozenset((VCC, VCC + 1)), frozenset((EXEC, EXEC + 1))
M0_REGISTER = frozenset((M0,))

_TRANSCENDENTAL = frozenset(
    f"v_{name}_{kind}"
    for name in ("exp", "log", "rcp", "rsq", "sqrt", "sin", "cos", "exp_legacy", "log_legacy", "rcp_iflag")
    for kind in ("f32", "f64", "f16")
)
_ACCUMULATING = ("v_fmac_", "v_dot2c_", "v_dot4c_", "v_dot8c_", "v_pk_fmac_")
_PARTIAL = ("v_cvt_pk_fp8_", "v_cvt_pk_bf8_", "v_cvt_scalef32_pk_fp8_", "v_cvt_scalef32_pk_bf8_", "v_fma_mixhi_f16")
_LANE_MOVES = ("v_readlane_b32", "v_writelane_b32", "v_readfirstlane_b32")
_TWO_DESTINATIONS = ("_co_u32", "v_div_scale_", "v_mad_u64_u32", "v_mad_i64_i32")
_EXCHANGES = ("v_swap_b32", "v_permlane32_swap_b32", "v_permlane16_swap_b32")


@dataclass(frozen=True)
class Footprint:
    """What one instruction does.

    unit            'xdl' products of 16 and fewer bits, 'sgemm' of float32, 'dgemm16' and 'dgemm4' of float64, 'valu',
                    'memory' all vector accesses, 'scalar'; '' others
    states          wait states that it counts as: 1, n + 1 of s_nop n
    passes          of a product, of 4 cycles
    reads, writes   vector registers; `reads` without C of a product
    addend          (first register, registers) of C
    result          (first register, registers) of D
    constants       scalar registers that it reads, but for masks and lane numbers
    lane_numbers    scalar registers with the number of a lane
    scalar_writes   scalar registers
    store_data      vector registers of a store of more than 8 bytes
    opcode          of a dot product, else ''
    transcendental, dpp, shifts_result, divides, to_lds   as the hazards need it
    """

    unit: Unit = ""
    states: int = 1
    passes: int = 0
    reads: frozenset[int] = _EMPTY
    writes: frozenset[int] = _EMPTY
    addend: tuple[int, int] | None = None
    result: tuple[int, int] | None = None
    constants: frozenset[int] = _EMPTY
    lane_numbers: frozenset[int] = _EMPTY
    scalar_writes: frozenset[int] = _EMPTY
    store_data: frozenset[int] = _EMPTY
    opcode: str = ""
    transcendental: bool = False
    dpp: bool = False
    shifts_result: bool = False
    divides: bool = False
    moves_lanes: bool = False
    to_lds: bool = False

    @cached_property
    def product(self) -> bool:
        """Whether it is a matrix product."""
        return self.unit in ("xdl", "sgemm", "dgemm16", "dgemm4")

    @cached_property
    def touched(self) -> frozenset[int]:
        """Vector registers that it reads or writes."""
        addend = range(self.addend[0], self.addend[0] + self.addend[1]) if self.addend else ()
        return self.reads | self.writes | frozenset(addend)

    @cached_property
    def ends(self) -> frozenset[int]:
        """Vector registers that another one's use of may come too early: what it writes, reads as C, or stores."""
        return self.touched if self.product else self.writes | self.store_data

    @cached_property
    def window(self) -> int:
        """The most wait states that it can ask for."""
        if self.product:
            return LONGEST_WAIT
        if self.unit == "valu":
            return 5 if self.scalar_writes else 3
        return 2 if self.store_data else int(bool(self.scalar_writes & M0_REGISTER))


@lru_cache(maxsize=1 << 16)
def read_footprint(instruction: Instruction, arch: str) -> Footprint:
    """Returns what an instruction does; an empty footprint of one that is unknown, which stops the run elsewhere."""
    try:
        decoded = decode(instruction, arch)
        name = decoded.name
        if name == "s_nop":
            return Footprint(states=1 + decoded.operands[0].first)
        if name.startswith("v_mfma_"):
            return _of_product(decoded)
        if name.startswith("v_"):
            return _of_vector(decoded)
        if name.startswith(("global_", "buffer_", "flat_", "scratch_", "ds_")):
            return _of_memory(decoded)
        if name.startswith("s_") and decoded.operands and decoded.operands[0].kind == "s":
            return Footprint("scalar", scalar_writes=_registers(decoded.operands[:1], "s"))
    except (UnknownInstructionError, IndexError, ValueError):
        return Footprint()
    return Footprint()


def _registers(operands: Iterable[Operand], kind: str) -> frozenset[int]:
    return frozenset(
        number for one in operands if one.kind == kind for number in range(one.first, one.first + one.count)
    )


def _of_product(decoded: DecodedInstruction) -> Footprint:
    shape = read_shape(decoded)
    target, left, right, addend = decoded.operands
    unit: Unit = "sgemm" if shape.left == "f32" else "xdl"
    if shape.left == "f64":
        unit = "dgemm16" if shape.side == 16 else "dgemm4"
    dense = shape.blocks == 1 and shape.left != "f32" and decoded.arch != "gfx90a"
    passes = {4: 2, 16: 4 if dense else 8, 32: 8 if dense else 16}[shape.side] * shape.stretches
    return Footprint(
        unit,
        passes=passes,
        reads=_registers((left, right), "v"),
        writes=_registers((target,), "v"),
        addend=(addend.first, addend.count) if addend.kind == "v" else None,
        result=(target.first, target.count),
    )


def _of_vector(decoded: DecodedInstruction) -> Footprint:
    name, operands = decoded.name, list(decoded.operands)
    targets = [operands.pop(0)]
    if any(part in name for part in _TWO_DESTINATIONS):
        targets.append(operands.pop(0))
    if name.startswith(("v_cndmask_", "v_addc_co_", "v_subb_co_", "v_subbrev_co_")):
        operands.pop()  # a mask of lanes, for which the hardware waits
    lane_numbers = [operands.pop()] if name in ("v_readlane_b32", "v_writelane_b32") else []
    target = targets[0]
    shifts = target.part not in ("", "DWORD") or name.startswith(_PARTIAL)
    shifts = shifts or (len(selected := decoded.numbers("op_sel", ())) == len(operands) + 1 and bool(selected[-1]))
    also_read = [target] if shifts or name.startswith(_ACCUMULATING) or name in _EXCHANGES else []
    written = [*targets, *(operands if name in _EXCHANGES else [])]
    scalar = set(_registers(targets, "s"))
    if name.startswith("v_cmpx_"):
        scalar |= {EXEC, EXEC + 1}
    return Footprint(
        "valu",
        reads=_registers([*operands, *also_read], "v"),
        writes=_registers(written, "v"),
        constants=_registers(operands, "s"),
        lane_numbers=_registers(lane_numbers, "s"),
        scalar_writes=frozenset(scalar),
        opcode=name if name.startswith("v_dot") else "",
        transcendental=name in _TRANSCENDENTAL,
        dpp=is_dpp(decoded.instruction),
        shifts_result=shifts,
        divides=name.startswith("v_div_fmas_"),
        moves_lanes=name in _LANE_MOVES,
    )


def _of_memory(decoded: DecodedInstruction) -> Footprint:
    name, operands = decoded.name, list(decoded.operands)
    to_lds = "lds" in decoded.modifiers or "_load_lds_" in name
    # Loads, and atomics that return a value, begin with their destination; it is not ready when they issue.
    loads = (
        "_load" in name or name.startswith(("ds_read", "ds_bpermute", "ds_permute", "ds_swizzle")) or "_rtn_" in name
    )
    if loads and not to_lds:
        operands.pop(0)
    wide = name.endswith(("_dwordx3", "_dwordx4", "_cmpswap_x2")) and not loads
    scalar_offset = name.startswith("buffer_") and operands[-1].kind == "s"
    data = [max((one for one in operands if one.kind == "v"), key=lambda one: one.count)] if wide else []
    return Footprint(
        "memory",
        reads=_registers(operands, "v"),
        constants=_registers(operands, "s") if not name.startswith("ds_") else _EMPTY,
        store_data=_EMPTY if scalar_offset else _registers(data, "v"),
        to_lds=to_lds,
    )
