"""What nvdisasm says of an NVIDIA kernel, as instructions.

It prints labels, places and one line per instruction, with its offset in the kernel's section:

    .L_x_1:
        //## File "/src/prefill.py", line 102
        /*0ff0*/              @!P5 BRA `(.L_x_0) ;
"""

from __future__ import annotations

import itertools
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from pytest_attnperf.codeobject.instructions import Instruction, Listing, Place
from pytest_attnperf.codeobject.sass import classify, falls_through
from pytest_attnperf.codeobject.tools import Tool, run

_SECTION = re.compile(r"\t?\.section\s+([^,\s]+)")
_LABEL = re.compile(r"([\w.$@]+):\s*$")
_PLACE = re.compile(r'\s*//## File "(?P<file>[^"]*)", line (?P<line>\d{1,9})\b')
_INSTRUCTION = re.compile(
    r"\s*/\*(?P<offset>[0-9a-f]{4,16})\*/\s+(?:(?P<predicate>@!?U?P\w+)\s+)?(?P<mnemonic>[A-Z][\w.]*)(?P<operands>[^;]*)"
)
_LABEL_OPERAND = re.compile(r"`\((\S+?)\)")


def disassemble_cubin(elf: bytes, *, symbol: str, size: int, tool: Tool) -> Listing:
    """The instructions of the kernel `symbol` of a cubin; its section holds `size` bytes.

    What is missing leaves a reason in the listing. Raises CodeObjectError where the tool fails, for instance because
    it does not know the architecture.
    """
    with tempfile.TemporaryDirectory(prefix="attnperf-") as folder:
        (Path(folder) / "kernel.cubin").write_bytes(elf)
        text = run(tool.path, ["-c", "-g", "-ndf", "kernel.cubin"], folder=Path(folder))
    return cubin_listing_of(text, symbol=symbol, size=size)


def cubin_listing_of(text: str, *, symbol: str, size: int) -> Listing:
    """What nvdisasm printed of the section of `symbol`, as a listing."""
    inside = False
    place: Place | None = None
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    for line in text.splitlines():
        if section := _SECTION.match(line):
            inside = section[1] == f".text.{symbol}"
            place = None
        elif not inside:
            continue
        elif label := _LABEL.match(line):
            waiting.append(label[1])
        elif source := _PLACE.match(line):
            place = source["file"], int(source["line"])
        elif matched := _INSTRUCTION.match(line):
            found.append(_instruction(matched, place))
            labels |= dict.fromkeys(waiting, found[-1].address)
            waiting.clear()
    resolved = tuple(_resolved(one, labels) for one in found)
    return Listing(resolved, _missing(resolved, symbol, size))


def _instruction(matched: re.Match[str], place: Place | None) -> Instruction:
    operands = matched["operands"].strip()
    runs_on = falls_through(matched["mnemonic"], operands, matched["predicate"] or "")
    return Instruction(matched["mnemonic"], operands, int(matched["offset"], 16), None, place, runs_on)


def _resolved(one: Instruction, labels: dict[str, int]) -> Instruction:
    """The instruction with the address of its target, where it jumps to a label."""
    label = _LABEL_OPERAND.search(one.operands)
    if label is None or classify(one.mnemonic) not in ("branch", "call"):
        return one
    return replace(one, target=labels.get(label[1]))


def _missing(found: tuple[Instruction, ...], symbol: str, size: int) -> str:
    if not found:
        return f"nvdisasm shows no code of {symbol!r}"
    # Instructions have 16 bytes since Volta.
    steps = [*(one.address for one in found), size]
    gap = next((at for at, after in itertools.pairwise(steps) if after != at + 16), None)
    return "" if gap is None else f"nvdisasm shows no instruction at {gap + 16:#x}"
