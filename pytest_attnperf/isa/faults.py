"""The errors of an execution: what cannot be executed, and what the machine code does wrong."""

from __future__ import annotations

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.errors import AttnperfError


class IsaError(AttnperfError):
    """Base of what the interpreter raises. `locate` adds the instruction; the first location stays. `issued_at` is the
    number of the instruction of an access that failed where a later wait completed it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.instruction: Instruction | None = None
        self.where = ""
        self.issued_at: int | None = None

    def locate(self, instruction: Instruction, where: str = "") -> None:
        """Notes the instruction that was executed, and the wave ('workgroup (0, 1, 0), wave 2')."""
        if self.instruction is None:
            self.instruction, self.where = instruction, where

    def __str__(self) -> str:
        message = super().__str__()
        return (
            f"{format_place(self.instruction)}{f' ({self.where})' if self.where else ''}: {message}"
            if (self.instruction)
            else message
        )


class UnknownInstructionError(IsaError):
    """An opcode, operand or modifier that the interpreter does not know. Nothing is guessed in its place."""


class ExecutionFault(IsaError):
    """The kernel reads what was never written or is still in flight, leaves a buffer, races or never ends."""


def format_place(instruction: Instruction) -> str:
    """Returns the instruction's text, address and source line, where known: 'v_add_u32 v0, v1, v2 at 0x1b40,
    flash.hip:12'."""
    place = f", {instruction.place[0]}:{instruction.place[1]}" if instruction.place else ""
    return f"{instruction.mnemonic} {instruction.operands}".rstrip() + f" at {instruction.address:#x}{place}"
