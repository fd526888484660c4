"""Counts of instructions by class, inside loops and by source line, of one kernel of a code object.

Without a disassembler, an AMD kernel is read from the assembler text that Triton keeps (`asm["amdgcn"]`). This text
lacks the assembler's padding (`.p2align`), so it may have fewer s_nop than the object; the rest is equal.

A loop is a set of instructions that can run again: a strongly connected part of the control flow. The position of its
blocks in memory does not matter, because compilers move cold blocks out of a loop, and jump back to blocks that several
paths share. Inner loops, and loops with the same header, are part of the outer loop, and so is code that a loop calls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath

from pytest_attnperf.codeobject import amdgcn, sass
from pytest_attnperf.codeobject.amdgcn import classify, falls_through
from pytest_attnperf.codeobject.disassembly import disassemble, disassemble_cubin
from pytest_attnperf.codeobject.instructions import CLASSES, Instruction, Listing, Place
from pytest_attnperf.codeobject.line_table import source_lines
from pytest_attnperf.codeobject.tools import Tool, cuda_tools, find_objdumps
from pytest_attnperf.errors import CodeObjectError, ToolMissingError
from pytest_attnperf.records.code import SourceLine

_LABEL = re.compile(r'("?)([\w.$@]+)\1:')
_FILE = re.compile(r'\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s+"((?:[^"\\]|\\.)*)")?')
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d{1,9})\b")


@dataclass(frozen=True)
class Decoded:
    """Values for the fields of the same names in `KernelCode`.

    undecoded         why `instructions` or `in_loops` are empty, '' if they are not
    innermost_loops   instructions of each innermost loop, in order of address
    """

    instructions: dict[str, int]
    in_loops: dict[str, int]
    lines: tuple[SourceLine, ...]
    undecoded: str
    innermost_loops: tuple[tuple[Instruction, ...], ...] = ()


def decode_machine_code(
    elf: bytes,
    arch: str,
    symbol: str,
    start: int,
    size: int,
    *,
    scratch_bytes: int = 0,
    assembly: str = "",
    place: Callable[[int], Place | None] = lambda _address: None,
) -> Decoded:
    """Returns the instruction counts of the kernel `symbol`, the `size` bytes from address `start` of the bare ELF
    `elf`.

    It prefers disassembling the object; `assembly`, AMD's assembler text, is used if no disassembler decodes all of it.
    `scratch_bytes` are the kernel's per lane. `place` maps an address to its source line; for NVIDIA nvdisasm does so.
    Code that cannot be decoded is no error: `undecoded` of the result says why.
    """
    reasons: list[str] = []
    if arch.startswith("gfx"):
        listing = _find_complete_listing(
            lambda: find_objdumps(arch),
            lambda tool: disassemble(elf, arch, start=start, size=size, tool=tool, place=place),
            reasons,
        )
        if listing is None and assembly:
            listing = read_assembly(assembly, symbol)
        resource = amdgcn.scratch_resource(listing.instructions, arch, scratch_bytes) if listing else ""
        return _count_classes(listing, partial(amdgcn.classify, scratch_resource=resource), reasons)
    listing = _find_complete_listing(
        lambda: cuda_tools("nvdisasm"),
        lambda tool: disassemble_cubin(elf, symbol=symbol, size=size, tool=tool),
        reasons,
    )
    return _count_classes(listing, sass.classify, reasons)


def disassembler_version(arch: str, *, assembly: bool) -> str:
    """Returns the names and versions of the disassemblers for `arch`. Without one: 'assembler text' if a compiler's
    text exists (`assembly`), else 'none'."""
    try:
        tools = find_objdumps(arch) if arch.startswith("gfx") else cuda_tools("nvdisasm")
    except ToolMissingError:
        return "assembler text" if assembly else "none"
    return ", ".join(f"{tool.path.name} {tool.version}" for tool in tools)


def _find_complete_listing(
    tools: Callable[[], Sequence[Tool]], listed_by: Callable[[Tool], Listing], reasons: list[str]
) -> Listing | None:
    """Returns the listing of the first tool that decodes everything, None if no tool does; adds the failures of the
    tools to `reasons`."""
    try:
        found = tools()
    except ToolMissingError as error:
        found = ()
        reasons.append(str(error))
    for tool in found:
        try:
            listing = listed_by(tool)
        except CodeObjectError as error:
            reasons.append(str(error))
            continue
        if not listing.undecoded:
            return listing
        reasons.append(f"{tool}: {listing.undecoded}")
    return None


def _count_classes(listing: Listing | None, classify: Callable[[str, str], str], reasons: Sequence[str]) -> Decoded:
    if listing is None or listing.undecoded:
        return Decoded({}, {}, (), "; ".join([*reasons, *([listing.undecoded] if listing else [])]))
    classes = [classify(one.mnemonic, one.operands) for one in listing.instructions]
    loops = find_loops(listing.instructions, classes)
    inside = [name for one, name in zip(listing.instructions, classes, strict=True) if one.address in loops.members]
    lines = source_lines(listing.instructions, classes)
    innermost = tuple(
        tuple(one for one in listing.instructions if one.address in members)
        for members in split_loops(loops, listing.instructions)
    )
    reason = f"loops: {loops.unknown}" if loops.unknown else ""
    return Decoded(_order_classes(classes), _order_classes(inside), lines, reason, innermost)


def _order_classes(classes: Sequence[str]) -> dict[str, int]:
    counts = Counter(classes)
    return {name: counts[name] for name in CLASSES if counts[name]}


@dataclass
class _Reading:
    """State of reading assembler text: instructions by index, and label -> index of the next instruction."""

    files: dict[str, str] = field(default_factory=dict)
    place: Place | None = None
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


def read_assembly(text: str, symbol: str) -> Listing:
    """Returns the instructions of the function `symbol` in an assembler text; their addresses are indices. Without that
    function, the listing is empty and has a reason."""
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
            _read_line(line, reading)
        if ended:
            break
    if not reading.instructions:
        return Listing((), f"the assembler text holds no function {symbol!r}")
    return Listing(tuple(_resolve_target(one, reading.labels) for one in reading.instructions))


def _read_line(line: str, reading: _Reading) -> None:
    """Adds one line of the function to `reading`: its source place or an instruction. Other lines are ignored."""
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


def _resolve_target(one: Instruction, labels: dict[str, int]) -> Instruction:
    """Returns the instruction; if it jumps to a label, with the index of the instruction behind the label as its
    target."""
    target = labels.get(one.operands.rpartition(",")[2].strip())
    if target is None or classify(one.mnemonic) not in ("branch", "call"):
        return one
    return replace(one, target=target)


INDIRECT = "calls or indirect branches"
"""Reason why the loops of a kernel are unknown: the target of a jump is in a register."""


@dataclass(frozen=True)
class Loop:
    """An outermost loop: its entry address, and the addresses of all its instructions."""

    header: int
    members: frozenset[int]


@dataclass(frozen=True)
class Loops:
    """The loops of a kernel in order of address.

    members   every instruction inside a loop, including functions that loops call
    unknown   why the loops are not known, '' if they are
    """

    loops: tuple[Loop, ...]
    members: frozenset[int]
    unknown: str = ""


def find_loops(instructions: Sequence[Instruction], classes: Sequence[str]) -> Loops:
    """Returns the loops of a kernel, from its instructions, the entry first, and the class of each. A jump or call with
    an unknown target makes the loops unknown, because it could lead anywhere. Unreachable code, such as the jump to
    itself that NVIDIA's compiler appends to a kernel, is not a loop."""
    jumps = [(name, one) for name, one in zip(classes, instructions, strict=True) if name in ("branch", "call")]
    if any(one.target is None for _, one in jumps):
        return Loops((), frozenset(), INDIRECT)
    everything = _find_successors(instructions)
    reached = _find_reachable([one.address for one in instructions[:1]], everything)
    successors = {at: after for at, after in everything.items() if at in reached}
    loops = [Loop(_find_loop_entry(members, successors), members) for members in _find_cycles(successors)]
    inside = {address for loop in loops for address in loop.members}
    returns = {one.address for name, one in zip(classes, instructions, strict=True) if name == "return"}
    for name, one in jumps:
        if name == "call" and one.address in inside and one.target in successors:
            called = _find_reachable([one.target], successors)
            # NVIDIA's compiler for sm_80 leaves loops by calls that never return.
            inside |= called if called & returns else set()
    return Loops(tuple(sorted(loops, key=lambda loop: loop.header)), frozenset(inside))


