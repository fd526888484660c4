from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from pytest_attnperf.codeobject import amdgcn, sass
from pytest_attnperf.codeobject.decoding import INDIRECT, Loop, Loops, find_loops, read_assembly, split_loops
from pytest_attnperf.codeobject.disassembly import parse_cubin_listing
from pytest_attnperf.codeobject.instructions import Instruction, Listing

DATA = Path(__file__).parents[1] / "data" / "assembly"


def listed(*texts: str) -> list[Instruction]:
    """AMD instructions in a row; a branch names the index that it goes to, a call to nowhere names none."""
    found = []
    for index, text in enumerate(texts):
        mnemonic, _, operand = text.partition(" ")
        target = int(operand) if operand.isdigit() else None
        found.append(Instruction(mnemonic, operand, index, target, None, amdgcn.falls_through(mnemonic)))
    return found


def loops_of(*texts: str) -> Loops:
    """Loops of such instructions."""
    found = listed(*texts)
    return find_loops(found, [amdgcn.classify(one.mnemonic, one.operands) for one in found])


def inside(listing: Listing, loops: Loops, classes: list[str]) -> Counter[str]:
    """Instructions inside loops, by class."""
    return Counter(
        name for one, name in zip(listing.instructions, classes, strict=True) if one.address in loops.members
    )


def test_a_backward_branch_makes_a_loop() -> None:
    """From its target to itself; what is before and after runs once."""
    found = loops_of("s_mov_b32", "v_add_f32", "s_cbranch_scc1 1", "s_endpgm")
    assert found == Loops((Loop(1, frozenset({1, 2})),), frozenset({1, 2}))


def test_straight_line_code_has_none() -> None:
    """Forward branches alone repeat nothing."""
    assert loops_of("s_cbranch_scc1 2", "v_add_f32", "s_branch 3", "s_endpgm") == Loops((), frozenset())
    assert find_loops([], []) == Loops((), frozenset())


def test_loops_inside_a_loop_and_of_one_header_are_one() -> None:
    """Two branches to one header (a `continue`), and an inner loop."""
    found = loops_of("v_nop", "v_nop", "s_cbranch_scc0 1", "v_nop", "s_cbranch_vccz 3", "s_cbranch_scc1 1", "s_endpgm")
    assert found.loops == (Loop(1, frozenset({1, 2, 3, 4, 5})),)


def test_nested_loops_are_split_into_the_innermost() -> None:
    """A persistent kernel walks over keys inside of a walk over blocks; a loop of its own stays one."""
    texts = (
        "s_mov_b32", "v_add_f32", "s_cbranch_scc1 1", "v_exp_f32", "s_cbranch_scc1 3", "s_cbranch_scc1 0",
        "v_add_f32", "s_cbranch_scc1 6", "s_endpgm",
    )  # fmt: skip
    listing, found = listed(*texts), loops_of(*texts)
    assert [set(loop.members) for loop in found.loops] == [{0, 1, 2, 3, 4, 5}, {6, 7}]
    assert sorted(map(sorted, split_loops(found, listing))) == [[1, 2], [3, 4], [6, 7]]
    assert split_loops(loops_of("v_add_f32", "s_endpgm"), listed("v_add_f32", "s_endpgm")) == ()


def test_two_loops_in_a_row_are_two() -> None:
    """In order of address."""
    found = loops_of("s_cbranch_scc1 0", "v_nop", "s_cbranch_scc1 1", "s_endpgm")
    assert found.loops == (Loop(0, frozenset({0})), Loop(1, frozenset({1, 2})))


def test_a_block_moved_out_of_the_loop_is_in_it() -> None:
    """It stands behind the kernel's end and jumps back."""
    found = loops_of("v_nop", "s_cbranch_scc0 5", "v_nop", "s_cbranch_scc1 0", "s_endpgm", "v_exp_f32", "s_branch 2")
    assert found.loops == (Loop(0, frozenset({0, 1, 2, 3, 5, 6})),)


def test_a_backward_jump_to_a_shared_block_is_no_loop() -> None:
    """Nothing between the block and the jump can run twice."""
    found = loops_of("s_branch 3", "v_nop", "s_endpgm", "v_exp_f32", "s_branch 1")
    assert found == Loops((), frozenset())


def test_a_loop_that_is_entered_in_its_middle_begins_there() -> None:
    """The compiler rotates loops: the test of the condition stands last and is reached first."""
    found = loops_of("s_branch 2", "v_nop", "v_nop", "s_cbranch_scc1 1", "s_endpgm")
    assert found.loops == (Loop(2, frozenset({1, 2, 3})),)


def test_code_that_nothing_reaches_is_no_loop() -> None:
    """NVIDIA's compiler puts a jump to itself behind a kernel."""
    assert loops_of("v_nop", "s_endpgm", "s_branch 2") == Loops((), frozenset())


