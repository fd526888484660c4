from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.records import WorkloadFigures
from pytest_attnperf.roofline.floors import Floor, compute_floor, judge_time

SPEC = DeviceSpec(
    name="Test 100",
    arch="sm_90",
    products=("test",),
    compute_units=100,
    boost_mhz=900,
    max_mhz=1000,
    f16_flop_per_cu_clk=1000,
    f16_tflops=90,
    f32_flop_per_cu_clk=500,
    f32_path="tf32",
    mem_gb_s=1000,
    mem_gb=80,
    l2_mb=50,
    llc_mb=0,
    confidence="A",
    source="made up: 100 TFLOP/s f16, 50 TFLOP/s f32, 1 TB/s",
)
CACHE = 50 * 2**20


def figures(
    flops: float | None, bytes_min: float | None, cache_state: str = "cold", dtype: str = "f16"
) -> WorkloadFigures:
    """Work of a call."""
    return WorkloadFigures(flops, bytes_min, dtype, cache_state)


def test_compute_bound() -> None:
    """1e10 FLOP at 100 TFLOP/s take 100 us; the text gives the arithmetic and the clock."""
    found = compute_floor(figures(1e10, 1e6), SPEC)
    assert found is not None
    assert found.us == pytest.approx(100.0)
    assert found.bound == "compute"
    assert found.how == "1e+10 FLOP at 100 TFLOP/s, f16 matrix at 1000 MHz on Test 100"


@pytest.mark.parametrize("dtype", ["f32", "tf32"])
def test_f32_takes_the_fastest_path(dtype: str) -> None:
    """An f32 call may use tf32, and a tf32 call does."""
    found = compute_floor(figures(1e10, None, dtype=dtype), SPEC)
    assert found is not None
    assert found.us == pytest.approx(200.0)
    assert "tf32" in found.how


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2fnuz", "i8", ""])
def test_a_dtype_without_a_rate_keeps_the_memory_floor(dtype: str) -> None:
    """A table without the rate of a dtype gives no compute floor for it, rather than another dtype's."""
    assert compute_floor(figures(1e12, None, dtype=dtype), SPEC) is None
    found = compute_floor(figures(1e12, 100e6, dtype=dtype), SPEC)
    assert found is not None
    assert found.bound == "memory"


def test_8_bits_take_their_own_rate() -> None:
    """fp8 and int8 each have a rate, which the text names: 1e10 operations at 200 T/s take 50 us."""
    spec = replace(SPEC, f8_flop_per_cu_clk=2000, i8_flop_per_cu_clk=4000)
    fp8, int8 = (compute_floor(figures(1e10, None, dtype=dtype), spec) for dtype in ("f8e4m3fnuz", "i8"))
    assert fp8 is not None
    assert int8 is not None
    assert (fp8.us, int8.us) == (pytest.approx(50.0), pytest.approx(25.0))
    assert "f8e4m3fnuz matrix" in fp8.how


def test_memory_bound_cold() -> None:
    """A cold call moves every unique byte: 100 MB at 1 TB/s take 100 us."""
    found = compute_floor(figures(1e6, 100e6), SPEC)
    assert found is not None
    assert found.us == pytest.approx(100.0)
    assert found.bound == "memory"


def test_memory_bound_hot() -> None:
    """A hot call may find a whole last-level cache of them in place, and the text says so."""
    found = compute_floor(figures(None, CACHE + 100e6, "hot"), SPEC)
    assert found is not None
    assert found.us == pytest.approx(100.0)
    assert found.how == "100 MB beyond the 50 MiB cache at 1000 GB/s on Test 100"


def test_hot_and_cached_has_no_memory_floor() -> None:
    """What fits into the cache has no memory bound when hot, and its compute bound stays."""
    assert compute_floor(figures(None, CACHE, "hot"), SPEC) is None
    found = compute_floor(figures(1e10, CACHE, "hot"), SPEC)
    assert found is not None
    assert found.bound == "compute"


def test_the_memory_side_cache_counts() -> None:
    """The larger of L2 and memory-side cache is subtracted."""
    spec = replace(SPEC, llc_mb=256)
    assert compute_floor(figures(None, 256 * 2**20, "hot"), spec) is None


@pytest.mark.parametrize(
    ("work", "spec"),
    [
        (figures(None, None), SPEC),
        (figures(0.0, None), SPEC),
        (figures(1e10, 1e9), replace(SPEC, confidence="C")),
        (figures(1e10, None), replace(SPEC, max_mhz=None)),
    ],
)
def test_no_floor(work: WorkloadFigures, spec: DeviceSpec) -> None:
    """Unknown work, an unreliable row and an unknown clock give no floor rather than a guess."""
    assert compute_floor(work, spec) is None


def test_unknown_clock_keeps_the_memory_floor() -> None:
    """Bandwidth is known where the clock is not."""
    found = compute_floor(figures(1e12, 100e6), replace(SPEC, max_mhz=None))
    assert found is not None
    assert found.bound == "memory"


@pytest.mark.parametrize(
    ("median_us", "kind"),
    [(96.9, "impossible"), (97.1, "near_floor"), (100.0, "near_floor"), (111.0, "near_floor"), (112.0, "plausible")],
)
def test_judge_time(median_us: float, kind: str) -> None:
    """Below 97 % of the floor is impossible, above 90 % of the floor is near it, everything else plausible."""
    judged = judge_time(median_us, Floor(100.0, "memory", "how"))
    assert judged.kind == kind


def test_impossible_text() -> None:
    """The text gives both times, the bound and its arithmetic, and asks the question."""
    judged = judge_time(31.3, Floor(118.9, "memory", "25.2 MB at 212 GB/s on Test"))
    assert judged.text == (
        "faster than this device can be: 31.30 us per call against a floor of 118.9 us "
        "(memory: 25.2 MB at 212 GB/s on Test); is the work really done?"
    )


def test_the_margin_is_a_parameter() -> None:
    """A wider margin believes what the default does not."""
    assert judge_time(95.0, Floor(100.0, "compute", "how"), margin=0.10).kind == "near_floor"