def split_loops(loops: Loops, instructions: Sequence[Instruction]) -> tuple[frozenset[int], ...]:
    """Returns the addresses of each innermost loop: an outer loop is split into those inside of it."""
    successors = _find_successors(instructions) if loops.loops else {}
    return tuple(inner for loop in loops.loops for inner in _split_loop(loop.members, successors))


def _split_loop(members: frozenset[int], successors: Mapping[int, Collection[int]]) -> list[frozenset[int]]:
    """Returns the innermost loops of a loop: what still repeats if nothing jumps back to its entry."""
    entry = _find_loop_entry(members, successors)
    without = {at: [to for to in successors[at] if to in members and to != entry] for at in sorted(members)}
    inner = _find_cycles(without)
    return [deeper for one in inner for deeper in _split_loop(one, successors)] or [members]


def _find_successors(instructions: Sequence[Instruction]) -> dict[int, tuple[int, ...]]:
    """Returns address -> addresses that may run next. A call jumps and returns; a return has no successor."""
    known = {one.address for one in instructions}
    after: dict[int, tuple[int, ...]] = {}
    for index, one in enumerate(instructions):
        following = [other.address for other in instructions[index + 1 : index + 2] if one.falls_through]
        targets = [target for target in (one.target,) if target is not None and target in known]
        after[one.address] = (*following, *targets)
    return after


