from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.environment.device import gpu_product, make_slug
from pytest_attnperf.environment.device_specs import DeviceSpec, all_specs, product_by_shape, spec_for
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.base import DTYPE_BYTES

H200 = DeviceInfo("cuda", "sm_90", "h200", compute_units=132)
KNOWN = [spec for spec in all_specs() if spec.boost_mhz and spec.f16_flop_per_cu_clk and spec.f16_tflops]


@pytest.mark.parametrize("spec", KNOWN, ids=lambda spec: spec.products[0])
def test_published_rate_is_the_formula(spec: DeviceSpec) -> None:
    """FLOP per clock x compute units x boost clock gives the vendor's dense f16 figure within 0.3 %."""
    assert spec.boost_mhz is not None
    assert spec.f16_flop_per_cu_clk is not None
    computed = spec.f16_flop_per_cu_clk * spec.compute_units * spec.boost_mhz * 1e6 / 1e12
    assert computed == pytest.approx(spec.f16_tflops, rel=0.003)


@pytest.mark.parametrize("spec", all_specs(), ids=lambda spec: spec.products[0])
def test_every_row_is_sourced(spec: DeviceSpec) -> None:
    """Every row has a source, a known confidence, products that name folders, and caches and bandwidth."""
    assert spec.source
    assert spec.confidence in {"A", "B", "C"}
    assert spec.products == tuple(make_slug(product) for product in spec.products)
    assert spec.last_level_cache_bytes > 0
    assert spec.peak_bytes_per_s > 1e11


def test_no_product_is_listed_twice() -> None:
    """(arch, product, compute units) finds one row at most."""
    keys = [(spec.arch, product, spec.compute_units) for spec in all_specs() for product in spec.products]
    assert len(keys) == len(set(keys))


def test_h200_at_its_maximum_clock() -> None:
    """The peak is taken at 1980 MHz: 4096 x 132 x 1.98e9 = 1070.5 TFLOP/s, above the data sheet's 989.4."""
    spec = spec_for(H200)
    assert spec is not None
    assert spec.peak_flops("f16") == spec.peak_flops("bf16") == pytest.approx(1070.5e12, rel=1e-4)
    assert spec.peak_flops("f32") == pytest.approx(535.3e12, rel=1e-3)


@pytest.mark.parametrize("spec", all_specs(), ids=lambda spec: spec.products[0])
def test_every_dtype_has_a_peak_or_none(spec: DeviceSpec) -> None:
    """No dtype of a workload crashes the table; tf32 is f32's, and 8 bits are twice f16 where they are known, but as
    fast as f16 on RDNA 3."""
    peaks = {dtype: spec.peak_flops(dtype) for dtype in DTYPE_BYTES}
    assert peaks["tf32"] == peaks["f32"]
    assert len({peaks[dtype] for dtype in DTYPE_BYTES if dtype.startswith("f8")}) == 1
    for rate in (spec.f8_flop_per_cu_clk, spec.i8_flop_per_cu_clk):
        assert rate is None or rate == (1 if spec.arch.startswith("gfx11") else 2) * (spec.f16_flop_per_cu_clk or 0)
    assert spec.peak_flops("") is None


@pytest.mark.parametrize(
    ("device", "tflops"),
    [(H200, 1978.9), (DeviceInfo("rocm", "gfx942", "mi300x", compute_units=304), 2614.9)],
    ids=["h200", "mi300x"],
)
def test_8_bit_rates_are_the_published_ones(device: DeviceInfo, tflops: float) -> None:
    """At boost clock fp8 and int8 are the vendors' dense figures; NVIDIA prints twice of it, with sparsity."""
    spec = spec_for(device)
    assert spec is not None
    assert spec.boost_mhz is not None
    for rate in (spec.f8_flop_per_cu_clk, spec.i8_flop_per_cu_clk):
        assert rate is not None
        assert rate * spec.compute_units * spec.boost_mhz * 1e6 == pytest.approx(tflops * 1e12, rel=1e-4)


