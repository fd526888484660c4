from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.gate.code.changes import (
    allocated_vgprs,
    find_regressions,
    list_compiler_differences,
    list_improvements,
)
from pytest_attnperf.gate.code.code_policy import BY_POLICY, CodePolicy
from pytest_attnperf.gate.code.rules import Compared
from pytest_attnperf.records.code import CodeFinding
from tests.gate.code.compared_kernels import BASE, COUNTS, LOAD, WHERE, compared, with_counts


def found(pair: Compared, *, promised: bool = True) -> list[CodeFinding]:
    """What is worse or other."""
    return [one for one in find_regressions(pair, promised=promised) if isinstance(one, CodeFinding)]


def test_the_same_resources_are_no_finding() -> None:
    """Other machine code of equal resources and classes is neither worse nor better."""
    assert list(find_regressions(compared(), promised=True)) == []
    assert list_improvements(compared()) == []


def test_an_occupancy_step_is_named_with_its_limiter() -> None:
    """Waves before and after, what limited them and limits them now, whole workgroups, the setting and the lines."""
    slower = compared(
        vgprs=136, unified_vgprs=136, lds_dynamic_bytes=32768, lines=(replace(LOAD, counts={"global_load_16B": 16}),)
    )
    finding = next(one for one in found(slower) if one.kind == "occupancy")
    assert (finding.fails, finding.before, finding.after) == (True, "4 waves per SIMD", "2 waves per SIMD")
    assert finding.text == (
        "occupancy fell from 4 to 2 of 8 waves per SIMD (limited by VGPRs, now by LDS); "
        f"whole workgroups per CU 4 -> 2 (4 -> 2 waves per SIMD); BLOCK_M 64 -> 128 in {WHERE}; "
        "prefill.py:87 `k = tl.load(k_ptrs)`: global_load_16B 8 -> 16"
    )


def test_an_occupancy_lost_in_whole_workgroups_only_is_found() -> None:
    """The compiler's form stays at 3, but of workgroups of 8 waves only one fits where three of 4 waves did."""
    old = replace(BASE, vgprs=136, unified_vgprs=136)
    finding = next(one for one in found(compared(old, threads=512)) if one.kind == "occupancy")
    assert finding.before == "3 waves per SIMD in whole workgroups"
    assert finding.after == "2 waves per SIMD in whole workgroups"
    assert finding.text.startswith(
        "occupancy looks the same in the compiler's form (3 -> 3 of 8 waves per SIMD), but the hardware runs whole "
        "workgroups: whole workgroups per CU 3 -> 1 (3 -> 2 waves per SIMD); limited by VGPRs, now by VGPRs"
    )


def test_a_granule_of_vgprs_is_found_without_an_occupancy_step() -> None:
    """97 VGPRs are 104, and 8 more are 112: both still 4 waves. Within a granule nothing is found."""
    old = replace(BASE, vgprs=97, unified_vgprs=97)
    assert found(compared(old, vgprs=104, unified_vgprs=104)) == []
    (finding,) = found(compared(old, vgprs=105, unified_vgprs=105))
    assert (finding.kind, finding.fails, finding.before, finding.after) == ("vgprs", False, "104 VGPRs", "112 VGPRs")
    assert finding.text.startswith("VGPRs allocated per lane 104 -> 112 (97 -> 105 needed, granule 8); BLOCK_M")


@pytest.mark.parametrize(
    ("arch", "wave_size", "needed", "allocated"),
    [
        ("gfx906", 64, 65, 68),
        ("gfx942", 64, 65, 72),
        ("gfx942", 64, 0, 8),
        ("gfx1151", 32, 97, 120),
        ("gfx1151", 64, 97, 108),
        ("gfx1150", 32, 97, 112),
        ("sm_90", 32, 97, 104),
        ("gfx9999", 64, 97, 97),
    ],
)
def test_vgprs_are_allocated_in_granules(arch: str, wave_size: int, needed: int, allocated: int) -> None:
    """The granule is the architecture's, on RDNA half as large in wave64; an unknown one allocates what is needed."""
    code = replace(BASE, arch=arch, wave_size=wave_size, vgprs=needed, unified_vgprs=needed)
    assert allocated_vgprs(code) == allocated
    assert allocated_vgprs(replace(code, reserved_vgprs=allocated + 1)) > allocated