def _find_reachable(
    starts: Iterable[int], successors: Mapping[int, Collection[int]], without: Collection[int] = ()
) -> set[int]:
    waiting = list(starts)
    seen: set[int] = set()
    while waiting:
        at = waiting.pop()
        if at not in seen and at not in without:
            seen.add(at)
            waiting.extend(successors[at])
    return seen


def _find_cycles(successors: Mapping[int, Collection[int]]) -> list[frozenset[int]]:
    """Returns the address sets of strongly connected parts of the control flow that have a cycle (Kosaraju and Sharir
    1981)."""
    predecessors: dict[int, list[int]] = {at: [] for at in successors}
    for at, after in successors.items():
        for to in after:
            predecessors[to].append(at)
    taken: set[int] = set()
    cycles = []
    for at in reversed(_list_postorder(successors)):
        if at in taken:
            continue
        members = frozenset(_find_reachable([at], predecessors, taken))
        taken |= members
        if len(members) > 1 or at in successors[at]:
            cycles.append(members)
    return cycles


def _list_postorder(successors: Mapping[int, Collection[int]]) -> list[int]:
    """Returns the addresses in depth-first postorder of the control flow."""
    left: list[int] = []
    seen: set[int] = set()
    for root in successors:
        walk = [] if root in seen else [(root, iter(successors[root]))]
        seen.add(root)
        while walk:
            at, rest = walk[-1]
            to = next((one for one in rest if one not in seen), None)
            if to is None:
                walk.pop()
                left.append(at)
            else:
                seen.add(to)
                walk.append((to, iter(successors[to])))
    return left


def _find_loop_entry(members: frozenset[int], successors: Mapping[int, Collection[int]]) -> int:
    """Returns the loop's entry: its lowest address that code outside the loop reaches."""
    entries = {to for at, after in successors.items() if at not in members for to in after} & members
    return min(entries or members)
