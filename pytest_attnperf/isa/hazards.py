"""Dependences that the hardware of gfx9 does not wait for: the program must put s_nop or other instructions between.

Sources: AMD, "CDNA3 Instruction Set Architecture", 4.5 (tables 11 and 12) and 7.5 (table 37), "CDNA4", 7.6 (table 38);
for gfx90a, and where CDNA4's table asks for more after products of 2 passes than compilers give, LLVM's
`GCNHazardRecognizer`. Not checked: S_SETREG, VCCZ and EXECZ as data, traps, and what writes the data of a wide store
but a vector instruction.

A program is searched once: along every path the instructions that are too near are listed. Only where there are any,
its waves keep a record of what they executed, and one that takes such a path stops there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.isa.faults import ExecutionFault, format_place
from pytest_attnperf.isa.footprints import (
    EXEC_REGISTERS,
    M0_REGISTER,
    VCC_REGISTERS,
    Footprint,
    read_footprint,
)
from pytest_attnperf.isa.operands import name_scalar, name_vector
from pytest_attnperf.isa.wave import Step, Wave

ARCHS = ("gfx90a", "gfx942", "gfx950")


@dataclass(frozen=True)
class Hazard:
    """Two instructions that are too near on some path.

    first, second   their numbers
    needed          wait states between them
    registers       that the second uses too early, and whether they are scalar
    what            'v7' or 's4', and what the second does with it
    """

    first: int
    second: int
    needed: int
    registers: frozenset[int]
    scalar: bool
    what: str


@dataclass(frozen=True)
class _Rules:
    """The waits of one architecture after matrix products."""

    arch: str

    def after(self, first: Footprint, *, memory: bool) -> int:
        """Until another unit, or a product as A or B, may read the result."""
        if first.unit == "dgemm16":
            return 18 if memory else 19 if self.arch == "gfx950" else 11
        if first.unit == "dgemm4":
            return 9 if memory else 6
        if self.arch == "gfx90a":
            return {2: 5, 8: 11, 16: 19}[first.passes]
        return first.passes + 2 + (first.unit == "xdl") * (1 + self._longer(first))

    def addend(self, first: Footprint, second: Footprint) -> int:
        """Until a product may read the result, or a part of it, as C."""
        if first.result == second.addend:
            if first.unit == "dgemm4" and second.unit == "dgemm4":
                return 4
            return 2 if first.passes == 2 and self.arch != "gfx90a" and not first.unit.startswith("dgemm") else 0
        if first.unit.startswith("dgemm"):
            overlapped = 4 if first.unit == "dgemm4" else 17 if self.arch == "gfx950" else 9
            return 0 if second.unit == "xdl" or (self.arch == "gfx90a" and second.unit == "sgemm") else overlapped
        if self.arch == "gfx90a":
            return first.passes + second.unit.startswith("dgemm")
        if first.unit == "xdl":
            return first.passes + 1 + self._longer(first)
        return 0 if second.unit == "xdl" else first.passes

    def overwrite(self, first: Footprint) -> int:
        """Until a vector instruction may write what a product reads as C."""
        if first.unit.startswith("dgemm") or (first.unit == "sgemm" and self.arch != "gfx90a"):
            return 0
        return first.passes - 1

    def _longer(self, first: Footprint) -> int:
        return int(self.arch == "gfx950" and first.passes != 2)


def _span(place: tuple[int, int] | None) -> frozenset[int]:
    return frozenset(range(place[0], place[0] + place[1])) if place else frozenset()


def _after_product(first: Footprint, second: Footprint, rules: _Rules) -> list[tuple[int, frozenset[int], str]]:
    found = []
    if second.product:
        found.append((rules.after(first, memory=False), first.writes & second.reads, "reads"))
        found.append((rules.addend(first, second), first.writes & _span(second.addend), "reads as C"))
    elif second.unit in ("valu", "memory"):
        memory = second.unit == "memory"
        found.append((rules.after(first, memory=memory), first.writes & second.reads, "reads"))
        if not memory:
            found.append((rules.after(first, memory=False), first.writes & second.writes, "writes"))
            found.append((rules.overwrite(first), _span(first.addend) & second.writes, "writes"))
    return found


def _after_vector(first: Footprint, second: Footprint, arch: str) -> list[tuple[int, frozenset[int], str]]:
    found = []
    newer = arch != "gfx90a"
    if first.opcode and second.unit and first.opcode != second.opcode:
        found.append((3, first.writes & (second.reads | second.writes | _span(second.addend)), "uses"))
    elif second.product and not first.opcode:
        found.append((2, first.writes & (second.reads | _span(second.addend)), "reads"))
    if second.unit == "valu":
        if second.dpp:
            found.append((2, first.writes & second.reads, "reads with DPP"))
        if newer and (first.shifts_result or (first.transcendental and not second.transcendental)):
            found.append((1, first.writes & second.reads, "reads"))
        if newer and second.moves_lanes:
            found.append((1, first.writes & second.reads, "reads"))
    return found


def _after_scalar_write(first: Footprint, second: Footprint, arch: str) -> list[tuple[int, frozenset[int], str]]:
    """Scalar registers that a vector instruction writes."""
    written = first.scalar_writes
    found = [
        (5, written & second.constants if second.unit == "memory" else frozenset(), "addresses memory with"),
        (4, written & second.lane_numbers, "takes a lane's number from"),
        (4, written & VCC_REGISTERS if second.divides else frozenset(), "scales by"),
    ]
    if arch != "gfx90a" and second.unit == "valu":
        found.append((2, written & second.constants, "reads"))
    if written & EXEC_REGISTERS:
        lanes = written & EXEC_REGISTERS
        found.append((5 if second.dpp else 4 if second.product or second.moves_lanes else 0, lanes, "runs under"))
    return found


def _dependences(first: Footprint, second: Footprint, rules: _Rules) -> list[tuple[int, frozenset[int], str, bool]]:
    """Returns (wait states, registers, what the second does, whether they are scalar) of two instructions."""
    vector: list[tuple[int, frozenset[int], str]] = []
    scalar: list[tuple[int, frozenset[int], str]] = []
    if first.product:
        vector = _after_product(first, second, rules)
    elif first.unit == "valu":
        vector = _after_vector(first, second, rules.arch) if first.writes else []
        scalar = _after_scalar_write(first, second, rules.arch) if first.scalar_writes else []
    elif first.store_data and second.unit == "valu":
        vector = [(1 if rules.arch == "gfx90a" else 2, first.store_data & second.writes, "overwrites the data")]
    elif first.unit == "scalar" and second.to_lds:
        scalar = [(1, first.scalar_writes & M0_REGISTER, "addresses LDS with")]
    return [(*one, False) for one in vector] + [(*one, True) for one in scalar]


@lru_cache(maxsize=16)
def find_hazards(instructions: tuple[Instruction, ...], arch: str) -> tuple[Hazard, ...]:
    """Returns the dependences that some path through the kernel does not wait for."""
    footprints = [read_footprint(one, arch) for one in instructions]
    indices = {one.address: index for index, one in enumerate(instructions)}
    following = [_successors(instructions, indices, index) for index in range(len(instructions))]
    leaders = {target for index, targets in enumerate(following) if targets != [index + 1] for target in targets}
    entries: dict[int, dict[int, int]] = {0: {}}
    pending = deque([0])
    while pending:
        index = pending.popleft()
        near = dict(entries[index])
        while True:
            near = _advance(near, footprints, index)
            if following[index] != [index + 1] or index + 1 in leaders:
                break
            index += 1
        for target in following[index]:
            known = entries.get(target)
            merged = dict(near) if known is None else {**near, **known}
            for place in merged.keys() & near.keys():
                merged[place] = min(merged[place], near[place])
            if known is None or merged != known:
                entries[target] = merged
                pending.append(target)
    return tuple(_list_hazards(footprints, entries, following, arch))


def _successors(instructions: tuple[Instruction, ...], indices: Mapping[int, int], index: int) -> list[int]:
    one, found = instructions[index], []
    if one.falls_through and index + 1 < len(instructions):
        found.append(index + 1)
    if one.target is not None and one.target in indices:
        found.append(indices[one.target])
    return found


def _advance(near: dict[int, int], footprints: Sequence[Footprint], index: int) -> dict[int, int]:
    """Returns which instructions are near behind number `index`, and the wait states since each."""
    states = footprints[index].states
    after = {place: since + states for place, since in near.items() if since + states < footprints[place].window}
    if footprints[index].window:
        after[index] = 0
    return after


def _list_hazards(
    footprints: Sequence[Footprint], entries: Mapping[int, dict[int, int]], following: Sequence[list[int]], arch: str
) -> list[Hazard]:
    rules, found = _Rules(arch), []
    for start in entries:
        near, index = dict(entries[start]), start
        while True:
            found += _hazards_of(index, near, footprints, rules)
            near = _advance(near, footprints, index)
            if following[index] != [index + 1] or index + 1 in entries:
                break
            index += 1
    return found


def _hazards_of(index: int, near: dict[int, int], footprints: Sequence[Footprint], rules: _Rules) -> list[Hazard]:
    """Returns the hazards of one instruction with those before it, the nearest first. A register that a nearer one has
    written is that one's."""
    second = footprints[index]
    found: list[Hazard] = []
    if not second.unit:
        return found
    covered: set[int] = set()
    scalars = second.constants | second.lane_numbers
    implicit = second.dpp or second.product or second.divides or second.moves_lanes or second.to_lds
    for place in sorted(near, key=near.__getitem__):
        first = footprints[place]
        if first.ends.isdisjoint(second.touched) and not (first.scalar_writes and (implicit or scalars)):
            continue
        for needed, registers, does, scalar in _dependences(first, second, rules):
            early = registers if scalar else registers - covered
            if early and near[place] < needed:
                name = (name_scalar if scalar else name_vector)(min(early))
                found.append(Hazard(place, index, needed, early, scalar, f"{does} {name}"))
        covered |= first.writes
    return found


