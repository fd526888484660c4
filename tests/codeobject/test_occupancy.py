from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.codeobject.arch import ARCHS, AgprRule, limits_of
from pytest_attnperf.codeobject.occupancy import (
    Allocation,
    CompilerRules,
    Resources,
    compute_allocation,
    occupancy_of,
    occupancy_with,
)
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import KernelCode, Occupancy

DATA = Path(__file__).parents[1] / "data" / "occupancy"
RULES = {"clang19": CompilerRules.LLVM_22, "clang22": CompilerRules.LLVM_22, "llvm24git": CompilerRules.LLVM_24}


def compute_occupancy(arch: str, *, rules: CompilerRules = CompilerRules.LLVM_24, **resources: Any) -> Occupancy:
    """Of a kernel with these resources, and no AGPRs."""
    return occupancy_with(arch, Resources(agprs=0, **resources), rules)


def disagreements(table: str, rows_expected: int) -> Iterator[str]:
    """Rows of a table that compilers printed and `occupancy` does not give."""
    with (DATA / table).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == rows_expected
    for line, row in enumerate(rows, start=2):
        asked = Resources(
            vgprs=int(row["vgpr"]),
            agprs=int(row["agpr"]),
            sgprs=int(row.get("sgpr_with_extras") or row["sgpr_reserved"]),
            lds_bytes=int(row["lds_bytes"]),
            threads=int(row["threads"]),
            wave_size=int(row.get("wave_size", 0)),
            wgp_mode=row.get("block") != "CU",
        )
        found = occupancy_with(row["arch"], asked, RULES[row["compiler"]]).waves_per_simd
        if found != int(row["compiler_waves_per_simd"]):
            yield f"line {line}: {row}, computed {found}"


def test_agrees_with_three_compilers() -> None:
    """All 1,001 occupancies that three compilers printed are computed from registers, LDS and threads."""
    assert next(disagreements("occupancy_checks.csv", 1001), None) is None


def test_agrees_in_every_wave_size_and_mode() -> None:
    """So are 540 more of random kernels, on two further architectures, in wave64 and in CU mode."""
    assert next(disagreements("occupancy_modes.csv", 540), None) is None


@pytest.mark.parametrize(
    ("arch", "wrong"),
    [
        ("gfx906", {"vgpr_granule": 8}),
        ("gfx906", {"max_waves_per_simd": 8}),
        ("gfx906", {"max_workgroups": 32}),
        ("gfx908", {"agpr_rule": AgprRule.UNIFIED}),
        ("gfx90a", {"agpr_rule": AgprRule.SEPARATE}),
        ("gfx942", {"vgpr_granule": 4}),
        ("gfx942", {"lds_bytes": 128 * 1024}),
        ("gfx942", {"trap_sgprs": 0}),
        ("gfx950", {"lds_granule_bytes": 512}),
        ("gfx950", {"lds_bytes": 64 * 1024}),
        ("gfx1030", {"vgprs_per_simd": 1536, "vgpr_granule": 24}),
        ("gfx1102", {"vgprs_per_simd": 1536, "vgpr_granule": 24}),
        ("gfx1152", {"vgprs_per_simd": 1536, "vgpr_granule": 24}),
        ("gfx1151", {"vgprs_per_simd": 1024, "vgpr_granule": 16}),
        ("gfx1151", {"lds_bytes": 64 * 1024}),
        ("gfx1201", {"max_waves_per_simd": 8}),
        ("gfx1201", {"lds_granule_bytes": 1024}),
    ],
)
def test_the_tables_reject_wrong_limits(monkeypatch: pytest.MonkeyPatch, arch: str, wrong: dict[str, object]) -> None:
    """One figure of one architecture as it is wrongly quoted disagrees with a row of that architecture."""
    monkeypatch.setitem(ARCHS, arch, replace(limits_of(arch), **wrong))  # type: ignore[arg-type]
    found = [*disagreements("occupancy_checks.csv", 1001), *disagreements("occupancy_modes.csv", 540)]
    assert found
    assert all(f"'arch': '{arch}'" in line for line in found)


