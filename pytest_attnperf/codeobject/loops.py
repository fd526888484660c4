"""Which instructions of a kernel lie inside loops.

A loop is a set of instructions each of which can run again: a strongly connected part of the control flow. Where its
blocks lie in memory does not matter: compilers move cold blocks out of a loop, and jump back to blocks that several
paths share. Loops inside a loop, and loops of one header, are part of it. Code that a loop calls is in the loop, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.codeobject.instructions import Instruction

INDIRECT = "calls or indirect branches"
"""Why the loops of a kernel are not known: where a jump leads is in a register."""


@dataclass(frozen=True)
class Loop:
    """An outermost loop: the address at which it is entered, and those of all its instructions."""

    header: int
    members: frozenset[int]


@dataclass(frozen=True)
class Loops:
    """The loops of a kernel in order of address.

    members   every instruction inside a loop, with the functions that loops call
    unknown   why they are not known, '' where they are
    """

    loops: tuple[Loop, ...]
    members: frozenset[int]
    unknown: str = ""


def find_loops(instructions: Sequence[Instruction], classes: Sequence[str]) -> Loops:
    """The loops of a kernel from its instructions, the entry first, and the class of each.

    A jump or call without a known target makes them unknown: it could lead anywhere. Code that nothing reaches, such as
    the jump to itself that NVIDIA's compiler puts behind a kernel, is no loop.
    """
    jumps = [(name, one) for name, one in zip(classes, instructions, strict=True) if name in ("branch", "call")]
    if any(one.target is None for _, one in jumps):
        return Loops((), frozenset(), INDIRECT)
    everything = _successors(instructions)
    reached = _reachable([one.address for one in instructions[:1]], everything)
    successors = {at: after for at, after in everything.items() if at in reached}
    loops = [Loop(_header(members, successors), members) for members in _cycles(successors)]
    inside = {address for loop in loops for address in loop.members}
    returns = {one.address for name, one in zip(classes, instructions, strict=True) if name == "return"}
    for name, one in jumps:
        if name == "call" and one.address in inside and one.target in successors:
            called = _reachable([one.target], successors)
            # NVIDIA's compiler for sm_80 leaves loops by calls that never come back.
            inside |= called if called & returns else set()
    return Loops(tuple(sorted(loops, key=lambda loop: loop.header)), frozenset(inside))


def _successors(instructions: Sequence[Instruction]) -> dict[int, tuple[int, ...]]:
    """Addresses that may run after each instruction. A call is a jump that comes back; a return leads nowhere."""
    known = {one.address for one in instructions}
    after: dict[int, tuple[int, ...]] = {}
    for index, one in enumerate(instructions):
        following = [other.address for other in instructions[index + 1 : index + 2] if one.falls_through]
        targets = [target for target in (one.target,) if target is not None and target in known]
        after[one.address] = (*following, *targets)
    return after


def _reachable(
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


def _cycles(successors: Mapping[int, Collection[int]]) -> list[frozenset[int]]:
    """The strongly connected parts that hold a cycle (Kosaraju and Sharir 1981)."""
    predecessors: dict[int, list[int]] = {at: [] for at in successors}
    for at, after in successors.items():
        for to in after:
            predecessors[to].append(at)
    taken: set[int] = set()
    cycles = []
    for at in reversed(_postorder(successors)):
        if at in taken:
            continue
        members = frozenset(_reachable([at], predecessors, taken))
        taken |= members
        if len(members) > 1 or at in successors[at]:
            cycles.append(members)
    return cycles


def _postorder(successors: Mapping[int, Collection[int]]) -> list[int]:
    """Addresses in the order in which a depth-first walk leaves them."""
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


def _header(members: frozenset[int], successors: Mapping[int, Collection[int]]) -> int:
    """Where the loop is entered: the lowest address that is jumped to or run into from outside."""
    entries = {to for at, after in successors.items() if at not in members for to in after} & members
    return min(entries or members)
