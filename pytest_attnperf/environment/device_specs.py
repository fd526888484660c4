"""Peak rates and cache sizes per product, each with a source and a confidence: `device_specs.json` beside this file.

Rates are dense, at the MAXIMUM clock that a board reaches, because they give lower bounds of time: with a rate at boost
clock an honest result would look impossible.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pytest_attnperf.records import DeviceInfo

BYTES_PER_MIB = 2**20
BYTES_PER_GIB = 2**30
HZ_PER_MHZ = 1e6
FLOPS_PER_TFLOP = 1e12
BYTES_PER_GB = 1e9
MEMORY_TOLERANCE = 0.12
"""Allowed relative difference of torch's total memory (after reservations, in GiB) from the vendor's (partly in GB)."""


@dataclass(frozen=True)
class DeviceSpec:
    """One row of the table. Clocks in MHz, rates in FLOP per compute unit and clock (multiply-add = 2), None = unknown.

    `products` are the names that `DeviceInfo.product` may have; `f32_path` names the path of the f32 rate (tf32, xf32,
    ...). `f8_flop_per_cu_clk` is for any 8-bit floating-point format, `i8_flop_per_cu_clk` for int8 (operations).
    `mem_gb` is None where the device shares the host's memory.
    `f32_vector_tflops` is the vendor's f32 rate of the vector units at boost clock; `note` says where packed or
    dual-issued instructions reach twice this rate. Confidence A: vendor documentation that agrees with the formula; B:
    secondary pages; C: unreliable.
    """

    name: str
    arch: str
    products: tuple[str, ...]
    compute_units: int
    boost_mhz: float | None
    max_mhz: float | None
    f16_flop_per_cu_clk: float | None
    f16_tflops: float | None
    f32_flop_per_cu_clk: float | None
    f32_path: str
    mem_gb_s: float
    mem_gb: float | None
    l2_mb: float
    llc_mb: float
    confidence: str
    source: str
    note: str = ""
    f8_flop_per_cu_clk: float | None = None
    i8_flop_per_cu_clk: float | None = None
    f32_vector_tflops: float | None = None

    def peak_flops(self, dtype: str) -> float | None:
        """Returns the highest FLOP/s for a workload's dtype by the fastest path at the maximum clock; None if unknown.

        It is FLOP per compute unit and clock x compute units x clock. f16 and bf16 have one rate on every listed
        device but Turing's, where bf16 has none of its own and is no faster; all fp8 formats have one rate; f32 uses
        that of tf32. A vendor's own f16 rate replaces a lower result of the formula.
        """
        per_clock = self._flop_per_cu_clk(dtype)
        if per_clock is None or self.max_mhz is None:
            return None
        computed = per_clock * self.compute_units * self.max_mhz * HZ_PER_MHZ
        published = (self.f16_tflops or 0.0) * FLOPS_PER_TFLOP if dtype in ("f16", "bf16") else 0.0
        return max(computed, published)

    def _flop_per_cu_clk(self, dtype: str) -> float | None:
        if dtype in ("f16", "bf16"):
            return self.f16_flop_per_cu_clk
        if dtype in ("f32", "tf32"):
            return self.f32_flop_per_cu_clk
        if dtype.startswith("f8"):
            return self.f8_flop_per_cu_clk
        return self.i8_flop_per_cu_clk if dtype == "i8" else None

    @property
    def peak_bytes_per_s(self) -> float:
        """The device's peak memory bandwidth in bytes per second."""
        return self.mem_gb_s * BYTES_PER_GB

    @property
    def last_level_cache_bytes(self) -> float:
        """The larger of L2 and memory-side cache, in bytes; torch reports neither reliably (4 MB per XCD on MI300)."""
        return max(self.l2_mb, self.llc_mb) * BYTES_PER_MIB


@functools.cache
def all_specs() -> tuple[DeviceSpec, ...]:
    """Returns the specification of every product in `device_specs.json`, which is read once per process."""
    text = resources.files("pytest_attnperf.environment").joinpath("device_specs.json").read_text(encoding="utf-8")
    return tuple(_parse_spec(row) for row in json.loads(text)["devices"])


def _parse_spec(row: dict[str, Any]) -> DeviceSpec:
    return DeviceSpec(**{**row, "products": tuple(row["products"])})


def spec_for(device: DeviceInfo) -> DeviceSpec | None:
    """Returns the specification for the device's arch, product and number of compute units; None if there is none.

    It is never that of a similar device. A partitioned card, which shows only part of its compute units, has none,
    because its share of the bandwidth is unknown.
    """
    for spec in all_specs():
        if spec.arch == device.arch and device.product in spec.products and spec.compute_units == device.compute_units:
            return spec
    return None


def product_by_shape(arch: str, compute_units: int, memory_bytes: int) -> str | None:
    """Returns the slug of the only product with this arch, these compute units and about this memory (within 12 %;
    any memory where the product shares the host's). It is for drivers that give no model name. None if several or no
    products fit."""
    fitting = [
        spec.products[0]
        for spec in all_specs()
        if spec.arch == arch and spec.compute_units == compute_units and _fits_memory(spec, memory_bytes)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _fits_memory(spec: DeviceSpec, memory_bytes: int) -> bool:
    if spec.mem_gb is None:
        return True
    return abs(memory_bytes / BYTES_PER_GIB - spec.mem_gb) <= MEMORY_TOLERANCE * spec.mem_gb
