from __future__ import annotations

import pytest

from pytest_attnperf.records import Launch
from pytest_attnperf.records.code import KernelCode, Occupancy
from pytest_attnperf.roofline.bound_evidence import Width, compute_width

WGP = Occupancy(16, 16.0, 16, 4, 4, {}, (), block="WGP")


def code(wave_size: int, wgp_mode: bool | None) -> KernelCode:
    """A kernel of this wave size and mode."""
    numbers = (32, 0, 32, 16, 0, 0, 0, 0, 0, 0, 128, 128)
    return KernelCode("a", "gfx1151", *numbers, wave_size, wgp_mode, False, 100, "")


@pytest.mark.parametrize(
    ("arch", "units", "codes", "fitting", "expected"),
    [
        ("sm_90", 132, [], None, Width(30, 132, 120, 528)),
        ("gfx942", 304, [], None, Width(30, 304, 60, 1216)),
        ("gfx1151", 40, [], None, Width(30, 40, 120, 80)),
        ("gfx1151", 40, [code(32, True)], None, Width(30, 20, 120, 80)),
        ("gfx1151", 40, [code(64, False)], None, Width(30, 40, 60, 80)),
        ("gfx1151", 40, [], WGP, Width(30, 20, 120, 80)),
    ],
    ids=["hopper", "cdna", "rdna", "wgp mode", "waves of 64", "wgp by occupancy"],
)
def test_width_by_architecture(
    arch: str, units: int, codes: list[KernelCode], fitting: Occupancy | None, expected: Width
) -> None:
    """30 workgroups of 128: a CU of RDNA has 2 SIMDs, others 4; in WGP mode two CUs are one unit."""
    launches = [Launch("a", grid=(2,), block=(128,)), Launch("b", grid=(5, 3, 2), block=(32, 4, 1))]
    assert compute_width(launches, codes, fitting, units, arch) == expected


@pytest.mark.parametrize(
    "launches",
    [None, [], [Launch("a")], [Launch("a", "copy", grid=(4096,))], [Launch("a", grid=(0, 1, 1), block=(128,))]],
    ids=["unknown", "none", "no grid", "a copy", "an empty grid"],
)
def test_no_width(launches: list[Launch] | None) -> None:
    """Without a grid nothing is said of the width; the grid of a copy is its bytes."""
    assert compute_width(launches, [], None, 132, "sm_90") is None


def test_an_unknown_device_has_no_width() -> None:
    """A grid alone does not say what is left empty."""
    assert compute_width([Launch("a", grid=(4,))], [], None, None, "") is None


def test_parts_in_use() -> None:
    """30 workgroups of one wave use 30 of 40 units and 30 of 80 SIMDs; without a workgroup's size units count."""
    assert (Width(30, 40, 30, 80).of_units, Width(30, 40, 30, 80).of_simds) == (0.75, 0.375)
    assert Width(30, 40, None, 80).of_simds == 0.75
    assert (Width(90, 40, 360, 80).of_units, Width(90, 40, 360, 80).of_simds) == (1.0, 1.0)
    assert str(Width(90, 40, 60, 80)) == "60 waves on 80 SIMDs"
    assert str(Width(1, 40, 8, 80)) == "1 workgroup on 40 compute units"