SGPRS = [
    (0, 10, 10),
    (64, 10, 10),
    (80, 10, 8),
    (81, 9, 7),
    (89, 8, 7),
    (96, 8, 7),
    (97, 8, 6),
    (100, 8, 6),
    (101, 7, 6),
]


@pytest.mark.parametrize(("sgprs", "by_steps", "by_granules"), SGPRS)
def test_sgpr_steps(sgprs: int, by_steps: int, by_granules: int) -> None:
    """On gfx906 LLVM 19 to 22 step at 80, 88 and 100 SGPRs; newer ones and the hardware divide 800 by granules."""
    for rules, expected in ((CompilerRules.LLVM_22, by_steps), (CompilerRules.LLVM_24, by_granules)):
        found = compute_occupancy("gfx906", vgprs=2, sgprs=sgprs, lds_bytes=0, threads=256, rules=rules)
        assert found.limits["sgprs"] == found.waves_per_simd == expected
        assert found.whole_waves_per_simd == by_granules


@pytest.mark.parametrize("arch", ["gfx1030", "gfx1201"])
def test_sgprs_limit_nothing_on_rdna(arch: str) -> None:
    """From gfx10 on every wave has its own SGPRs."""
    assert compute_occupancy(arch, vgprs=24, sgprs=128, lds_bytes=0, threads=256).waves_per_simd == 16


def test_compilers_differ_in_the_granule_of_lds() -> None:
    """32,768 bytes on gfx950 are 5 waves to clang 22, which does not round them, and 4 to newer ones and in truth."""
    old, new = (
        compute_occupancy("gfx950", vgprs=24, sgprs=10, lds_bytes=32768, threads=256, rules=rules)
        for rules in (CompilerRules.LLVM_22, CompilerRules.LLVM_24)
    )
    assert (old.waves_per_simd, new.waves_per_simd) == (5, 4)
    assert old.whole_waves_per_simd == new.whole_waves_per_simd == 4.0


def test_cu_mode_halves_the_block() -> None:
    """In CU mode a block is a CU of 2 SIMDs with half the LDS; on CDNA it always is one of 4."""
    wgp, cu = (
        compute_occupancy("gfx1100", vgprs=24, sgprs=10, lds_bytes=65536, threads=256, wgp_mode=mode)
        for mode in (True, False)
    )
    assert (wgp.block, wgp.workgroups, wgp.waves_per_simd) == ("WGP", 2, 4)
    assert (cu.block, cu.workgroups, cu.waves_per_simd) == ("CU", 1, 4)
    assert compute_occupancy("gfx942", vgprs=24, sgprs=10, lds_bytes=0, threads=256).block == "CU"


def test_the_hardware_launches_whole_workgroups() -> None:
    """136 VGPRs on gfx942 are 3 waves per SIMD to a compiler; of workgroups of 8 waves one fits these 12, so 2 run."""
    found = compute_occupancy("gfx942", vgprs=136, sgprs=40, lds_bytes=0, threads=512)
    assert (found.waves_per_simd, found.whole_waves_per_simd, found.workgroups) == (3, 2.0, 1)
    assert found.limiters == ("vgprs",)
    smaller = compute_occupancy("gfx942", vgprs=136, sgprs=40, lds_bytes=0, threads=256)
    assert (smaller.waves_per_simd, smaller.whole_waves_per_simd, smaller.workgroups) == (3, 3.0, 3)


def test_the_hardware_rounds_lds_further_on_rdna() -> None:
    """10,752 bytes are 12 workgroups per WGP in the compiler's granules of 512, and 11 in the hardware's of 1,024."""
    found = compute_occupancy("gfx1100", vgprs=24, sgprs=10, lds_bytes=10752, threads=128)
    assert (found.waves_per_simd, found.workgroups, found.whole_waves_per_simd) == (12, 11, 11.0)


