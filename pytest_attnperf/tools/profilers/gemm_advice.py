"""Gives recommendations on the GEMMs of a profile: another library, another ROCm, other batch sizes, 8-bit operands.

Each needs evidence of its own: names of kernels say which library and type they are, columns of a file how old its ROCm
is, grids how full the device was, the data sheet what 8 bits could give. What none of this shows is not recommended.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.records.profiles import Advice, KernelTime, ProfileSummary, ShapeTime
from pytest_attnperf.records.time_units import format_ns
from pytest_attnperf.tools.profilers.amdahl import format_percent, overall_gain
from pytest_attnperf.tools.profilers.devices import find_agents_spec
from pytest_attnperf.tools.profilers.name_matching import shorten_name
from pytest_attnperf.tools.profilers.resources import FULL_ROUNDS, GridFill, grid_fill

GEMM = "GEMM"
"""Name of the family in kernel_families.json."""

DOMINATES = 0.5
WORTH_A_RUN = 0.10
"""Share of GPU time from which one more run with another library or release is worth its time."""

ROUNDS_SHARE = 0.02
SHOWN = 3

TENSILE = re.compile(r"^Cijk_")
HIPBLASLT = re.compile(r"_UserArgs_|_Bias_|_SAV_")
"""Parts of names of hipBLASLt's kernels: arguments, bias and scales that rocBLAS's Tensile kernels lack."""

HALVES = re.compile(
    r"^Cijk_[A-Za-z]+_[A-Za-z]+_(?:HHS|HSS|HHH|HBH|HB|BBS|BSS|BBH|BB)_|b?fp?16|half|16816", re.IGNORECASE
)
"""16-bit operands: Tensile's type codes (H is half, B bfloat16), cuBLAS's and CUTLASS's names."""

EIGHTS = re.compile(
    r"^Cijk_[A-Za-z]+_[A-Za-z]+_(?:I8|F8|B8|4xi8)|(?<![a-z])(?:a8w8|int8|i8|fp8|e4m3|e5m2|f8)", re.IGNORECASE
)
"""8-bit operands, which a kernel with a 16-bit result has, too."""

OLD_ROCM = re.compile(r"^ROCm 6\.\d(?!.*later)")
"""Versions of a source that only releases before 7.0 write."""


