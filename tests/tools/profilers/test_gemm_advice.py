"""Recommendations on GEMMs: each with the evidence that it needs, and none without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.records.profiles import (
    Advice,
    Agent,
    KernelShape,
    KernelTime,
    ProfileSource,
    ProfileSummary,
    Spread,
)
from pytest_attnperf.tools.profilers.advice import collect_advice
from pytest_attnperf.tools.profilers.amdahl import overall_gain
from pytest_attnperf.tools.profilers.resources import shape_time

MS = 1_000_000
ROCBLAS = "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_MI16x16x1_SN_1LDSB0_APM1_ABV0_ACED0_AF0EM1_AF1EM1_AMAS3_ASGT"
HIPBLASLT = "Cijk_Alik_Bljk_HHS_BH_Bias_HA_S_SAV_UserArgs_MT64x64x32_MI16x16x1_SN_LDSB0_AFC1"
EIGHT = "Cijk_Alik_Bljk_F8BS_BH_Bias_shortname0_gfx950"
AMPERE = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_relu_f2f_stages_32x5_tn"
RADEON = Agent("4", arch="gfx1151", product="AMD Radeon 8060S Graphics", compute_units=40)
MI300X = Agent("4", arch="gfx942", product="AMD Instinct MI300X", compute_units=304)


def gemm(name: str, ms: float, *groups: int, family: str = "GEMM") -> KernelTime:
    """A kernel that takes so much of 100 ms; a launch of 256 threads and 64 VGPRs for each number of workgroups."""
    shapes = tuple(
        shape_time(
            KernelShape(
                name, agent="4", workgroup=(256, 1, 1), grid_items=(256 * count, 1, 1), vgprs=64, accum_vgprs=0
            ),
            Spread(10, round(ms * MS / len(groups))),
            MI300X,
        )
        for count in groups
    )
    return KernelTime(name, family, "kernel", Spread(10, round(ms * MS)), ms / 100, shapes=shapes)


def advice(words: str, *kernels: KernelTime, agent: Agent = MI300X, versions: tuple[str, ...] = ()) -> list[Advice]:
    """Advice with these words on a profile of 100 ms."""
    sources = tuple(ProfileSource(f"{number}.csv", "x", version) for number, version in enumerate(versions))
    summary = ProfileSummary("run", sources, (agent,), 100 * MS, 20, kernels, ())
    return [one for one in collect_advice(summary) if words in one.text]


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (gemm(ROCBLAS, 77.6), True),
        (gemm(ROCBLAS, 9), False),
        (gemm(HIPBLASLT, 77.6), False),
        (gemm(EIGHT, 77.6), False),
        (gemm(AMPERE, 77.6), False),
        (gemm(ROCBLAS, 77.6, family="convolution"), False),
    ],
)
def test_hipblaslt_is_tried_where_kernels_are_rocblas_own(kernel: KernelTime, said: bool) -> None:
    """Names of Tensile without hipBLASLt's arguments are the evidence; without them, or with little time, it is not
    recommended, and a measurement comes with it."""
    found = advice("ROCBLAS_USE_HIPBLASLT=1", kernel)
    assert bool(found) == said
    for one in found:
        assert one.evidence.startswith("77.6 % of GPU time: 77.60 ms in 10 calls of 1 kernel; names without")
        assert one.gain == pytest.approx(0.776 / 0.224)


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        (("ROCm 6.2", ""), True),
        (("ROCm 6.3 or 6.4", "ROCm 6.2 to 6.4"), True),
        (("ROCm 6.4 or later",), False),
        (("ROCm 7.0 or later",), False),
        (("",), False),
        ((), False),
    ],
)
def test_a_newer_rocm_is_tried_where_the_files_are_old(versions: tuple[str, ...], said: bool) -> None:
    """Columns that only ROCm 6 writes are the evidence. A file of 7.0 or later, or of no version, shows no age."""
    found = advice("under ROCm 7 or later", gemm(ROCBLAS, 60), versions=versions)
    assert bool(found) == said
    for one in found:
        assert f"the files are of {' and '.join(sorted(filter(None, versions)))} by their columns" in one.evidence
    assert advice("under ROCm 7 or later", gemm(ROCBLAS, 9), versions=versions) == []


@pytest.mark.parametrize(
    ("groups", "ms", "used"),
    [(2432, 20, None), (2433, 20, 2433 / 4864), (4560, 20, None), (3000, 1, None), (152, 20, None)],
)
def test_batch_sizes_are_tried_where_the_last_round_is_empty(groups: int, ms: float, used: float | None) -> None:
    """2,432 workgroups run at once on 304 units with 8 each: one more leaves half of two rounds empty, and the gain is
    what full rounds would give. Full rounds, 94 %, short launches and grids below the device say nothing of this."""
    found = advice("batch size that fills whole rounds", gemm(HIPBLASLT, ms, groups))
    assert bool(found) == (used is not None)
    for one in found:
        assert used is not None
        assert one.evidence.startswith(
            f"{groups} workgroups where 2432 run at once: 1.00 rounds, 50.0 % of their places"
        )
        assert one.gain == pytest.approx(overall_gain(ms / 100, 1 / used - 1))


def test_batch_sizes_name_the_three_longest_launches() -> None:
    """Of four badly filled sizes of one kernel the three longest are named; other families are not GEMMs."""
    four = [gemm(f"{HIPBLASLT}{number}", 10 + number, 2500) for number in range(4)]
    found = advice("batch size", *four)
    assert sorted(one.evidence.split("; ")[1].split(" of")[0] for one in found) == ["11.0 %", "12.0 %", "13.0 %"]
    assert advice("batch size", gemm("flash", 50, 2500, family="attention")) == []


@pytest.mark.parametrize(
    ("kernel", "agent", "words"),
    [
        (gemm(ROCBLAS, 60), MI300X, "on MI300X 8 bits have 2 x the rate of f16"),
        (gemm(AMPERE, 60), replace(MI300X), "2 x the rate"),
        (gemm(ROCBLAS, 60), RADEON, "have no higher rate than f16: only GEMMs bound by memory gain"),
        (gemm(ROCBLAS, 49), MI300X, ""),
        (gemm(EIGHT, 60), MI300X, ""),
        (gemm("my_gemm", 60), MI300X, ""),
        (gemm(ROCBLAS, 60), Agent("4", arch="gfx942", product="unknown", compute_units=304), ""),
        (gemm(ROCBLAS, 60), Agent("4", arch="gfx90a", product="AMD Instinct MI210", compute_units=104), ""),
    ],
)
def test_8_bits_are_worth_a_measurement(kernel: KernelTime, agent: Agent, words: str) -> None:
    """16-bit names and a data sheet with an 8-bit rate are the evidence; RDNA 3 has no higher rate for them. Other
    names, less than half of the time, and devices without a known rate give nothing. The gain is twice the speed's."""
    found = advice("8-bit operands", kernel, agent=agent)
    assert bool(found) == bool(words)
    for one in found:
        assert words in one.evidence
        assert one.gain == pytest.approx(overall_gain(0.6, 1.0))
