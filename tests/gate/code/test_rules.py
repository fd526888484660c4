from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.baselines.code_schema import StoredKernel
from pytest_attnperf.gate.code.rules import CurrentKernel, find_broken_rules, occupancy_or_note
from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.code import CodeFinding, KernelCode, Occupancy, SourceLine

KEY = CaseKey("code_objects", "triton.prefill_forward", "d256-f16", "gfx942")
WHERE = "configs/prefill_forward.json"
DOT = SourceLine("prefill.py", 93, "acc = tl.dot(p, v, acc)", {"matrix": 64, "scratch_load": 12, "scratch_store": 9})
SOUND = KernelCode(
    "k", "gfx942", 120, 0, 120, 60, 0, 0, 0, 0, 8192, 56, 256, 256, 64, None, False, 9000, "a1b2",
    {"matrix": 64, "global_load_16B": 8, "global_store_4B": 4}, {"matrix": 64},
)  # fmt: skip


def candidate(code: KernelCode = SOUND, **changes: Any) -> CurrentKernel:
    """A kernel that promises matrix instructions."""
    plain = CurrentKernel(KEY, code, {"BLOCK_M": "64"}, "triton 3.9.0", matrix=True, where=WHERE)
    return replace(plain, **changes)


def stored(code: KernelCode = SOUND, accepted: str = "") -> StoredKernel:
    """The same case as stored, with other block sizes."""
    return StoredKernel(code, {"BLOCK_M": "32"}, "triton 3.9.0", True, "p", "2026-01-02", "c1", "0.1.0", accepted)


def findings(code: KernelCode, before: StoredKernel | None = None, **changes: Any) -> list[CodeFinding]:
    """The rules this kernel breaks."""
    said = find_broken_rules(candidate(code, **changes), before)
    return [one for one in said if isinstance(one, CodeFinding)]


def notes(code: KernelCode, before: StoredKernel | None = None, **changes: Any) -> list[str]:
    """What was accepted, or could not be checked."""
    return [one for one in find_broken_rules(candidate(code, **changes), before) if isinstance(one, str)]


def test_a_sound_kernel_breaks_no_rule() -> None:
    """Nothing is said of a kernel without spills that stores, multiplies and fits, whatever is stored."""
    assert list(find_broken_rules(candidate())) == []
    assert list(find_broken_rules(candidate(), stored())) == []


def test_spills_are_named_with_their_lines() -> None:
    """Both kinds of registers with counts, the stored ones, the setting that changed, and where scratch is used."""
    spilling = replace(SOUND, vgpr_spills=12, sgpr_spills=1, lines=(DOT,))
    (finding,) = findings(spilling, stored())
    assert (finding.kind, finding.fails) == ("spills", True)
    assert (finding.before, finding.after) == ("0 registers", "12 VGPRs, 1 SGPR")
    assert finding.text == (
        f"spills 12 VGPRs, 1 SGPR (stored: 0 registers); BLOCK_M 32 -> 64 in {WHERE}; "
        "prefill.py:93 `acc = tl.dot(p, v, acc)`: scratch_load 12, scratch_store 9"
    )
    (alone,) = findings(spilling)
    assert (alone.before, alone.text[:60]) == ("", f"spills 12 VGPRs, 1 SGPR; configured in {WHERE}; "[:60])


@pytest.mark.parametrize(
    ("changes", "kind", "after"),
    [
        ({"vgpr_spills": 1}, "spills", "1 VGPR"),
        ({"sgpr_spills": 1}, "spills", "1 SGPR"),
        ({"scratch_bytes": 4}, "scratch", "4 bytes"),
        ({"dynamic_stack": True}, "scratch", "0 bytes and more at run time"),
    ],
)
def test_accepted_spills_pass_up_to_what_was_accepted(changes: dict[str, Any], kind: str, after: str) -> None:
    """What an accepted entry has at least as much of is a note with its reason; without a reason it is a finding."""
    code = replace(SOUND, **changes)
    assert findings(code, stored(code, accepted="tuned")) == []
    (note,) = notes(code, stored(code, accepted="tuned"))
    assert after in note
    assert note.endswith("accepted when it was recorded (tuned)")
    for before in (None, stored(code), stored(SOUND, accepted="tuned")):
        (finding,) = findings(code, before)
        assert (finding.kind, finding.after, finding.fails) == (kind, after, True)


