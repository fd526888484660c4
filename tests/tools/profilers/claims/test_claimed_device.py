from __future__ import annotations

from typing import Any

import pytest

from pytest_attnperf.records.profiles import ProfileFinding
from tests.tools.profilers.claims.documents import found_in


def device_with(arch: str, **fields: Any) -> list[ProfileFinding]:
    """What is found of a device."""
    return found_in(device={"arch": arch, **fields})


@pytest.mark.parametrize(
    ("arch", "product", "rate", "of", "holds", "text"),
    [
        ("sm_90", "NVIDIA H200", "989 TFLOPS", "f16", True, "of 1,071 TFLOP/s"),
        ("sm_90", "NVIDIA H200", "1,979 TFLOPS", "f16", False, "with structured sparsity?"),
        ("gfx942", "AMD Instinct MI300X", "5.3 TB/s", "DRAM", True, "100% of 5.3 TB/s"),
        ("gfx942", "AMD Instinct MI300X", "4.0 TB/s", "DRAM", False, "a measured ceiling, not the peak"),
        ("gfx942", "", "5.3 TB/s", "DRAM", None, "no peak of this device is known"),
        ("gfx942", "AMD Instinct MI308X", "2 TB/s", "DRAM", None, "no peak of this device is known"),
        ("gfx1151", "Radeon 8060S", "14.8 TFLOPS", "f32", None, "which counts fp32 dual issue"),
        ("sm_75", "Titan RTX", "130.5 TFLOPS", "f16", True, "(72 CU x 1024 FLOP per clock x 1.77 GHz)"),
        ("sm_75", "Titan RTX", "672 GB/s", "DRAM", True, "100% of 672 GB/s"),
        ("sm_75", "RTX 2080 Ti", "113.8 TFLOPS", "f16", None, "no peak of this device is known"),
    ],
)
def test_peak_is_held_against_the_data_sheet(
    arch: str, product: str, rate: str, of: str, holds: bool | None, text: str
) -> None:
    """Any clock of the data sheet is right, above is wrong, below is a measured ceiling; unknown devices stay open."""
    (found,) = device_with(arch, product=product, peaks=[{"said": "peak", "rate": rate, "of": of}])
    assert found.holds is holds
    assert text in found.text


@pytest.mark.parametrize(
    ("arch", "most", "per", "holds"),
    [
        ("gfx942:sramecc+:xnack-", "64 KB", "CU", True),
        ("gfx950", "160 KB", "workgroup", True),
        ("gfx942", "64 KB", "WGP", False),
        ("gfx942", "512 VGPRs", "wave", True),
        ("gfx942", "256 VGPRs", "wave", True),
        ("gfx906", "512 VGPRs", "wave", False),
        ("gfx942", "32 waves", "CU", True),
        ("gfx1030", "1,024 VGPRs", "SIMD", True),
        ("sm_90", "228 KB", "CU", None),
    ],
)
def test_limit_is_held_against_the_architecture(arch: str, most: str, per: str, holds: bool | None) -> None:
    """LDS, waves and VGPRs of each unit; with AccVGPRs a wave has twice as many; NVIDIA's are not known."""
    (found,) = device_with(arch, limits=[{"said": "at most", "most": most, "per": per}])
    assert found.holds is holds


def test_wave_size_that_does_not_exist_is_found() -> None:
    """gfx942 has no waves of 32."""
    (found,) = device_with("gfx942", wave_size=32)
    assert found.text == "waves of 32: gfx942 has waves of 64"
    assert device_with("gfx1151", wave_size=64) == []


