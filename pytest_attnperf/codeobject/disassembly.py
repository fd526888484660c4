"""Parses disassemblers' output into instructions: llvm-objdump for AMD kernels, nvdisasm for NVIDIA.

llvm-objdump prints one line per instruction, with address and encoding in a comment:

    s_cbranch_scc1 63164                          // 0000000054B4: BFA2F6BC <kernel+0x14a8>

nvdisasm prints labels, places and one line per instruction, with its offset in the kernel's section:

    .L_x_1:
        //## File "/src/prefill.py", line 102
        /*0ff0*/              @!P5 BRA `(.L_x_0) ;
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pytest_attnperf.codeobject import amdgcn, sass
from pytest_attnperf.codeobject.instructions import Instruction, Listing, Place
from pytest_attnperf.codeobject.tools import Tool, run

_LINE = re.compile(
    r"\t(?P<text>\S.*?)\s*// (?P<address>[0-9A-F]{8,16}): (?P<words>[0-9A-F]{8}(?: [0-9A-F]{8})*)(?: <|$)"
)
_UNDECODED = re.compile(r"\.long\b|\.byte\b|<unknown>|<invalid")
_WORD_BYTES = 4

_FEATURES = dict.fromkeys(("gfx11", "gfx12"), ("+real-true16",))
"""By the first five characters of the architecture. Without it LLVM 22 does not know the instructions on upper halves
of registers (`v114.h`) that Triton's compiler writes for gfx1201; other code reads the same with it. A tool that does
not know the feature only warns."""


def disassemble(
    elf: bytes,
    arch: str,
    *,
    start: int,
    size: int,
    tool: Tool,
    place: Callable[[int], Place | None] = lambda _address: None,
    lanes: int = 0,
) -> Listing:
    """Returns the instructions from address `start` to `start + size` of the bare AMDGPU ELF `elf`. If the tool cannot
    decode something, the listing has a reason. `place` maps an address to its source line; with 64 `lanes` on an
    architecture that has 32 by default, masks of lanes are written as two registers. Raises CodeObjectError if the tool
    fails."""
    features = (*_FEATURES.get(arch[:5], ()), *(("+wavefrontsize64",) if lanes == 64 and arch[:4] != "gfx9" else ()))
    with tempfile.TemporaryDirectory(prefix="attnperf-") as folder:
        (Path(folder) / "kernel.hsaco").write_bytes(elf)
        # Without -z a run of zero words would be printed as one line of dots.
        window = [f"--start-address={start:#x}", f"--stop-address={start + size:#x}"]
        text = run(
            tool.path,
            ["-d", "-z", *([f"--mattr={','.join(features)}"] if features else []), *window, "kernel.hsaco"],
            folder=Path(folder),
        )
    return parse_listing(text, start=start, size=size, place=place)


def parse_listing(text: str, *, start: int, size: int, place: Callable[[int], Place | None]) -> Listing:
    """Returns the instructions in llvm-objdump's output; the listing has a reason if some are missing or undecoded."""
    found: list[Instruction] = []
    undecoded: list[int] = []
    expected = start
    for line in text.splitlines():
        matched = _LINE.match(line)
        if matched is None:
            continue
        address = int(matched["address"], 16)
        mnemonic, _, operands = matched["text"].partition(" ")
        if address != expected or _UNDECODED.match(matched["text"]):
            undecoded.append(min(address, expected))
        found.append(
            Instruction(
                mnemonic,
                operands.strip(),
                address,
                _branch_target(mnemonic, operands, address, range(start, start + size)),
                place(address),
                amdgcn.falls_through(mnemonic),
            )
        )
        expected = address + _WORD_BYTES * len(matched["words"].split())
    if expected != start + size:
        undecoded.append(expected)
    reason = f"words not decoded: {len(undecoded)}, the first at {undecoded[0]:#x}" if undecoded else ""
    return Listing(tuple(found), reason)


def _branch_target(mnemonic: str, operands: str, address: int, kernel: range) -> int | None:
    """Returns the target of a branch whose last operand is a signed 16-bit distance in words after the branch; None for
    other instructions, and for a target outside the kernel. From AMD's ISA documents, S_BRANCH: PC = PC +
    signext(SIMM16 * 4) + 4."""
    last = operands.rpartition(",")[2].strip()
    if amdgcn.classify(mnemonic) not in ("branch", "call") or not re.fullmatch(r"-?\d{1,6}", last):
        return None
    words = (int(last) + 0x8000 & 0xFFFF) - 0x8000
    target = address + _WORD_BYTES * (1 + words)
    return target if target in kernel else None


_SECTION = re.compile(r"\t?\.section\s+([^,\s]+)")
_LABEL = re.compile(r"([\w.$@]+):\s*$")
_PLACE = re.compile(r'\s*//## File "(?P<file>[^"]*)", line (?P<line>\d{1,9})\b')
_INSTRUCTION = re.compile(
    r"\s*/\*(?P<offset>[0-9a-f]{4,16})\*/\s+(?:(?P<predicate>@!?U?P\w+)\s+)?(?P<mnemonic>[A-Z][\w.]*)(?P<operands>[^;]*)"
)
_LABEL_OPERAND = re.compile(r"`\((\S+?)\)")


def disassemble_cubin(elf: bytes, *, symbol: str, size: int, tool: Tool) -> Listing:
    """Returns the instructions of the kernel `symbol` of a cubin, whose section has `size` bytes. If some are missing,
    the listing has a reason. Raises CodeObjectError if the tool fails, for example because it does not know the
    architecture."""
    with tempfile.TemporaryDirectory(prefix="attnperf-") as folder:
        (Path(folder) / "kernel.cubin").write_bytes(elf)
        text = run(tool.path, ["-c", "-g", "-ndf", "kernel.cubin"], folder=Path(folder))
    return parse_cubin_listing(text, symbol=symbol, size=size)


def parse_cubin_listing(text: str, *, symbol: str, size: int) -> Listing:
    """Returns the instructions of `symbol` in nvdisasm's output; the listing has a reason if some are missing."""
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
            found.append(_parse_instruction(matched, place))
            labels |= dict.fromkeys(waiting, found[-1].address)
            waiting.clear()
    resolved = tuple(_resolve_target(one, labels) for one in found)
    return Listing(resolved, _describe_missing(resolved, symbol, size))


def _parse_instruction(matched: re.Match[str], place: Place | None) -> Instruction:
    operands = matched["operands"].strip()
    runs_on = sass.falls_through(matched["mnemonic"], operands, matched["predicate"] or "")
    return Instruction(matched["mnemonic"], operands, int(matched["offset"], 16), None, place, runs_on)


def _resolve_target(one: Instruction, labels: dict[str, int]) -> Instruction:
    """Returns the instruction; if it jumps to a label, with the label's address as its target (None if unknown)."""
    label = _LABEL_OPERAND.search(one.operands)
    if label is None or sass.classify(one.mnemonic) not in ("branch", "call"):
        return one
    return replace(one, target=labels.get(label[1]))


def _describe_missing(found: tuple[Instruction, ...], symbol: str, size: int) -> str:
    if not found:
        return f"nvdisasm shows no code of {symbol!r}"
    # Instructions have 16 bytes since Volta.
    steps = [*(one.address for one in found), size]
    gap = next((at for at, after in itertools.pairwise(steps) if after != at + 16), None)
    return "" if gap is None else f"nvdisasm shows no instruction at {gap + 16:#x}"
