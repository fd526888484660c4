from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from pytest_attnperf.records.profiles import (
    Agent,
    FamilyTime,
    Finding,
    KernelShape,
    KernelTime,
    Passes,
    ProfileSummary,
    ShapeTime,
    Spread,
)
from pytest_attnperf.tools.profilers.claims.page import check_claims, read_claims
from pytest_attnperf.tools.profilers.claims.records import Claims

REPORT = Path(__file__).parents[4] / "examples/claims/flash_attention_report.json"
TOTAL = 157_160_000
SHAPE = KernelShape(
    "flash_attention_kernel(half*)",
    workgroup=(32, 8, 1),
    grid_items=(128, 192, 64),
    lds_bytes=1536,
    vgprs=8,
    sgprs=128,
)


def family(name: str, nature: str, calls: int, ns: int) -> FamilyTime:
    """A family of one kernel."""
    return FamilyTime(name, nature, 1, calls, ns, ns / TOTAL)


def summary(**changed: object) -> ProfileSummary:
    """The profile that the report was written from."""
    spread = Spread(75, 2_350_000, median_ns=30_100)
    attention = KernelTime(SHAPE.name, "attention", "kernel", spread, 0.015, shapes=(ShapeTime(SHAPE, spread),))
    copies = KernelTime("__amd_rocclr_copyBuffer", "memory copy", "kernel", Spread(304, 1_220_000), 0.0078)
    made = ProfileSummary(
        name="run",
        sources=(),
        agents=(),
        total_ns=TOTAL,
        calls=1953,
        kernels=(attention, copies),
        families=(
            family("GEMM", "compute", 650, 121_890_000),
            family("normalisation", "compute", 300, 11_440_000),
            family("bias add", "compute", 180, 8_120_000),
            family("fill", "fill", 4, 6_880_000),
            family("memory copy", "copy", 304, 1_220_000),
            family("conversion", "conversion", 400, 4_190_000),
            family("attention", "compute", 75, 2_350_000),
        ),
        passes=Passes(5, "most kernels have 5 calls"),
    )
    return replace(made, **changed)  # type: ignore[arg-type]


@cache
def claims() -> Claims:
    """The report's claims, read once."""
    return read_claims(REPORT)


def against(profile: ProfileSummary) -> dict[str, Finding]:
    """What is found of the report beside a profile, by rule, without what is found of it alone."""
    found = check_claims(claims(), profile)
    return {one.rule.removeprefix("profile: "): one for one in found if one.rule.startswith("profile: ")}


def test_figures_of_the_profile_hold() -> None:
    """Time, calls and share of every row that the profile has, and registers and launch of the kernel."""
    found = against(summary())
    right = {rule for rule, one in found.items() if one.holds}
    assert {f"{what} of rocBLAS GEMM" for what in ("time", "calls", "share")} <= right
    assert {"total time", "calls of the kernel", "time of the kernel", "time per call"} <= right
    assert {"vgprs", "sgprs", "lds", "workgroup", "work-items"} <= right
    assert "calls of __amd_rocclr_copyBuffer" not in found


def test_copies_that_are_conversions_are_found_in_the_profile() -> None:
    """704 'copies' are 304 copies and 400 conversions of the profile, with the time of each."""
    found = against(summary())["nature of Memory Copy"]
    assert found.holds is False
    assert found.should == (
        "304 copies (memory copy, 1.22 ms) + 400 kernels that convert between types (conversion, 4.19 ms)"
    )


def test_passes_of_the_profile_contradict_the_batches() -> None:
    """Three batches said, five passes in the profile."""
    found = against(summary())["passes"]
    assert (found.holds, found.should) == (False, "5 in the profile: most kernels have 5 calls")
    assert against(summary(passes=Passes(3, "layers")))["passes"].holds is True
    assert "passes" not in against(summary(passes=Passes(None, "nothing fits")))