def test_mi300x_xf32_is_the_published_figure() -> None:
    """f32 counts the xf32 path of CDNA3: 653.7 TFLOP/s in AMD's data sheet."""
    spec = spec_for(DeviceInfo("rocm", "gfx942", "mi300x", compute_units=304))
    assert spec is not None
    assert spec.f32_path == "xf32"
    assert spec.peak_flops("f32") == pytest.approx(653.7e12, rel=1e-4)
    assert spec.last_level_cache_bytes == 256 * 2**20


def test_the_vendors_higher_figure_counts() -> None:
    """Where the vendor publishes more than the formula gives (MI350X), the floor may not be above it."""
    spec = spec_for(DeviceInfo("rocm", "gfx950", "mi350x", compute_units=256))
    assert spec is not None
    assert spec.peak_flops("f16") == pytest.approx(2309.6e12)


@pytest.mark.parametrize(
    "device",
    [
        replace(H200, compute_units=16),
        replace(H200, product="h200-nvl"),
        replace(H200, arch="sm_100"),
        DeviceInfo("cpu", "cpu-x86_64", "amd-epyc"),
    ],
)
def test_no_nearest_row(device: DeviceInfo) -> None:
    """A slice of a card, another board, another arch and a CPU have no row."""
    assert spec_for(device) is None


def test_unknown_clock_gives_no_peak() -> None:
    """A board that exceeds its boost clock has no stated maximum, hence no compute peak."""
    spec = spec_for(DeviceInfo("rocm", "gfx1100", "radeon-rx-7900-xtx", compute_units=96))
    assert spec is not None
    assert spec.peak_flops("f16") is None


@pytest.mark.parametrize(
    ("gib", "product"), [(16, "radeon-rx-9070-xt"), (32, "radeon-ai-pro-r9700"), (24, None), (64, None)]
)
def test_product_by_shape(gib: int, product: str | None) -> None:
    """Two products of one die are told apart by memory, and another size is neither."""
    assert product_by_shape("gfx1201", 64, gib * 2**30) == product


@pytest.mark.parametrize("gib", [8, 64, 96])
def test_product_that_shares_memory_is_known_by_its_size(gib: int) -> None:
    """An unnamed gfx1151 with 40 compute units is a Radeon 8060S, however much memory the host lends it."""
    assert product_by_shape("gfx1151", 40, gib * 2**30) == "radeon-8060s"
    assert product_by_shape("gfx1151", 32, gib * 2**30) is None


def test_the_two_devices_of_a_published_comparison() -> None:
    """A Titan RTX has 672 GB/s and 130.5 TFLOP/s in f16, a Radeon 8060S 256 GB/s and 59.4: the ratios 2.63 and 2.20
    of data sheets, where measured ceilings on one side gave 3.17 and 3.54. Neither states a maximum clock."""
    titan = spec_for(DeviceInfo("cuda", "sm_75", gpu_product("NVIDIA TITAN RTX"), compute_units=72))
    radeon = spec_for(DeviceInfo("rocm", "gfx1151", gpu_product("AMD Radeon 8060S Graphics"), compute_units=40))
    assert titan is not None
    assert radeon is not None
    assert titan.peak_bytes_per_s / radeon.peak_bytes_per_s == pytest.approx(2.625)
    assert (titan.f16_tflops, radeon.f16_tflops) == (130.5, 59.4)
    assert titan.peak_flops("f16") is radeon.peak_flops("f16") is None


@pytest.mark.parametrize("spec", [spec for spec in KNOWN if spec.f32_vector_tflops], ids=lambda spec: spec.products[0])
def test_vector_rate_is_a_multiple_of_the_formula(spec: DeviceSpec) -> None:
    """The f32 vector rate is 128 or 256 FLOP per compute unit and clock at boost clock, within 1.5 %; NVIDIA states an
    H100's at its maximum clock."""
    assert spec.f32_vector_tflops is not None
    clocks = [mhz for mhz in (spec.boost_mhz, spec.max_mhz) if mhz is not None]
    rates = [spec.f32_vector_tflops * 1e12 / (spec.compute_units * mhz * 1e6) for mhz in clocks]
    assert any(rate == pytest.approx(each, rel=0.015) for rate in rates for each in (128, 256)), rates