def test_accepted_spills_of_another_compiler_are_no_limit() -> None:
    """How many registers another compiler spills is not comparable: what was accepted with one passes with a note, and
    what was not accepted fails as ever.
    """
    code = replace(SOUND, vgpr_spills=9, scratch_bytes=40)
    before = replace(SOUND, vgpr_spills=8, scratch_bytes=36)
    other = replace(stored(before, accepted="tuned"), compiler="triton 3.8.0")
    assert findings(code, other) == []
    assert [note.partition(" when ")[2] for note in notes(code, other)] == [
        "it was recorded with triton 3.8.0 (tuned)"
    ] * 2
    assert {finding.kind for finding in findings(code, replace(other, accepted=""))} == {"spills", "scratch"}


@pytest.mark.parametrize(
    "changes",
    [{"vgpr_spills": 13}, {"vgpr_spills": 2, "sgpr_spills": 4}, {"scratch_bytes": 52}, {"dynamic_stack": True}],
)
def test_more_than_was_accepted_fails(changes: dict[str, Any]) -> None:
    """Each kind of register, the scratch and the stack have a limit of their own: fewer of one pay for no other."""
    agreed = replace(SOUND, vgpr_spills=12, sgpr_spills=3, scratch_bytes=48)
    (finding,) = findings(replace(agreed, **changes), stored(agreed, accepted="tuned"))
    assert finding.fails
    assert "accepted: tuned)" in finding.text


def test_a_dynamic_stack_is_named() -> None:
    """Where scratch is decided at run time, the compiler's figure is said to be less than all of it."""
    (finding,) = findings(replace(SOUND, scratch_bytes=16, dynamic_stack=True), stored())
    assert finding.text.startswith(
        "16 bytes and more at run time of scratch per lane (stored: 0 bytes); "
        "it recurses, calls through pointers or sizes its stack at run time; BLOCK_M"
    )


@pytest.mark.parametrize(
    ("arch", "wave_size", "limit"),
    [("gfx90a", 64, 65536), ("gfx942", 64, 65536), ("gfx950", 64, 163840), ("gfx1151", 32, 65536)],
)
def test_lds_over_the_limit_is_found_to_the_byte(arch: str, wave_size: int, limit: int) -> None:
    """Static and dynamic LDS together may take all that a workgroup has, and not one byte more."""
    full = replace(SOUND, arch=arch, wave_size=wave_size, lds_static_bytes=1024, lds_dynamic_bytes=limit - 1024)
    assert findings(full) == []
    (finding,) = findings(replace(full, lds_dynamic_bytes=limit - 1023))
    assert (finding.kind, finding.after, finding.fails) == ("lds_limit", f"{limit + 1:,} bytes", True)
    assert finding.text == (
        f"{limit + 1:,} bytes of LDS, but a workgroup on {arch} has {limit:,}: it compiled without an error, "
        f"but no launch would succeed; configured in {WHERE}"
    )


def test_a_launch_that_cannot_succeed_is_found() -> None:
    """More lanes than it was compiled for, and a workgroup whose registers no CU has, fail whatever the policy."""
    (finding,) = findings(replace(SOUND, threads=512))
    assert (finding.kind, finding.fails) == ("launch", True)
    assert finding.text.startswith("launched with 512 lanes, but compiled for at most 256: no launch would succeed")
    large = replace(SOUND, vgprs=256, unified_vgprs=256, threads=1024, max_threads=1024)
    (finding,) = findings(large)
    assert (finding.kind, finding.fails, finding.after) == ("occupancy", True, "no workgroup fits")
    assert finding.text.startswith("not one workgroup of 16 waves fits a CU, limited by VGPRs: no launch")
    assert findings(replace(SOUND, max_threads=0)) == []