@pytest.mark.parametrize(
    ("kernel", "percent", "holds", "text"),
    [
        ({"workgroup": [256, 1, 1], "vgprs": {"said": "v", "count": 128}}, "50%", True, "50% of the wave slots"),
        ({"workgroup": [256, 1, 1], "vgprs": {"said": "v", "count": 128}}, "100%", False, "50% of the wave slots"),
        (
            {
                "workgroup": [256, 1, 1],
                "vgprs": {"said": "v", "count": 128},
                "agprs": {"said": "a", "count": 128},
            },
            "25%",
            True,
            "25% of the wave slots",
        ),
        (
            {"workgroup": [256, 1, 1], "vgprs": {"said": "v", "count": 300}},
            "12.5%",
            False,
            "no kernel can have these resources: vgprs 300",
        ),
        ({"vgprs": {"said": "v", "count": 64}}, "100%", None, "the workgroup is not known"),
        ({"workgroup": [256, 1, 1]}, "100%", None, "the registers are not known"),
    ],
)
def test_occupancy_is_calculated(kernel: dict[str, Any], percent: str, holds: bool | None, text: str) -> None:
    """From registers, LDS and workgroup on gfx942; impossible counts are contradicted, missing ones leave it open."""
    claim = {"said": "occupancy", "percent": percent}
    found = found_in(device={"arch": "gfx942"}, kernel=kernel, occupancy=claim)
    finding = next(one for one in found if one.rule == "occupancy")
    assert finding.holds is holds
    assert text in finding.text


def test_occupancy_read_of_counters_is_not_called_calculated() -> None:
    """Where counters are named, a measured occupancy is open and not contradicted."""
    claim = {"said": "measured 78%", "percent": "78%", "word": "measured", "counters": ["OccupancyPercent"]}
    found = {one.rule: one.holds for one in found_in(occupancy=claim)}
    assert found == {"occupancy measured": None, "occupancy": None}


@pytest.mark.parametrize(
    ("bound", "lds", "holds", "text"),
    [
        ({"by": "lds", "workgroups": 0}, "70,000 bytes", True, "64 KiB is the most of one workgroup"),
        ({"by": "lds", "workgroups": 4}, "16,384 bytes", True, "64 KiB of LDS / 16,384 bytes: 4 workgroups"),
        ({"by": "lds", "workgroups": 4}, None, None, "the amount per workgroup is not given"),
        ({"by": "vgprs", "workgroups": 4}, None, None, "the amount per workgroup is not given"),
        ({"by": "slots", "workgroups": 8, "per": "WGP"}, None, None, "the limits of a WGP"),
    ],
)
def test_bound_needs_what_it_rests_on(bound: dict[str, Any], lds: str | None, holds: bool | None, text: str) -> None:
    """Without LDS, registers or such a block a bound is open; LDS over the limit lets nothing in."""
    kernel: dict[str, Any] = {"workgroup": [256, 1, 1]}
    if lds:
        kernel["lds"] = {"said": "LDS", "size": lds}
    (found,) = found_in(device={"arch": "gfx942"}, kernel=kernel, bounds=[{"said": "bound", **bound}])
    assert found.holds is holds
    assert text in found.text


def test_sgprs_are_a_resource_on_gfx9() -> None:
    """On CDNA the waves of a SIMD share SGPRs, so the count is none of profiling's constants."""
    kernel = {"sgprs": {"said": "128 SGPRs per block", "count": 128, "per": "workgroup"}}
    (found,) = found_in(device={"arch": "gfx942"}, kernel=kernel)
    assert found.should == "SGPRs are counted per wave, the waves of a SIMD share them, not per workgroup"


def test_registers_of_a_checked_kernel_hold() -> None:
    """Outputs that were compared with a reference outweigh one granule of registers; other families have no rule."""
    kernel = {"family": "gemm", "vgprs": {"said": "8 VGPRs", "count": 8}}
    (found,) = found_in(kernel={**kernel, "outputs_checked": True})
    assert found.holds is True
    assert found_in(kernel={**kernel, "family": "other"}) == []
    assert found_in(kernel={**kernel, "agprs": {"said": "128 AGPRs", "count": 128}}) == []


ATTENTION = {"sequences": 4, "tokens": 1024, "heads": 8, "head_dim": 128}
TIMED = {"per_call": {"said": "t", "time": "1.00 ms"}}


