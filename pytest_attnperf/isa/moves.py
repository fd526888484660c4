"""Steps of moves. They copy whether a register was written, too: compilers move pairs of which only one half holds a
value, and values that only some lanes or paths have. An arithmetic use of what nothing wrote stays a fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.operands import ACCUMULATORS, M0, DecodedInstruction, Operand, name_vector
from pytest_attnperf.isa.scalar import scalar_reader
from pytest_attnperf.isa.sources import reader, writer
from pytest_attnperf.isa.wave import Step, Wave

_VECTOR_MOVES = {
    "v_mov_b32": 1,
    "v_mov_b64": 2,
    "v_accvgpr_read_b32": 1,
    "v_accvgpr_write_b32": 1,
    "v_accvgpr_mov_b32": 1,
}
"""Name -> registers."""

_SCALAR_MOVES = {"s_mov_b32": 1, "s_mov_b64": 2}


_INDEXED = {"v_movrels_b32": "SRC0", "v_movreld_b32": "DST"}
"""Moves of gfx10 and later whose source or destination M0 moves on."""


def make_move_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a move between registers of one kind; None for another instruction, or a constant."""
    words = _VECTOR_MOVES.get(decoded.name)
    if words is not None and decoded.encoding in ("", "e32", "e64") and not decoded.modifiers:
        target, source = decoded.operands
        plain = not (source.negative or source.absolute or source.part or target.part)
        plain = plain and source.half is None and target.half is None
        if plain and (target.kind, source.kind) == ("v", "v") and target.count == source.count == words:
            plain_move = _make_vector_move(target.first, source.first, words)
            return plain_move if words > 1 or decoded.rdna else _with_index(decoded, plain_move)
        if plain and target.kind == "v" and words == 1 and decoded.name == "v_mov_b32":
            constant = _make_constant_move(decoded, target, source)
            return constant if decoded.rdna else _with_index(decoded, constant)
    if decoded.name in _INDEXED and decoded.rdna:
        target, source = decoded.operands
        return _make_indexed_move(decoded, target, source, frozenset({_INDEXED[decoded.name]}))
    if decoded.name in ("s_set_gpr_idx_on", "s_set_gpr_idx_off"):
        return _make_index_mode(decoded)
    words = _SCALAR_MOVES.get(decoded.name)
    if words is not None and not decoded.modifiers:
        target, source = decoded.operands
        if (target.kind, source.kind) == ("s", "s") and target.count == source.count == words:
            return _make_scalar_move(target.first, source.first, words)
    return None


def _make_vector_move(target: int, source: int, words: int) -> Step:
    def run(wave: Wave) -> None:
        for place in range(words):
            if wave.flying and wave.flying.get(source + place):
                raise ExecutionFault(
                    f"reads {name_vector(source + place)}: its load is in flight: no s_waitcnt covers it"
                )
            wave.require_landed(target + place)
        mask = wave.exec_mask
        # A pair may overlap its source.
        values = wave.vectors[source : source + words].copy()
        known = wave.written[source : source + words]
        for place in range(words):
            np.copyto(wave.vectors[target + place], values[place], where=wave.lanes)
            wave.written[target + place] = wave.written[target + place] & ~mask | known[place] & mask

    return run


def _make_scalar_move(target: int, source: int, words: int) -> Step:
    return lambda wave: wave.write_known_bits(target, *wave.read_known_bits(source, words), words)


def _make_constant_move(decoded: DecodedInstruction, target: Operand, source: Operand) -> Step:
    write, read = writer(decoded, target, "b32"), reader(decoded, source, "b32")

    def run(wave: Wave) -> None:
        missing = wave.find_missing(source.kind, source.first)
        if missing:
            wave.require_landed(target.first)
            wave.written[target.first] &= ~missing
        else:
            write(wave, read(wave))

    return run


def _with_index(decoded: DecodedInstruction, plain: Step) -> Step:
    """Returns the step of V_MOV_B32 of gfx9, whose registers are indexed between S_SET_GPR_IDX_ON and OFF."""
    target, source = decoded.operands

    def run(wave: Wave) -> object:
        if wave.index_mode is None:
            return plain(wave)
        return _make_indexed_move(decoded, target, source, wave.index_mode)(wave)

    return run


def _make_indexed_move(decoded: DecodedInstruction, target: Operand, source: Operand, indexed: frozenset[str]) -> Step:
    """A move between registers whose numbers M0 raises: of the source (SRC0), the destination (DST) or both.

    Source: AMD, "CDNA3 Instruction Set Architecture", S_SET_GPR_IDX_ON; for RDNA see `rdna`.
    """

    def run(wave: Wave) -> object:
        by = wave.read_scalar(M0)
        # gfx9 indexes by 8 bits; M0 holds the mode above them.
        by = by if decoded.rdna else by & 0xFF
        first = target.first + (by if "DST" in indexed else 0)
        second = source.first + (by if "SRC0" in indexed else 0)
        if source.kind != "v":
            return _make_constant_move(decoded, replace(target, first=first), source)(wave)
        if max(first, second) >= ACCUMULATORS:
            raise ExecutionFault(f"indexes v{max(first, second)}, beyond the last register")
        return _make_vector_move(first, second, 1)(wave)

    return run


def _make_index_mode(decoded: DecodedInstruction) -> Step:
    """S_SET_GPR_IDX_ON and OFF of gfx9. M0 gets the index in 8 bits and the mode in bits 12 to 15."""
    if decoded.rdna:
        raise decoded.refuse("the opcode")
    if decoded.name.endswith("_off"):

        def stop(wave: Wave) -> None:
            wave.index_mode = None

        return stop
    read = scalar_reader(decoded, decoded.operands[0], 32)
    text = decoded.operands[1].text
    names = ("SRC0", "SRC1", "SRC2", "DST")
    chosen = frozenset(text.removeprefix("gpr_idx(").removesuffix(")").split(","))
    if not chosen <= {"SRC0", "DST"}:
        raise decoded.refuse(f"the operand {text!r}")
    mode = sum(1 << place for place, name in enumerate(names) if name in chosen)

    def start(wave: Wave) -> None:
        wave.write_scalar(M0, read(wave) & 0xFF | mode << 12)
        wave.index_mode = chosen

    return start