def test_agprs_are_allocated_with_the_vgprs() -> None:
    """On gfx942 VGPRs aligned to 4 and AGPRs come from one file."""
    assert allocated_vgprs(replace(BASE, vgprs=97, agprs=16, unified_vgprs=116)) == 120


def test_reserved_vgprs_are_handed_out_and_named() -> None:
    """A kernel that needs no more but reserves more for fewer waves is a step up, and the reservation is said."""
    (finding,) = (one for one in found(compared(reserved_vgprs=128)) if one.kind == "vgprs")
    assert finding.text.startswith("VGPRs allocated per lane 120 -> 128 (120 -> 120 needed, 0 -> 128 reserved, granule")


@pytest.mark.parametrize(
    ("changes", "kind", "before", "after"),
    [
        ({"lds_dynamic_bytes": 8274}, "lds", "8,192 bytes", "8,274 bytes"),
        ({"lds_static_bytes": 82}, "lds", "8,192 bytes", "8,274 bytes"),
        ({"code_bytes": 9091}, "code_size", "9,000 bytes", "9,091 bytes"),
    ],
)
def test_growth_beyond_the_percent_is_found(changes: dict[str, int], kind: str, before: str, after: str) -> None:
    """More than 1 % is a finding that warns by default; a byte less, and more with a policy of 2 %, is none."""
    (finding,) = found(compared(**changes))
    assert (finding.kind, finding.fails, finding.before, finding.after) == (kind, False, before, after)
    assert "(+1.0 %); BLOCK_M 64 -> 128" in finding.text
    assert not any(one.kind == kind for one in found(compared(**{name: n - 1 for name, n in changes.items()})))
    assert not any(one.kind == kind for one in found(compared(policy=CodePolicy(growth_percent=2), **changes)))


def test_the_first_byte_of_lds_is_growth() -> None:
    """From nothing every growth is beyond any percent, and has no percentage."""
    (finding,) = found(compared(replace(BASE, lds_dynamic_bytes=0), lds_dynamic_bytes=64))
    assert finding.text.startswith("LDS per workgroup 0 -> 64 bytes; BLOCK_M")


@pytest.mark.parametrize("kind", BY_POLICY)
def test_the_policy_says_what_fails(kind: str) -> None:
    """A kernel worse in every way fails by exactly the kinds that the policy names."""
    pair = compared(
        policy=CodePolicy(frozenset({kind})),
        vgprs=200,
        unified_vgprs=200,
        lds_dynamic_bytes=32768,
        code_bytes=20000,
        kernarg_bytes=64,
        instructions=with_counts(global_load_16B=0, global_load_2B=64),
    )
    assert {finding.kind for finding in found(pair)} == set(BY_POLICY)
    assert [finding.kind for finding in found(pair) if finding.fails] == [kind]


def test_a_withdrawn_promise_warns() -> None:
    """A kernel that still has its matrix instructions but no longer promises them is named."""
    pair = compared()
    (finding,) = found(replace(pair, now=replace(pair.now, matrix=False)))
    assert (finding.kind, finding.fails, finding.after) == ("matrix", False, "not promised")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"threads": 512}, "launched differently: 256 lanes -> 512 lanes"),
        (
            {"lds_dynamic_bytes": 4096, "lds_static_bytes": 4096},
            "launched differently: 8,192 bytes of dynamic LDS -> 4,096 bytes of dynamic LDS",
        ),
        ({"kernarg_bytes": 64}, "launched differently: 56 bytes of arguments -> 64 bytes of arguments"),
        (
            {"isa_hash": "a1b2", "threads": 512, "lds_dynamic_bytes": 8200},
            "the same machine code is launched differently: 256 lanes, 8,192 bytes of dynamic LDS -> "
            "512 lanes, 8,200 bytes of dynamic LDS",
        ),
    ],
)
def test_another_launch_is_named(changes: dict[str, Any], text: str) -> None:
    """The workgroup's size, dynamic LDS and the arguments, of the same machine code or of other."""
    (finding,) = found(compared(**changes))
    assert (finding.kind, finding.fails) == ("launch", False)
    assert finding.text == f"{text}; BLOCK_M 64 -> 128 in {WHERE}"


def test_another_wave_size_or_mode_is_another_launch() -> None:
    """On RDNA the wave size and the WGP mode are named."""
    old = replace(BASE, arch="gfx1151", wave_size=32, wgp_mode=True)
    pair = compared(old, wave_size=64, wgp_mode=False)
    finding = next(one for one in found(pair) if one.kind == "launch")
    assert (finding.before, finding.after) == ("wave32, WGP mode", "wave64, CU mode")