def advise_on_gemm(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice to measure GEMMs before libraries are exchanged, if they take half of GPU time."""
    kernels, share = _list_gemms(summary)
    if share >= DOMINATES:
        yield Advice(
            "Measure these GEMM shapes against a calibrated GEMM ceiling (attnperf doctor --calibrate) before "
            "libraries or batch sizes are changed: kernel times alone do not show how far the GEMMs are from "
            "what the device reaches",
            _format_kernels(kernels, share),
            _compute_limit(share),
        )


def advise_on_library(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice to try hipBLASLt where kernels of rocBLAS's own Tensile take 10 % or more of GPU time."""
    gemms, _ = _list_gemms(summary)
    kernels = [one for one in gemms if TENSILE.search(one.name) and not HIPBLASLT.search(one.name)]
    share = sum(one.share for one in kernels)
    if share >= WORTH_A_RUN:
        yield Advice(
            "Run once with ROCBLAS_USE_HIPBLASLT=1 and compare (attnperf profile AFTER --against BEFORE): these GEMMs "
            "are Tensile kernels of rocBLAS. It then takes hipBLASLt where that has a solution",
            f"{_format_kernels(kernels, share)}; names without what hipBLASLt's have (UserArgs, Bias)",
            _compute_limit(share),
        )


def advise_on_release(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice to profile under a newer ROCm where files are of 6.x and GEMMs take 10 % or more of GPU time."""
    old = sorted({one.version for one in summary.sources if OLD_ROCM.search(one.version)})
    kernels, share = _list_gemms(summary)
    if old and share >= WORTH_A_RUN:
        yield Advice(
            "Profile the same work under ROCm 7 or later and compare (attnperf profile AFTER --against BEFORE): GEMM "
            "kernels are chosen by the libraries of a release",
            f"the files are of {' and '.join(old)} by their columns; {_format_kernels(kernels, share)}",
            _compute_limit(share),
        )


def advise_on_batches(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice on batch sizes for the three longest GEMM launches whose last round of workgroups leaves 10 % of
    all rounds or more empty, and that take 2 % or more of GPU time. The gain assumes that all rounds are full."""
    agents = {agent.name: agent for agent in summary.agents}
    found: list[tuple[ShapeTime, GridFill, float]] = []
    for kernel in _list_gemms(summary)[0]:
        for launch in kernel.shapes:
            fill = grid_fill(launch.shape, launch.occupancy, agents.get(launch.shape.agent))
            if launch.spread.total_ns >= ROUNDS_SHARE * summary.total_ns and fill and not fill.idle_units:
                used = fill.used_share
                if used is not None and used < FULL_ROUNDS:
                    found.append((launch, fill, used))
    for launch, fill, used in sorted(found, key=lambda one: -one[0].spread.total_ns)[:SHOWN]:
        share = launch.spread.total_ns / summary.total_ns
        yield Advice(
            f"Try a batch size that fills whole rounds of {shorten_name(launch.shape.name)}: its last round leaves "
            "part of the device empty",
            f"{fill.workgroups} workgroups where {fill.capacity} run at once: {fill.rounds:.2f} rounds, "
            f"{format_percent(1 - used)} of their places empty (calculated, no counter was read); "
            f"{format_percent(share)} of GPU time; the gain assumes full rounds",
            overall_gain(share, 1 / used - 1),
        )


def advise_on_eight_bits(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice on 8-bit operands where 16-bit GEMMs take half of GPU time and the data sheet has an 8-bit rate."""
    spec = find_agents_spec(summary.agents)
    gemms, _ = _list_gemms(summary)
    kernels = [one for one in gemms if HALVES.search(one.name) and not EIGHTS.search(one.name)]
    share = sum(one.share for one in kernels)
    rate = _eight_bit_rate(spec)
    if share < DOMINATES or spec is None or rate is None:
        return
    faster = f"{rate:g} x the rate of f16" if rate > 1 else "no higher rate than f16: only GEMMs bound by memory gain"
    yield Advice(
        "8-bit operands halve the bytes of these GEMMs: worth a measurement where the accuracy allows it, judged "
        "against an unquantised reference",
        f"{_format_kernels(kernels, share)} with 16-bit operands by their names; on {spec.name} 8 bits have {faster}",
        overall_gain(min(share, 1.0), 1.0),
    )


GEMM_RULES = (advise_on_gemm, advise_on_library, advise_on_release, advise_on_batches, advise_on_eight_bits)


def _list_gemms(summary: ProfileSummary) -> tuple[list[KernelTime], float]:
    """Returns the GEMM kernels, and their share of GPU time."""
    kernels = [kernel for kernel in summary.kernels if kernel.family == GEMM]
    return kernels, sum(kernel.share for kernel in kernels)


def _eight_bit_rate(spec: DeviceSpec | None) -> float | None:
    """Returns the higher of the int8 and fp8 rates over that of f16; None if none of them is known."""
    if spec is None or not spec.f16_flop_per_cu_clk:
        return None
    rates = [rate for rate in (spec.i8_flop_per_cu_clk, spec.f8_flop_per_cu_clk) if rate]
    return max(rates) / spec.f16_flop_per_cu_clk if rates else None


def _compute_limit(share: float) -> float:
    return overall_gain(min(share, 1.0), math.inf)


def _format_kernels(kernels: list[KernelTime], share: float) -> str:
    calls = sum(kernel.spread.calls for kernel in kernels)
    total = format_ns(sum(kernel.spread.total_ns for kernel in kernels))
    count = "1 kernel" if len(kernels) == 1 else f"{len(kernels)} kernels"
    return f"{format_percent(share)} of GPU time: {total} in {calls} call{'' if calls == 1 else 's'} of {count}"
