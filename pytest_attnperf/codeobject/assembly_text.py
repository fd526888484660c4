"""The instructions of an AMD kernel from the assembler text that Triton keeps (`asm["amdgcn"]`).

It serves where no disassembler is found. Padding that the assembler adds (`.p2align`) is not in it, so that it may have
fewer s_nop than the object; every other instruction is the object's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from pytest_attnperf.codeobject.amdgcn import classify, falls_through
from pytest_attnperf.codeobject.instructions import Instruction, Listing, Place

_LABEL = re.compile(r'("?)([\w.$@]+)\1:')
_FILE = re.compile(r'\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s+"((?:[^"\\]|\\.)*)")?')
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d{1,9})\b")


@dataclass
class _Reading:
    """What was read of the kernel so far: instructions by index, and the index that each label stands before."""

    files: dict[str, str] = field(default_factory=dict)
    place: Place | None = None
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


def read_assembly(text: str, symbol: str) -> Listing:
    """The instructions of the function `symbol`; their addresses are indices.

    A text without it leaves a reason in an empty listing.
    """
    reading = _Reading()
    inside = ended = False
    for line in (raw.strip() for raw in text.splitlines()):
        if found := _FILE.match(line):
            reading.files[found[1]] = str(PurePosixPath(found[2]) / found[3]) if found[3] else found[2]
        elif label := _LABEL.match(line):
            inside = inside or label[2] == symbol
            ended = inside and label[2].startswith(".Lfunc_end")
            reading.labels.setdefault(label[2], len(reading.instructions))
        elif inside:
            ended = bool(re.match(rf"\.size\s+\"?{re.escape(symbol)}\b", line))
            _read(line, reading)
        if ended:
            break
    if not reading.instructions:
        return Listing((), f"the assembler text holds no function {symbol!r}")
    return Listing(tuple(_resolved(one, reading.labels) for one in reading.instructions))


def _read(line: str, reading: _Reading) -> None:
    """One line inside the function: a place, an instruction, or nothing of interest."""
    if loc := _LOC.match(line):
        reading.place = (reading.files[loc[1]], int(loc[2])) if loc[1] in reading.files else None
    code = line.partition(";")[0].partition("//")[0].strip()
    if not code or code.startswith((".", "#")):
        return
    mnemonic, *rest = code.split(None, 1)
    reading.instructions.append(
        Instruction(
            mnemonic,
            rest[0] if rest else "",
            len(reading.instructions),
            None,
            reading.place,
            falls_through(mnemonic),
        )
    )


def _resolved(one: Instruction, labels: dict[str, int]) -> Instruction:
    """The instruction with the index of its target, where it jumps to a label."""
    target = labels.get(one.operands.rpartition(",")[2].strip())
    if target is None or classify(one.mnemonic) not in ("branch", "call"):
        return one
    return replace(one, target=target)
