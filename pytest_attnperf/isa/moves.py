"""Steps of moves. They copy whether a register was written, too: compilers move pairs of which only one half holds a
value, and values that only some lanes or paths have. An arithmetic use of what nothing wrote stays a fault."""

from __future__ import annotations

import numpy as np

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.operands import DecodedInstruction
from pytest_attnperf.isa.wave import Step, Wave, name_vector

_VECTOR_MOVES = {
    "v_mov_b32": 1,
    "v_mov_b64": 2,
    "v_accvgpr_read_b32": 1,
    "v_accvgpr_write_b32": 1,
    "v_accvgpr_mov_b32": 1,
}
"""Name -> registers."""

_SCALAR_MOVES = {"s_mov_b32": 1, "s_mov_b64": 2}


def make_move_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a move between registers of one kind; None for another instruction, or a constant."""
    words = _VECTOR_MOVES.get(decoded.name)
    if words is not None and decoded.encoding in ("", "e32", "e64") and not decoded.modifiers:
        target, source = decoded.operands
        plain = not (source.negative or source.absolute or source.part or target.part)
        plain = plain and source.half is None and target.half is None
        if plain and (target.kind, source.kind) == ("v", "v") and target.count == source.count == words:
            return _make_vector_move(target.first, source.first, words)
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