@dataclass
class HazardWatch:
    """Wraps the steps of a program that has hazards."""

    instructions: tuple[Instruction, ...]
    hazards: tuple[Hazard, ...]
    arch: str
    _by_second: dict[int, list[Hazard]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for hazard in self.hazards:
            self._by_second.setdefault(hazard.second, []).append(hazard)
        self._footprints = [read_footprint(one, self.arch) for one in self.instructions]

    def watch(self, step: Step, index: int) -> Step:
        """Returns a step that notes itself, and raises ExecutionFault where a hazard is met."""
        hazards = self._by_second.get(index, [])

        def run(wave: Wave) -> object:
            for hazard in hazards:
                self._check(hazard, wave.trace)
            wave.trace.append(index)
            return step(wave)

        return run

    def _check(self, hazard: Hazard, trace: deque[int]) -> None:
        since = 0
        for index in reversed(trace):
            if index == hazard.first:
                raise ExecutionFault(
                    f"{hazard.what}, {since} wait states after {format_place(self.instructions[index])}; the hardware "
                    f"does not wait for it, and {hazard.needed} are needed: s_nop or other instructions are missing"
                )
            footprint = self._footprints[index]
            since += footprint.states
            if since >= hazard.needed or (not hazard.scalar and hazard.registers <= footprint.writes):
                return