@pytest.mark.parametrize("jump", ["s_swappc_b64 s[30:31]", "s_setpc_b64 s[2:3]", "s_cbranch_scc1 nowhere"])
def test_a_jump_to_an_unknown_place_leaves_loops_unknown(jump: str) -> None:
    """It could lead into any block: nothing is claimed, and the reason is given."""
    assert loops_of("v_nop", jump, "s_cbranch_scc1 0", "s_endpgm") == Loops((), frozenset(), INDIRECT)


def test_a_function_called_in_a_loop_is_in_it() -> None:
    """A call has a known target here; another function, called outside the loop, is not in it."""
    body = ("v_nop", "s_call_b64 5", "s_cbranch_scc1 0", "s_call_b64 7", "s_endpgm")
    found = loops_of(*body, "v_exp_f32", "s_setpc_b64 s[30:31]", "v_log_f32", "s_setpc_b64 s[30:31]")
    assert found.members == {0, 1, 2, 5, 6}
    assert found.loops == (Loop(0, frozenset({0, 1, 2})),)


def test_a_call_that_never_comes_back_is_a_jump() -> None:
    """NVIDIA's compiler leaves loops of sm_80 by `CALL.REL.NOINC` to code that ends the kernel."""
    found = loops_of("v_nop", "s_call_b64 3", "s_branch 0", "global_store_dword", "s_endpgm")
    assert found.members == {0, 1, 2}


def test_the_key_tile_loops_of_the_prefill_kernel_are_found() -> None:
    """Whole tiles, then masked ones: two loops, each with half of the matrix instructions, no stores in either."""
    listing = read_assembly((DATA / "prefill-gfx942.s").read_text(), "prefill_forward_kernel")
    classes = [amdgcn.classify(one.mnemonic, one.operands) for one in listing.instructions]
    found = find_loops(listing.instructions, classes)
    matrix = {one.address for one, name in zip(listing.instructions, classes, strict=True) if name == "matrix"}
    assert [len(loop.members & matrix) for loop in found.loops] == [32, 32]
    counts = inside(listing, found, classes)
    assert (counts["matrix"], counts["global_load_16B"], counts["global_store_8B"]) == (64, 8, 0)
    assert Counter(classes)["global_load_16B"] == 12


def test_the_unrolled_remainder_of_a_loop_is_not_in_it() -> None:
    """ptxas unrolled four times and handles up to three rounds behind the loop: four of seven HMMA repeat."""
    listing = parse_cubin_listing((DATA / "tile-sm_90.nvdisasm.txt").read_text(), symbol="tile", size=0x700)
    classes = [sass.classify(one.mnemonic, one.operands) for one in listing.instructions]
    found = find_loops(listing.instructions, classes)
    assert [loop.header for loop in found.loops] == [0x160]
    counts = inside(listing, found, classes)
    assert (counts["matrix"], counts["global_load_16B"], counts["global_store_16B"]) == (4, 4, 0)
    assert Counter(classes)["matrix"] == 7


def reaches_itself(start: int, texts: list[str]) -> bool:
    """Whether an instruction can run again, by walking."""
    waiting, seen = [start], set[int]()
    while waiting:
        at = waiting.pop()
        mnemonic, _, operand = texts[at].partition(" ")
        after = ([int(operand)] if operand else []) + ([at + 1] if amdgcn.falls_through(mnemonic) else [])
        waiting += [to for to in after if to < len(texts) and to not in seen]
        seen.update(after)
    return start in seen


@pytest.mark.parametrize("seed", range(60))
def test_members_are_what_can_run_again(seed: int) -> None:
    """Random code, against a walk from every instruction that the entry reaches."""
    chance = random.Random(seed)
    count = chance.randint(2, 24)
    kinds = ["v_nop", "v_nop", "s_endpgm", "s_branch {}", "s_cbranch_scc1 {}", "s_cbranch_vccz {}"]
    texts = [chance.choice(kinds).format(chance.randrange(count)) for _ in range(count)]
    found = loops_of(*texts)
    waiting, reached = [0], set[int]()
    while waiting:
        at = waiting.pop()
        if at < count and at not in reached:
            reached.add(at)
            mnemonic, _, operand = texts[at].partition(" ")
            waiting += ([int(operand)] if operand else []) + ([at + 1] if amdgcn.falls_through(mnemonic) else [])
    assert found.members == {at for at in reached if reaches_itself(at, texts)}


def test_long_code_needs_no_recursion() -> None:
    """Twenty thousand instructions in one loop."""
    found = loops_of(*["v_nop"] * 20_000, "s_cbranch_scc1 0", "s_endpgm")
    assert len(found.members) == 20_001