def test_what_binds_is_named() -> None:
    """Limiters are the resources that allow no more than the result; there is none at full occupancy."""
    two = compute_occupancy("gfx942", vgprs=128, sgprs=40, lds_bytes=16384, threads=256)
    assert two.limits == {"vgprs": 4, "lds": 4, "sgprs": 8, "workgroups": 8, "slots": 8}
    assert two.limiters == ("vgprs", "lds")
    assert compute_occupancy("gfx942", vgprs=64, sgprs=96, lds_bytes=0, threads=256).limiters == ("sgprs",)
    assert compute_occupancy("gfx906", vgprs=24, sgprs=40, lds_bytes=0, threads=128).limiters == ("workgroups",)
    assert compute_occupancy("gfx942", vgprs=24, sgprs=40, lds_bytes=0, threads=768).limiters == ("slots",)
    assert compute_occupancy("gfx942", vgprs=24, sgprs=40, lds_bytes=0, threads=256).limiters == ()


@pytest.mark.parametrize(
    ("arch", "limit"),
    [("gfx906", 65536), ("gfx942", 65536), ("gfx950", 163840), ("gfx1030", 65536), ("gfx1201", 65536)],
)
@pytest.mark.parametrize("wgp_mode", [True, False])
def test_lds_over_the_limit_does_not_fit(arch: str, limit: int, wgp_mode: bool) -> None:
    """A workgroup that asks for a byte more than the limit runs 0 waves, one that asks for the limit fits."""
    at, over = (
        compute_occupancy(arch, vgprs=24, sgprs=10, lds_bytes=size, threads=256, wgp_mode=wgp_mode)
        for size in (limit, limit + 1)
    )
    assert (at.fits, at.workgroups) == (True, 2 if arch in ("gfx1030", "gfx1201") and wgp_mode else 1)
    assert (over.fits, over.waves_per_simd, over.whole_waves_per_simd, over.workgroups) == (False, 0, 0.0, 0)
    assert over.limiters == ("lds",)


def test_registers_over_what_a_workgroup_can_have_do_not_fit() -> None:
    """16 waves need 4 per SIMD at once: with 136 VGPRs on gfx942, where 3 fit, no launch succeeds."""
    found = compute_occupancy("gfx942", vgprs=136, sgprs=40, lds_bytes=0, threads=1024)
    assert (found.fits, found.workgroups, found.waves_per_simd, found.limiters) == (False, 0, 3, ("vgprs",))


