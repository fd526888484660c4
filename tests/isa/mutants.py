"""Mutants of a kernel's machine code: one barrier, wait, matrix instruction, shuffle or LDS store is left out, or a
register of it changed to its neighbour."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.isa.faults import ExecutionFault
from tests.isa.attention import Compiled, Edit, Problem, dropped

TARGETS = re.compile(
    r"s_barrier|s_wait|v_(s?w?mma|s?mf?ma)|ds_(b?permute|swizzle|write|store)|v_permlane|\w+_dpp|buffer_load_\w+_lds"
)
"""Mnemonics of which each instruction is mutated."""

_VECTOR = re.compile(r"\b([va])(?:\[(\d+):(\d+)\]|(\d+)\b)")

VECTOR_REGISTERS = 256


@dataclass(frozen=True)
class Mutant:
    """A change of the instruction at `place`: 'dropped', or 'register', the one that it writes or stores."""

    place: int
    change: str
    instruction: Instruction

    @property
    def edit(self) -> Edit:
        """What makes it of the kernel's instructions."""
        if self.change == "dropped":
            return dropped({self.place})
        operands = with_neighbour(self.instruction)

        def edit(instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
            changed = list(instructions)
            changed[self.place] = replace(self.instruction, operands=operands)
            return tuple(changed)

        return edit

    @property
    def key(self) -> tuple[str, str, str]:
        """Change, mnemonic and source line ('07_best.hip:120'), which stay where addresses move."""
        file, line = self.instruction.place or ("", 0)
        return (self.change, self.instruction.mnemonic, f"{file.rpartition('/')[2]}:{line}")


def with_neighbour(instruction: Instruction) -> str:
    """The operands with the register that is written changed to its neighbour, of an LDS store the one that is stored.

    Neighbour of an aligned pair is the next pair, because the hardware knows no other.
    """
    stores = re.match(r"ds_(write|store)", instruction.mnemonic)
    found = list(_VECTOR.finditer(instruction.operands))[1 if stores else 0]
    first, last = int(found[2] or found[4]), int(found[3] or found[4])
    step = 1 if first == last else 2
    step = step if last + step < VECTOR_REGISTERS else -step
    bank = found[1]
    changed = f"{bank}[{first + step}:{last + step}]" if first != last else f"{bank}{first + step}"
    return instruction.operands[: found.start()] + changed + instruction.operands[found.end() :]


def list_instructions(kernel: Compiled) -> tuple[Instruction, ...]:
    """The kernel's instructions."""
    seen: list[Instruction] = []

    def look(instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        seen.extend(instructions)
        return instructions

    kernel.run(Problem(16, 16, heads=1), edit=look)
    return tuple(seen)


def list_mutants(kernel: Compiled) -> Iterator[Mutant]:
    """Every mutant of the kernel, in order of its code."""
    for place, one in enumerate(list_instructions(kernel)):
        if TARGETS.match(one.mnemonic):
            yield Mutant(place, "dropped", one)
            if not one.mnemonic.startswith("s_") and "lds" not in one.mnemonic:
                yield Mutant(place, "register", one)


def is_found(kernel: Compiled, mutant: Mutant, runs: tuple[tuple[Problem, int], ...]) -> bool:
    """Whether one of the runs, (problem, seed of the waves' order), is wrong or a fault."""
    for problem, seed in runs:
        try:
            if not kernel.run(problem, seed=seed, edit=mutant.edit).right:
                return True
        except ExecutionFault:
            return True
    return False