@pytest.mark.parametrize(
    ("model", "rate", "holds"),
    [
        (ATTENTION, "17.2 TFLOP/s", True),
        ({**ATTENTION, "causal": True}, "8.6 TFLOP/s", True),
        ({**ATTENTION, "causal": True}, "17.2 TFLOP/s", False),
        ({}, "17.2 TFLOP/s", None),
    ],
)
def test_rate_is_useful_work_over_time(model: dict[str, Any], rate: str, holds: bool | None) -> None:
    """4 x tokens^2 x head_dim per head, half of it causal; open where the work is not given."""
    performance = {**TIMED, "computing": {"said": "rate", "rate": rate}}
    found = found_in(kernel={"family": "attention"}, model=model, performance=performance)
    assert [one.holds for one in found if one.rule == "rate of computing"] == [holds]


def test_bytes_that_no_cache_holds_must_come_from_memory() -> None:
    """268 MB in 31.3 us on an MI300X are beyond its memory and its cache: the work is not done."""
    found = found_in(
        device={"arch": "gfx942", "product": "MI300X", "compute_units": 304},
        kernel={"family": "attention"},
        model={"sequences": 64, "tokens": 1024, "heads": 16, "kv_heads": 16, "head_dim": 128, "dtype": "f16"},
        performance={"per_call": {"said": "t", "time": "31.3 us"}},
    )
    finding = next(one for one in found if one.rule == "faster than memory")
    assert finding.holds is False
    assert "no cache holds them: the work is not done" in finding.text


def test_bandwidth_read_of_counters_may_be_below_the_least_traffic() -> None:
    """Counters of memory see nothing of what stays in the cache, so less than the least traffic is open."""
    moving = {"said": "0.92 GB/s", "rate": "0.92 GB/s", "counters": ["GL2C_EA_RDREQ"]}
    found = found_in(
        device={"arch": "gfx1151"},
        kernel={"family": "attention"},
        model=ATTENTION | {"sequences": 1},
        performance={**TIMED, "moving": moving},
    )
    assert [one.holds for one in found if one.rule == "bandwidth"] == [None]


def test_launch_and_passes_that_do_not_divide_are_open() -> None:
    """76 calls of 15 layers, and 100 workgroups for 32 heads, may have reasons that the report does not say."""
    found = found_in(
        kernel={"family": "attention", "grid_workgroups": [100, 1, 1]},
        model={**ATTENTION, "layers": 15, "passes": {"said": "5 passes", "count": 5}},
        performance={"calls": {"said": "76 calls", "count": 76}},
    )
    assert {one.rule: one.holds for one in found} == {"passes": None, "launch": None}


def test_passes_without_calls_are_open() -> None:
    """A number of batches alone cannot be checked."""
    (found,) = found_in(model={"passes": {"said": "3 batches", "count": 3}})
    assert (found.rule, found.holds) == ("passes", None)


@pytest.mark.parametrize(("arch", "fields", "holds"), [("sm_90", {}, True), ("gfx9999", {"wave_size": 64}, False)])
def test_waves_need_no_limits(arch: str, fields: dict[str, int], holds: bool) -> None:
    """256 threads are 8 warps of NVIDIA, and 4 waves of an unknown device that is said to have 64 lanes."""
    kernel = {"workgroup": [256, 1, 1], "waves": {"said": "8 waves", "count": 8}}
    (found,) = found_in(device={"arch": arch, **fields}, kernel=kernel)
    assert found.holds is holds
    assert found.text.startswith("8 waves: 256 threads are ")


def test_above_its_roof_is_not_called_below() -> None:
    """A rate above the roof that the report draws, and a share that it never says."""
    performance = {
        "computing": {"said": "25.7 TFLOP/s", "rate": "25.7 TFLOP/s"},
        "memory_roof": {"said": "r", "bandwidth": "212 GB/s", "intensity": "26.6 FLOP/B", "rate": "5,639 GFLOP/s"},
    }
    found = next(one for one in found_in(performance=performance) if one.rule == "own roof")
    assert found.holds is False
    assert "456% of its own roof, which the report does not give: only kernels that read from caches" in found.text