def test_a_kernel_without_a_store_is_found() -> None:
    """Counts before and after, the classes that went and the lines they stood in."""
    line = SourceLine("prefill.py", 99, "tl.store(o, acc)", {"global_store_4B": 4})
    before = stored(replace(SOUND, lines=(replace(line, line=0),)))
    idle = replace(SOUND, instructions={"matrix": 64, "valu": 10}, lines=(DOT,))
    (finding,) = findings(idle, before)
    assert (finding.kind, finding.fails, finding.before, finding.after) == ("store", True, "4 stores", "0 stores")
    assert finding.text == (
        "no store of any kind in 74 instructions: its results never reach memory; global_store_4B 4 -> 0; "
        f"BLOCK_M 32 -> 64 in {WHERE}; prefill.py `tl.store(o, acc)`: global_store_4B 4 -> 0"
    )
    (alone,) = findings(idle)
    assert (alone.before, alone.after) == ("", "0 stores")


def test_promised_matrix_instructions_must_be_there() -> None:
    """Their absence is a finding with the lines that lost them; without a promise it is none of the rules' business."""
    plain = replace(SOUND, instructions={"valu": 100, "global_store_4B": 4}, lines=(replace(DOT, counts={"valu": 9}),))
    before = stored(replace(SOUND, lines=(replace(DOT, line=0, counts={"matrix": 64}),)))
    (finding,) = findings(plain, before)
    assert (finding.kind, finding.before, finding.after) == (
        "matrix",
        "64 matrix instructions",
        "0 matrix instructions",
    )
    assert finding.text == (
        f"no matrix instructions in 104 instructions, though it promises them; BLOCK_M 32 -> 64 in {WHERE}; "
        "prefill.py:93 `acc = tl.dot(p, v, acc)`: matrix 64 -> 0"
    )
    assert findings(plain, before, matrix=False) == []


@pytest.mark.parametrize(
    ("instructions", "undecoded", "unseen"),
    [
        ({}, "no disassembler", "widths of loads, loops, stores, promised matrix instructions (no disassembler)"),
        ({}, "", "widths of loads, loops, stores, promised matrix instructions (it was not disassembled)"),
        (
            {"matrix": 1, "global_atomic": 1},
            "calls or indirect branches",
            "some instructions or loops (calls or indirect branches)",
        ),
        ({"call": 1}, "calls", "some instructions or loops, stores, promised matrix instructions (calls)"),
    ],
)
def test_what_was_not_seen_is_said_and_fails_nothing(instructions: dict[str, int], undecoded: str, unseen: str) -> None:
    """A rule that cannot be checked is a note that names it and the reason, neither a failure nor silence."""
    code = replace(SOUND, instructions=instructions, in_loops={}, undecoded=undecoded)
    assert list(find_broken_rules(candidate(code))) == [f"not checked: {unseen}"]


def test_without_a_promise_no_matrix_instructions_are_missed() -> None:
    """The note of what was not decoded names only what somebody asked for."""
    code = replace(SOUND, instructions={}, undecoded="no disassembler")
    assert notes(code, matrix=False) == ["not checked: widths of loads, loops, stores (no disassembler)"]


def test_what_nvidia_does_not_say_is_noted() -> None:
    """A cubin names no spills, and occupancy is known of AMD only; local memory is checked, and shared memory where its
    limit is known.
    """
    code = replace(SOUND, arch="sm_90", wave_size=32, vgpr_spills=None, sgpr_spills=None)
    unsaid = "not checked: spilled VGPRs and SGPRs (the object does not say)"
    assert notes(code) == [unsaid, "not checked: occupancy (not known for sm_90)"]
    assert notes(replace(code, arch="sm_37")) == [
        unsaid,
        "not checked: LDS against the limit of sm_37, which is not known",
        "not checked: occupancy (not known for sm_37)",
    ]
    assert [finding.kind for finding in findings(replace(code, scratch_bytes=8))] == ["scratch"]
    too_much = replace(code, lds_dynamic_bytes=227 * 1024 + 1)
    assert [finding.kind for finding in findings(too_much)] == ["lds_limit"]


def test_an_occupancy_that_cannot_be_is_a_note() -> None:
    """Resources that no kernel of the architecture can have, or no size of the workgroup, give no occupancy."""
    found = occupancy_or_note(SOUND)
    assert isinstance(found, Occupancy)
    assert found.waves_per_simd == 4
    impossible = occupancy_or_note(replace(SOUND, vgprs=300))
    assert str(impossible).startswith("not checked: occupancy (vgprs 300")
    unsized = occupancy_or_note(replace(SOUND, threads=0, max_threads=0))
    assert unsized == "not checked: occupancy (its workgroup's size is not known)"
