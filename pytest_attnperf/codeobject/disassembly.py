"""What llvm-objdump says of an AMD kernel, as instructions.

It prints one line per instruction, with address and encoding in a comment:

    s_cbranch_scc1 63164                          // 0000000054B4: BFA2F6BC <kernel+0x14a8>
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from pytest_attnperf.codeobject.amdgcn import classify, falls_through
from pytest_attnperf.codeobject.instructions import Instruction, Listing, Place
from pytest_attnperf.codeobject.tools import Tool, run

_LINE = re.compile(
    r"\t(?P<text>\S.*?)\s*// (?P<address>[0-9A-F]{8,16}): (?P<words>[0-9A-F]{8}(?: [0-9A-F]{8})*)(?: <|$)"
)
_UNDECODED = re.compile(r"\.long\b|\.byte\b|<unknown>|<invalid")
_WORD_BYTES = 4

_FEATURES = dict.fromkeys(("gfx11", "gfx12"), ("--mattr=+real-true16",))
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
) -> Listing:
    """The instructions between `start` and `start + size`, addresses of the bare AMDGPU ELF `elf`.

    `place` says which source line an address came from. What the tool cannot decode leaves a reason in the listing.
    Raises CodeObjectError where it fails.
    """
    with tempfile.TemporaryDirectory(prefix="attnperf-") as folder:
        (Path(folder) / "kernel.hsaco").write_bytes(elf)
        # Without -z a run of zero words would be one line of dots.
        window = [f"--start-address={start:#x}", f"--stop-address={start + size:#x}"]
        text = run(tool.path, ["-d", "-z", *_FEATURES.get(arch[:5], ()), *window, "kernel.hsaco"], folder=Path(folder))
    return listing_of(text, start=start, size=size, place=place)


def listing_of(text: str, *, start: int, size: int, place: Callable[[int], Place | None]) -> Listing:
    """What llvm-objdump printed, as a listing; instructions that are missing or not decoded leave a reason in it."""
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
                _target(mnemonic, operands, address, range(start, start + size)),
                place(address),
                falls_through(mnemonic),
            )
        )
        expected = address + _WORD_BYTES * len(matched["words"].split())
    if expected != start + size:
        undecoded.append(expected)
    reason = f"words not decoded: {len(undecoded)}, the first at {undecoded[0]:#x}" if undecoded else ""
    return Listing(tuple(found), reason)


def _target(mnemonic: str, operands: str, address: int, kernel: range) -> int | None:
    """Where a branch with a distance in its last operand goes: words after its own, 16 bits with sign.

    From AMD's ISA documents, S_BRANCH: PC = PC + signext(SIMM16 * 4) + 4.
    """
    last = operands.rpartition(",")[2].strip()
    if classify(mnemonic) not in ("branch", "call") or not re.fullmatch(r"-?\d{1,6}", last):
        return None
    words = (int(last) + 0x8000 & 0xFFFF) - 0x8000
    target = address + _WORD_BYTES * (1 + words)
    return target if target in kernel else None