@pytest.mark.parametrize(
    ("arch", "changed", "message"),
    [
        ("gfx942", {"vgprs": -1}, "vgprs -1: a kernel of gfx942 can have 0 to 256"),
        (
            "gfx942",
            {"vgprs": 257},
            "vgprs 257: a kernel of gfx942 can have 0 to 256; metadata and profilers count VGPRs and AGPRs",
        ),
        ("gfx906", {"vgprs": 257}, "vgprs 257: a kernel of gfx906 can have 0 to 256"),
        ("gfx942", {"agprs": 257}, "agprs 257: a kernel of gfx942 can have 0 to 256"),
        ("gfx906", {"agprs": 1}, "agprs 1: a kernel of gfx906 can have 0 to 0; it has no AGPRs"),
        ("gfx942", {"sgprs": 113}, "sgprs 113: a kernel of gfx942 can have 0 to 112"),
        ("gfx1100", {"sgprs": 129}, "sgprs 129: a kernel of gfx1100 can have 0 to 128"),
        ("gfx942", {"threads": 0}, "threads 0: a kernel of gfx942 can have 1 to 1024"),
        ("gfx942", {"threads": 1025}, "threads 1025: a kernel of gfx942 can have 1 to 1024"),
        ("gfx942", {"lds_bytes": -4}, "lds_bytes -4: a kernel of gfx942 can have 0 or more"),
        ("gfx942", {"wave_size": 32}, "wave_size 32: a kernel of gfx942 can have 64"),
        ("gfx1100", {"wave_size": 16}, "wave_size 16: a kernel of gfx1100 can have 32 or 64"),
        ("gfx1099", {}, "'gfx1099' are not known"),
    ],
)
def test_what_no_kernel_can_have(arch: str, changed: dict[str, int], message: str) -> None:
    """A value that is out of range is refused with the value, the architecture and the range."""
    with pytest.raises(CodeObjectError, match=re.escape(message)):
        occupancy_with(arch, replace(Resources(24, 0, 10, 0, 256), **changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arch", "asked", "expected"),
    [
        ("gfx942", Resources(65, 64, 40, 8000, 256), Allocation(136, 64, 8192)),
        ("gfx942", Resources(0, 0, 0, 0, 64), Allocation(8, 32, 0)),
        ("gfx908", Resources(65, 70, 40, 0, 256), Allocation(72, 64, 0)),
        ("gfx950", Resources(65, 0, 102, 1281, 256), Allocation(72, 128, 2560)),
        ("gfx1151", Resources(8, 0, 18, 1536, 256), Allocation(24, 128, 2048)),
        ("gfx1100", Resources(13, 0, 18, 0, 256, 64), Allocation(24, 128, 0)),
        ("gfx1030", Resources(17, 0, 18, 0, 256), Allocation(32, 128, 0)),
    ],
)
def test_allocation(arch: str, asked: Resources, expected: Allocation) -> None:
    """What is handed out is in granules; AGPRs count by the architecture's rule, SGPRs with the trap handler's."""
    assert compute_allocation(limits_of(arch), asked) == expected


@st.composite
def kernels(draw: st.DrawFn) -> tuple[str, Resources]:
    """Any kernel that an architecture can have, LDS a little over the limit among them."""
    limits = draw(st.sampled_from(list(ARCHS.values())))
    agprs = 0 if limits.agpr_rule is AgprRule.NONE else limits.addressable_vgprs
    return limits.arch, Resources(
        vgprs=draw(st.integers(0, limits.addressable_vgprs)),
        agprs=draw(st.integers(0, agprs)),
        sgprs=draw(st.integers(0, limits.max_sgprs)),
        lds_bytes=draw(st.integers(0, limits.lds_per_workgroup_bytes + 1024)),
        threads=draw(st.integers(1, limits.max_threads)),
        wave_size=draw(st.sampled_from(limits.wave_sizes)),
        wgp_mode=draw(st.booleans()),
    )


@given(kernels(), st.sampled_from(CompilerRules))
def test_whole_workgroups_never_exceed_the_compilers_count(kernel: tuple[str, Resources], rules: CompilerRules) -> None:
    """Whole waves <= the compiler's waves <= the architecture's most, and both are the least of their limits."""
    found = occupancy_with(*kernel, rules)
    assert 0 <= found.whole_waves_per_simd <= found.waves_per_simd <= found.max_waves_per_simd
    assert found.waves_per_simd == min(found.limits.values())
    assert found.fits == (found.workgroups > 0)
    assert bool(found.limiters) == (found.waves_per_simd < found.max_waves_per_simd)


@given(kernels(), st.data())
def test_asking_for_more_never_runs_more(kernel: tuple[str, Resources], data: st.DataObject) -> None:
    """Less of any one resource never makes fewer waves or fewer workgroups."""
    arch, asked = kernel
    name = data.draw(st.sampled_from(["vgprs", "agprs", "sgprs", "lds_bytes"]))
    fewer = replace(asked, **{name: data.draw(st.integers(0, getattr(asked, name)))})
    more, less = occupancy_with(arch, asked), occupancy_with(arch, fewer)
    assert less.waves_per_simd >= more.waves_per_simd
    assert less.workgroups >= more.workgroups


def kernel(**changed: object) -> KernelCode:
    """A kernel of gfx942 with 136 VGPRs, static and dynamic LDS of 16 KiB together, launched with 512 threads."""
    plain = KernelCode(
        name="k",
        arch="gfx942",
        vgprs=136,
        agprs=0,
        unified_vgprs=136,
        sgprs=40,
        vgpr_spills=0,
        sgpr_spills=0,
        scratch_bytes=0,
        lds_static_bytes=4096,
        lds_dynamic_bytes=12288,
        kernarg_bytes=56,
        threads=512,
        max_threads=1024,
        wave_size=64,
        wgp_mode=None,
        dynamic_stack=False,
        code_bytes=248,
        isa_hash="00",
    )
    return replace(plain, **changed)  # type: ignore[arg-type]


def test_occupancy_of_a_compiled_kernel() -> None:
    """A record's registers, its whole LDS, and the launch's threads count."""
    expected = compute_occupancy("gfx942", vgprs=136, sgprs=40, lds_bytes=16384, threads=512)
    assert occupancy_of(kernel()) == expected
    assert occupancy_of(kernel(arch="gfx942:sramecc+:xnack-")) == expected


def test_without_a_launch_the_largest_workgroup_counts() -> None:
    """Where only the most threads are known, those are used; where not even those, nothing is said."""
    found = occupancy_of(kernel(threads=0, vgprs=64))
    assert found is not None
    assert found.waves_per_workgroup == 16
    assert occupancy_of(kernel(threads=0, max_threads=0)) is None


@pytest.mark.parametrize("arch", ["sm_90", "gfx1250", ""])
def test_no_occupancy_of_other_architectures(arch: str) -> None:
    """Of an NVIDIA kernel, or of an architecture that is not in the table, nothing is said."""
    assert occupancy_of(kernel(arch=arch)) is None


def test_mode_and_wave_of_a_compiled_kernel() -> None:
    """RDNA kernels run in the wave size and mode that they were compiled for; in WGP mode where that is not known."""
    wave64 = occupancy_of(kernel(arch="gfx1100", threads=256, wave_size=64, wgp_mode=False, vgprs=128))
    assert wave64 is not None
    assert (wave64.block, wave64.waves_per_workgroup, wave64.waves_per_simd) == ("CU", 4, 5)
    unknown = occupancy_of(kernel(arch="gfx1100", threads=256, wave_size=32, wgp_mode=None))
    assert unknown is not None
    assert unknown.block == "WGP"


def test_a_record_that_cannot_be() -> None:
    """A record with more registers than a wave can name is refused, not capped."""
    with pytest.raises(CodeObjectError, match="vgprs 300: a kernel of gfx942 can have 0 to 256"):
        occupancy_of(kernel(vgprs=300))


def test_what_the_descriptor_reserves_is_handed_out() -> None:
    """Registers reserved beyond what the code names take their place in both forms; fewer than named change nothing."""
    named = Resources(vgprs=138, agprs=0, sgprs=96, lds_bytes=16384, threads=256)
    assert occupancy_with("gfx942", named).waves_per_simd == 3
    reserved = occupancy_with("gfx942", replace(named, reserved_vgprs=176))
    assert (reserved.waves_per_simd, reserved.whole_waves_per_simd, reserved.limiters) == (2, 2.0, ("vgprs",))
    assert occupancy_with("gfx942", replace(named, reserved_vgprs=8)) == occupancy_with("gfx942", named)
    few = replace(named, vgprs=32, sgprs=10, lds_bytes=0)
    assert (
        occupancy_with("gfx908", few).limits["sgprs"]
        > occupancy_with("gfx908", replace(few, reserved_sgprs=112)).limits["sgprs"]
    )
    assert replace(named, reserved_vgprs=176, reserved_sgprs=112).unreserved == named