def test_row_that_the_profile_lacks_is_open() -> None:
    """A row without a family or kernel of its name lists the families there are."""
    found = against(summary())["Other Kernels"]
    assert found.holds is None
    assert found.text.endswith("families: GEMM, normalisation, bias add, fill, memory copy, conversion, attention")
    assert against(summary(families=(), kernels=()))["rocBLAS GEMM"].text.endswith("families: none")


@pytest.mark.parametrize(
    ("changed", "rule", "text"),
    [
        ({"total_ns": 200_000_000}, "total time", "200 ms in the profile"),
        ({"families": (family("GEMM", "compute", 651, 121_890_000),)}, "calls of rocBLAS GEMM", "651 calls"),
        ({"families": (family("GEMM", "compute", 650, 131_890_000),)}, "time of rocBLAS GEMM", "131.89 ms"),
        ({"families": (family("GEMM", "compute", 650, 131_890_000),)}, "share of rocBLAS GEMM", "83.9%"),
        ({"families": (family("GEMM", "other", 650, 121_890_000),)}, "nature of rocBLAS GEMM", "are other kernels"),
    ],
)
def test_figure_that_the_profile_does_not_have_is_contradicted(
    changed: dict[str, object], rule: str, text: str
) -> None:
    """Each of time, calls, share and nature is held against the profile by itself."""
    found = against(summary(**changed))[rule]
    assert found.holds is False
    assert text in found.should


@pytest.mark.parametrize(
    ("shape", "rule", "text"),
    [
        (replace(SHAPE, vgprs=96), "vgprs", "96 VGPRs in the profile"),
        (replace(SHAPE, lds_bytes=16384), "lds", "16,384 bytes in the profile"),
        (replace(SHAPE, workgroup=(256, 1, 1)), "workgroup", "256 x 1 x 1 in the profile"),
    ],
)
def test_resources_of_another_kernel_are_contradicted(shape: KernelShape, rule: str, text: str) -> None:
    """Registers, LDS and launch are those of the profile's attention kernel, whatever the report calls it."""
    spread = Spread(75, 2_350_000)
    kernel = KernelTime("fmha_fwd", "attention", "kernel", spread, 0.015, shapes=(ShapeTime(shape, spread),))
    found = against(summary(kernels=(kernel,)))[rule]
    assert (found.holds, found.should) == (False, text)


def test_kernel_of_several_sizes_has_no_one_launch() -> None:
    """Where a kernel ran at several sizes, its registers and launch are not compared."""
    spread = Spread(75, 2_350_000)
    shapes = (ShapeTime(SHAPE, spread), ShapeTime(replace(SHAPE, grid_items=(64, 1, 1)), spread))
    kernel = KernelTime("fmha_fwd", "attention", "kernel", spread, 0.015, shapes=shapes)
    assert not {"vgprs", "workgroup"} & against(summary(kernels=(kernel,))).keys()


def test_row_may_name_a_kernel() -> None:
    """A row without such a family is matched with the one kernel whose name contains it."""
    found = against(summary(families=()))["calls of Flash Attention"]
    assert found.holds is True


def test_members_are_looked_up_by_name() -> None:
    """A member that the profile has is compared with its own calls."""
    kernels = (KernelTime("__amd_rocclr_copyBuffer", "memory copy", "kernel", Spread(300, 1_220_000), 0.0078),)
    families = (family("Memory Copy", "copy", 704, 5_410_000),)
    found = against(summary(kernels=kernels, families=families))["calls of __amd_rocclr_copyBuffer"]
    assert (found.holds, found.should) == (False, "300 calls in the profile")


@pytest.mark.parametrize(("arch", "holds"), [("gfx1151", True), ("gfx1201", False)])
def test_profile_of_another_device_is_found(arch: str, holds: bool) -> None:
    """A report about gfx1151 beside a profile of another device; where the profile does not say its own, nothing is."""
    found = against(summary(agents=(Agent("Agent 4", arch=arch), Agent("Agent 0", kind="cpu", arch="x86"))))["device"]
    assert (found.holds, f"{arch} in the profile" in found.text) == (holds, True)
    assert "device" not in against(summary())