def test_dynamic_lds_that_grew_is_said_once() -> None:
    """Other machine code with more dynamic LDS has the finding of LDS and none of the launch."""
    assert [finding.kind for finding in found(compared(lds_dynamic_bytes=9000))] == ["lds"]


def test_what_was_not_stored_is_not_compared() -> None:
    """A stored kernel that was not disassembled, or has an impossible occupancy, is a note."""
    for old, text in (
        (replace(BASE, instructions={}), "not compared: instructions (stored: it was not disassembled)"),
        (replace(BASE, undecoded="calls"), "not compared: instructions (stored: calls)"),
    ):
        assert list(find_regressions(compared(old, instructions=COUNTS, undecoded=""), promised=True)) == [text]
    nvidia = replace(BASE, arch="sm_90", wave_size=32)
    assert list(find_regressions(compared(nvidia), promised=True)) == []
    (note,) = find_regressions(compared(replace(BASE, sgprs=300), sgprs=60), promised=True)
    assert str(note).startswith("not compared: the stored kernel's occupancy (sgprs 300")


def test_another_compiler_leaves_only_what_it_cannot_change() -> None:
    """Registers, LDS, code and instructions are not held against another compiler; threads and arguments are."""
    changes: dict[str, Any] = {
        "vgprs": 200,
        "unified_vgprs": 200,
        "lds_dynamic_bytes": 32768,
        "code_bytes": 20000,
        "instructions": with_counts(global_load_16B=0, global_load_2B=64, matrix=0),
    }
    assert found(compared(compiler="triton 3.10.0", **changes)) == []
    launched = found(compared(compiler="triton 3.10.0", threads=512, kernarg_bytes=64, **changes))
    assert [finding.kind for finding in launched] == ["launch"]
    assert list_improvements(compared(compiler="triton 3.10.0", vgprs=40, unified_vgprs=40)) == []


def test_each_field_of_another_compiler_is_named_with_both_values() -> None:
    """What differs is listed, what is equal is not; the ISA hash is cut to 12 digits."""
    pair = compared(compiler="triton 3.10.0", vgprs=136, unified_vgprs=136, vgpr_spills=2, isa_hash="0123456789abcdef")
    assert list_compiler_differences(pair) == [
        "vgprs 120 -> 136",
        "allocated vgprs 120 -> 136",
        "vgpr spills 0 -> 2",
        "occupancy 4 -> 3",
        "whole workgroups 4 -> 3",
        "ISA hash a1b2 -> 0123456789ab",
    ]


def test_what_is_not_known_of_one_side_is_named_so() -> None:
    """Instructions, occupancy and hash that are known of one side only are 'unknown' on the other."""
    old = replace(BASE, instructions={}, sgprs=300, isa_hash="")
    assert list_compiler_differences(compared(old, compiler="triton 3.10.0", instructions=COUNTS, sgprs=60)) == [
        "sgprs 300 -> 60",
        "occupancy unknown -> 4",
        "whole workgroups unknown -> 4",
        "instructions unknown -> 116",
        "matrix instructions unknown -> 64",
        "ISA hash unknown -> c3d4",
    ]


def test_what_became_better_is_named() -> None:
    """More waves, fewer registers, less scratch and LDS, each with before and after."""
    old = replace(BASE, vgpr_spills=12, sgpr_spills=3, scratch_bytes=1048)
    pair = compared(old, vgprs=90, unified_vgprs=90, vgpr_spills=0, sgpr_spills=0, scratch_bytes=0, lds_dynamic_bytes=0)
    assert list_improvements(pair) == [
        "occupancy 4 -> 5",
        "VGPRs 120 -> 96",
        "spilled VGPRs 12 -> 0",
        "spilled SGPRs 3 -> 0",
        "scratch bytes 1,048 -> 0",
        "LDS bytes 8,192 -> 0",
    ]
    whole = compared(replace(BASE, vgprs=136, unified_vgprs=136, threads=512), threads=256)
    assert list_improvements(whole) == ["occupancy in whole workgroups 2 -> 3"]
    for unknown, known in ((300, 60), (60, 300)):
        assert list_improvements(compared(replace(BASE, sgprs=unknown), sgprs=known)) == []
