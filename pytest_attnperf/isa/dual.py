"""VOPD: two vector instructions of one encoding, both of which read before either writes.

The destinations differ, V_CNDMASK reads VCC. Not checked against a document (see `rdna`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.isa.operands import MOVED, DecodedInstruction, decode
from pytest_attnperf.isa.wave import Step, Wave

_SEPARATOR = " :: "
_PREFIX = "v_dual_"


def make_dual_step(
    instruction: Instruction, arch: str, lanes: int, make: Callable[[DecodedInstruction], Step]
) -> Step | None:
    """Returns the step of both instructions of a pair, None for another instruction; `make` gives that of one."""
    if not instruction.mnemonic.startswith(_PREFIX):
        return None
    first, second = _split(instruction, arch, lanes)
    if lanes != 32:
        raise first.refuse("a pair of instructions in a wave of 64 lanes")
    target, other = first.operands[0].first, second.operands[0].first
    if target == other:
        raise first.refuse("a pair of instructions with one destination")
    if not _reads(second, target):
        return _run_both(make(first), make(second))
    if not _reads(first, other):
        return _run_both(make(second), make(first))
    # Each reads what the other writes: the second reads a copy.
    copied = make(_reading_copy(second, target))
    run_first = make(first)
    copy = MOVED[0]

    def run(wave: Wave) -> None:
        wave.vectors[copy] = wave.vectors[target]
        wave.written[copy] = wave.written[target]
        run_first(wave)
        copied(wave)

    return run


def _split(instruction: Instruction, arch: str, lanes: int) -> tuple[DecodedInstruction, DecodedInstruction]:
    left, separator, right = instruction.operands.partition(_SEPARATOR)
    mnemonic, _, operands = right.partition(" ")
    whole = decode(replace(instruction, operands=left), arch, lanes)
    if not separator or not mnemonic.startswith(_PREFIX) or _SEPARATOR in right:
        raise whole.refuse("this form of a pair")
    pair = []
    for name, text in ((instruction.mnemonic, left), (mnemonic, operands)):
        plain = f"v_{name.removeprefix(_PREFIX)}"
        if plain == "v_cndmask_b32" and text.count(",") == 2:
            text += ", vcc_lo"
        one = decode(replace(instruction, mnemonic=plain, operands=text), arch, lanes)
        if not one.operands or one.operands[0].kind != "v":
            raise whole.refuse("this form of a pair")
        # What it raises names the whole instruction.
        pair.append(replace(one, instruction=instruction))
    return pair[0], pair[1]


def _reads(decoded: DecodedInstruction, number: int) -> bool:
    return any(one.kind == "v" and one.first == number for one in decoded.operands[1:])


def _reading_copy(decoded: DecodedInstruction, number: int) -> DecodedInstruction:
    target, *sources = decoded.operands
    moved = (replace(one, first=MOVED[0]) if one.kind == "v" and one.first == number else one for one in sources)
    return replace(decoded, operands=(target, *moved))


def _run_both(first: Step, second: Step) -> Step:
    def run(wave: Wave) -> None:
        first(wave)
        second(wave)

    return run
