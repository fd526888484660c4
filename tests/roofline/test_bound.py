from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.environment.device_specs import DeviceSpec, all_specs
from pytest_attnperf.records import Launch, WorkloadFigures
from pytest_attnperf.records.code import KernelCode, Occupancy
from pytest_attnperf.records.rooflines import BoundClass, DeviceCeilings
from pytest_attnperf.roofline.bound import classify_bound, counters_of

SPECS = {spec.name: spec for spec in all_specs()}
H200, MI300X, APU = SPECS["H200 SXM"], SPECS["MI300X"], SPECS["Radeon 8060S (Ryzen AI Max+ 395)"]
MEASURED = DeviceCeilings(
    "sm_90", "h200", 132, {"f16": 760e12, "f32": 50e12}, 4.2e12, 4.4e12, cache_bytes_per_s=7e12, launch_us=2.0
)
BOTH = pytest.mark.parametrize("ceilings", [None, MEASURED], ids=["data sheet", "calibrated"])
VALU = KernelCode(
    "naive", "sm_90", 64, 0, 64, 0, 0, 0, 0, 0, 0, 0, 128, 128, 32, None, False, 100, "", {"valu": 300, "wait": 9}
)
ATTENTION = WorkloadFigures(4 * 4 * 8 * 512**2 * 256 / 2, 4 * 4 * 512 * 8 * 256 * 2, "f16", "hot")
FLASH_US = 26.0
GEMM = WorkloadFigures(2 * 8192**3, 3 * 8192**2 * 2, "f16", "hot")
DECODE = WorkloadFigures(4.3e9, 4.296e9, "f16", "cold")
TINY = WorkloadFigures(4 * 4 * 16 * 16 * 32, 4 * 16 * 4 * 32 * 2, "f16", "hot")
SEED = WorkloadFigures(805e6, 25.2e6, "f16", "hot")


def one(*grid: int, threads: int = 128) -> list[Launch]:
    """A call of one kernel."""
    return [Launch("kernel", grid=grid, block=(threads, 1, 1))]


@BOTH
@pytest.mark.parametrize("times", [20, 32, 60])
def test_naive_attention_is_not_bound_by_compute(times: int, ceilings: DeviceCeilings | None) -> None:
    """A kernel without matrix instructions at a few TFLOP/s is far from its own roof, and no other figure decides."""
    launches = one(4, 8, 4)
    found = classify_bound(ATTENTION, times * FLASH_US, spec=H200, ceilings=ceilings, launches=launches, code=[VALU])
    assert found.bound is BoundClass.UNDECIDED
    assert "f32 vector" in found.reason
    assert "no kernel holds a matrix instruction, whose roof is 1071 TFLOP/s (f16 matrix, peak)" in found.reason
    assert "dram__bytes.sum" in found.decide


@BOTH
@pytest.mark.parametrize("times", [3, 10, 60])
def test_slow_attention_of_unknown_code_is_not_bound_by_compute(times: int, ceilings: DeviceCeilings | None) -> None:
    """Where the code is not known, the share is of the matrix units, and small."""
    found = classify_bound(ATTENTION, times * FLASH_US, spec=H200, ceilings=ceilings)
    assert found.bound is BoundClass.UNDECIDED
    assert "its 33.55 MB would be" in found.reason


@BOTH
@pytest.mark.parametrize("time_us", [1450.0, 1700.0])
def test_a_large_gemm_is_bound_by_compute(time_us: float, ceilings: DeviceCeilings | None) -> None:
    """8192^3 at 647 to 758 TFLOP/s reaches 60 to 100 % of either ceiling; the reason gives its share, no praise."""
    found = classify_bound(GEMM, time_us, spec=H200, ceilings=ceilings)
    assert found.bound is BoundClass.COMPUTE
    assert "of 1071 TFLOP/s (f16 matrix, peak)" in found.reason
    assert found.decide == ""


@BOTH
@pytest.mark.parametrize("rate", [4.0e12, 4.4e12])
def test_a_large_copy_is_bound_by_memory(rate: float, ceilings: DeviceCeilings | None) -> None:
    """1 GB read and written, hot: what exceeds the cache is still 80 to 90 % of the data sheet's bandwidth."""
    found = classify_bound(WorkloadFigures(None, 2e9, "f16", "hot"), 2e9 / rate * 1e6, spec=H200, ceilings=ceilings)
    assert found.bound is BoundClass.MEMORY


@BOTH
@pytest.mark.parametrize("launches", [None, one(1, 4, 1)], ids=["unknown", "counted"])
@pytest.mark.parametrize("time_us", [3.0, 6.0])
def test_a_tiny_prefill_is_bound_by_latency(
    time_us: float, launches: list[Launch] | None, ceilings: DeviceCeilings | None
) -> None:
    """131 kFLOP take one launch or three; whether a launch was measured is said."""
    found = classify_bound(TINY, time_us, spec=H200, ceilings=ceilings, launches=launches)
    assert found.bound is BoundClass.LATENCY
    assert ("(calibrated)" in found.reason) is (ceilings is not None)
    assert ("doctor --calibrate" in found.decide) is (ceilings is None)


@BOTH
@pytest.mark.parametrize("share", [0.61, 0.75, 0.90])
def test_decoding_is_bound_by_memory(share: float, ceilings: DeviceCeilings | None) -> None:
    """64 sequences of 4096 keys, cold."""
    found = classify_bound(DECODE, 4.296e9 / (share * 4814.3e9) * 1e6, spec=H200, ceilings=ceilings)
    assert found.bound is BoundClass.MEMORY


def test_half_of_an_mi300x_is_compute() -> None:
    """668 TFLOP/s, the best GEMM anyone reports, are 51 % of the data sheet's peak: bound by compute all the same."""
    found = classify_bound(replace(GEMM, dtype="bf16"), GEMM.flops / 668e12 * 1e6 if GEMM.flops else 0, spec=MI300X)
    assert found.bound is BoundClass.COMPUTE
    assert found.reason.startswith("668 TFLOP/s, 51 % of 1307 TFLOP/s (bf16 matrix, peak)")


@pytest.mark.parametrize("spec", [H200, MI300X], ids=["h200", "mi300x"])
def test_flash_attention_of_long_prompts_is_bound_by_compute(spec: DeviceSpec) -> None:
    """4 x 4096 x 32 x 128, causal, at 60 % of the peak."""
    call = WorkloadFigures(549.9e9, 536.9e6, "f16", "hot")
    time_us = 549.9e9 / (0.6 * (spec.peak_flops("f16") or 1)) * 1e6
    assert classify_bound(call, time_us, spec=spec).bound is BoundClass.COMPUTE


def test_faster_than_memory_and_small_enough_for_the_cache() -> None:
    """A published kernel "memory-bound at 0.43 %": its bytes came at 805 GB/s, which memory of 256 GB/s cannot give.

    43 % of the peak FLOP rate do not make it compute-bound either, and whether it did its work is asked.
    """
    found = classify_bound(SEED, 31.3, spec=APU, code=())
    assert found.bound is BoundClass.CACHE
    assert "805.1 GB/s exceed memory's 256 GB/s (DRAM, peak), so they come from a cache" in found.reason
    assert "25.2 MB fit the 32 MiB last-level cache" in found.reason
    assert "correctness check" in found.decide


def test_the_same_cold_is_impossible() -> None:
    """Cold bytes come from memory, so 314 % of its bandwidth says that the time or the work is wrong."""
    found = classify_bound(replace(SEED, cache_state="cold"), 31.3, spec=APU)
    assert found.bound is BoundClass.UNDECIDED
    assert "314 % of 256 GB/s (DRAM, peak): impossible" in found.reason
    assert "correctness check" in found.decide


@pytest.mark.parametrize(
    ("figures", "ceilings", "word"),
    [
        (replace(GEMM, flops=3e12), None, "140 % of 1071 TFLOP/s (f16 matrix, peak): impossible"),
        (replace(GEMM, flops=3e12), MEASURED, "140 % of 1071 TFLOP/s (f16 matrix, peak): impossible"),
    ],
)
def test_beyond_a_peak(figures: WorkloadFigures, ceilings: DeviceCeilings | None, word: str) -> None:
    """What exceeds the data sheet's peak is not classified, calibrated or not."""
    found = classify_bound(figures, 2000.0, spec=H200, ceilings=ceilings)
    assert (found.bound, word in found.reason) == (BoundClass.UNDECIDED, True)


def test_beyond_the_vector_rate_names_packed_arithmetic() -> None:
    """Packed and dual-issued instructions reach twice the f32 rate, so that is no accusation."""
    found = classify_bound(replace(ATTENTION, flops=80e12 * 1e-3), 1000.0, spec=H200, code=[VALU])
    assert found.bound is BoundClass.UNDECIDED
    assert "packed or dual-issued instructions reach twice" in found.reason


def test_beyond_a_calibration_alone() -> None:
    """Without a data sheet half as much again as was measured is not believed; a little more is."""
    figures = replace(GEMM, flops=760e12 * 1e-3)
    assert classify_bound(figures, 900.0, spec=None, ceilings=MEASURED).bound is BoundClass.COMPUTE
    found = classify_bound(figures, 600.0, spec=None, ceilings=MEASURED)
    assert found.bound is BoundClass.UNDECIDED
    assert "impossible unless the calibration is wrong" in found.reason


@pytest.mark.parametrize(("share", "bound"), [(0.49, BoundClass.UNDECIDED), (0.51, BoundClass.CACHE)])
def test_half_of_the_measured_cache(share: float, bound: BoundClass) -> None:
    """Where the cache was measured, half of what it gave decides, below memory's rate too."""
    figures = WorkloadFigures(None, 40e6, "f16", "hot")
    assert classify_bound(figures, 40e6 / (share * 7e12) * 1e6, spec=H200, ceilings=MEASURED).bound is bound


@pytest.mark.parametrize(
    ("share", "ceilings", "bound"),
    [
        (0.39, None, BoundClass.UNDECIDED),
        (0.41, None, BoundClass.COMPUTE),
        (0.49, MEASURED, BoundClass.UNDECIDED),
        (0.51, MEASURED, BoundClass.COMPUTE),
    ],
)
def test_thresholds_of_compute(share: float, ceilings: DeviceCeilings | None, bound: BoundClass) -> None:
    """40 % of the data sheet's peak, 50 % of the measured ceiling."""
    rate = 760e12 if ceilings else 1070.5e12
    found = classify_bound(replace(GEMM, flops=share * rate * 1e-3), 1000.0, spec=H200, ceilings=ceilings)
    assert found.bound is bound


@pytest.mark.parametrize(
    ("share", "ceilings", "bound"),
    [
        (0.49, None, BoundClass.UNDECIDED),
        (0.51, None, BoundClass.MEMORY),
        (0.59, MEASURED, BoundClass.UNDECIDED),
        (0.61, MEASURED, BoundClass.MEMORY),
    ],
)
def test_thresholds_of_memory(share: float, ceilings: DeviceCeilings | None, bound: BoundClass) -> None:
    """50 % of the data sheet's bandwidth, 60 % of the measured one."""
    rate = 4.4e12 if ceilings else 4814.3e9
    found = classify_bound(replace(DECODE, bytes_min=share * rate * 1e-3), 1000.0, spec=H200, ceilings=ceilings)
    assert found.bound is bound


def test_both_roofs_near() -> None:
    """At the ridge the larger share names the class, and the reason says that the other one is near, too."""
    figures = WorkloadFigures(0.8 * 1070.5e12 * 1e-3, 0.7 * 4814.3e9 * 1e-3, "f16", "cold")
    found = classify_bound(figures, 1000.0, spec=H200)
    assert found.bound is BoundClass.COMPUTE
    assert "near the ridge" in found.reason
    assert classify_bound(replace(figures, bytes_min=0.9 * 4814.3e6), 1000.0, spec=H200).bound is BoundClass.MEMORY


def test_a_compute_share_below_what_memory_could_have_been() -> None:
    """Hot bytes that fit an unmeasured cache: whether it or arithmetic binds is open, and a calibration would tell."""
    figures = WorkloadFigures(0.45 * 1070.5e6 * 9, 0.8 * 4814.3e3 * 9, "f16", "hot")
    found = classify_bound(figures, 9.0, spec=H200, launches=one(1000))
    assert found.bound is BoundClass.UNDECIDED
    assert "(enough, but the other share is larger; the threshold is" in found.reason
    assert found.decide.startswith("attnperf doctor --calibrate")


def test_many_launches() -> None:
    """27 launches of 2 us are most of 60 us; 5 are not."""
    call = WorkloadFigures(1e8, 1e7, "f16", "hot")
    many = [Launch("a", calls=20), Launch("b", calls=6), Launch("c", "copy")]
    found = classify_bound(call, 60.0, spec=H200, ceilings=MEASURED, launches=many)
    assert found.bound is BoundClass.LATENCY
    assert found.reason == "27 launches of 2.000 us (calibrated): 54.00 us of 60.00 us, 90 %"
    few = classify_bound(call, 60.0, spec=H200, ceilings=MEASURED, launches=[Launch("a", calls=5, grid=(500,))])
    assert few.bound is BoundClass.UNDECIDED
    assert "5 launches: 17 % of the time" in few.reason


def test_a_full_grid_is_not_called_tiny() -> None:
    """A short kernel whose grid fills the device may wait for anything; without a measured launch it stays open."""
    found = classify_bound(TINY, 6.0, spec=H200, launches=one(1000))
    assert found.bound is BoundClass.UNDECIDED
    assert "1 launch may take much of 6.000 us; a launch's time was not measured" in found.reason


@pytest.mark.parametrize(("part", "bound"), [(0.2, BoundClass.LATENCY), (0.3, BoundClass.UNDECIDED)])
def test_a_short_call_that_works_is_not_latency(part: float, bound: BoundClass) -> None:
    """Four workgroups for 15 us: below a quarter of their part of the roof they wait, above it they may work."""
    flops = part * 4 / 132 * 1070.5e12 * 15e-6
    call = WorkloadFigures(flops, 1e5, "f16", "hot")
    assert classify_bound(call, 15.0, spec=H200, launches=one(4)).bound is bound


def test_few_workgroups_that_are_busy() -> None:
    """40 workgroups on 132 multiprocessors at 85 % of their part: more of them would help."""
    flops = 0.85 * 760e12 * 40 / 132 * 200e-6
    call = WorkloadFigures(flops, 5e6, "f16", "cold")
    found = classify_bound(call, 200.0, spec=H200, ceilings=MEASURED, launches=one(40))
    assert found.bound is BoundClass.OCCUPANCY
    assert found.reason.startswith("40 workgroups on 132 compute units use 30 % of the device, and these reach 85 %")
    assert "more workgroups" in found.decide


def test_few_workgroups_that_wait() -> None:
    """The same grid at a tenth of that: few workgroups are mentioned, and do not decide."""
    call = WorkloadFigures(0.085 * 760e12 * 40 / 132 * 200e-6, 5e6, "f16", "cold")
    found = classify_bound(call, 200.0, spec=H200, ceilings=MEASURED, launches=one(40))
    assert found.bound is BoundClass.UNDECIDED
    assert "40 workgroups on 132 compute units use 30 % of the device" in found.reason


def test_few_waves_that_are_busy() -> None:
    """A workgroup of one wave uses one of four SIMDs: 400 of them leave two thirds of an MI300X's 1216 idle."""
    flops = 0.8 * 1307.4e12 * 400 / 1216 * 1e-3
    launches = one(400, threads=64)
    found = classify_bound(WorkloadFigures(flops, 5e6, "f16", "cold"), 1000.0, spec=MI300X, launches=launches)
    assert found.bound is BoundClass.OCCUPANCY
    assert found.reason.startswith("400 waves on 1216 SIMDs use 33 % of the device")


def test_occupancy_is_told_where_nothing_decides() -> None:
    """How many waves fit, and what keeps more out, is a clue and no class."""
    fitting = Occupancy(2, 2.0, 8, 2, 4, {"vgprs": 2}, ("vgprs",))
    found = classify_bound(ATTENTION, 900.0, spec=MI300X, launches=one(1000), occupancy=fitting)
    assert found.bound is BoundClass.UNDECIDED
    assert "2 of 8 waves fit a SIMD (limited by vgprs)" in found.reason
    assert "MfmaUtil" in found.decide


@pytest.mark.parametrize(
    ("arch", "counter"),
    [("sm_90", "dram__bytes"), ("gfx942", "FETCH_SIZE"), ("gfx1151", "GL2C_HIT"), ("", "counters of")],
)
def test_counters_by_vendor(arch: str, counter: str) -> None:
    """What to measure next is named as the device's own profiler names it."""
    assert counter in counters_of(arch)


def test_unknown_peaks() -> None:
    """A row that is not to be relied on, and no row at all: no share is invented, and a calibration is asked for."""
    for spec in (SPECS["MI308X"], None):
        found = classify_bound(GEMM, 1000.0, spec=spec)
        assert found.bound is BoundClass.UNDECIDED
        assert "no peak of this device is known" in found.reason
        assert found.decide.startswith("attnperf doctor --calibrate")


def test_a_foreign_calibration_is_said() -> None:
    """An MI300X is not held against an H200's calibration, and the reason says that one was given."""
    found = classify_bound(GEMM, 1700.0, spec=MI300X, ceilings=MEASURED)
    assert "the calibration is of another device: arch sm_90 instead of gfx942" in found.reason
    assert found.point is not None
    assert all(ceiling.kind == "peak" for ceiling in found.point.ceilings)


def test_a_cpu() -> None:
    """Operators on a CPU are no launches."""
    found = classify_bound(GEMM, 5.0, spec=None, ceilings=None, launches=[Launch("aten::mm", "operator")])
    assert (found.bound, found.decide) == (BoundClass.UNDECIDED, "a run on a GPU")
    assert found.reason == "these are operators on a CPU, which has no known ceiling"
    tiny = classify_bound(TINY, 3.0, spec=None, ceilings=MEASURED, launches=[Launch("aten::mm", "operator")])
    assert tiny.bound is BoundClass.UNDECIDED


def test_a_cache_of_unknown_size() -> None:
    """Of a device without a row hot bytes up to 512 MiB may be in its cache: no claim of memory, nor of the cache."""
    small, large = (WorkloadFigures(None, total, "f16", "hot") for total in (4e8, 4e9))
    found = classify_bound(small, 4e8 / 4e12 * 1e6, spec=None, ceilings=MEASURED)
    assert found.bound is BoundClass.UNDECIDED
    assert "but may be in a last-level cache of unknown size" in found.reason
    assert classify_bound(large, 4e9 / 4e12 * 1e6, spec=None, ceilings=MEASURED).bound is BoundClass.MEMORY


work = st.one_of(st.none(), st.just(0.0), st.floats(1.0, 1e15))
figures = st.builds(
    WorkloadFigures,
    work,
    work,
    st.sampled_from(["f16", "bf16", "f32", "tf32", "f8e4m3", "i8", "f64", ""]),
    st.sampled_from(["hot", "cold"]),
)
rate = st.one_of(st.none(), st.just(0.0), st.floats(1e9, 1e14))
calibration = st.builds(
    DeviceCeilings,
    st.sampled_from(["sm_90", "gfx942"]),
    st.just("h200"),
    st.sampled_from([0, 132]),
    st.dictionaries(st.sampled_from(["f16", "f32", "tf32"]), st.floats(0, 2e15)),
    rate,
    rate,
    rate,
    st.one_of(st.none(), st.floats(0, 10)),
)
size = st.lists(st.integers(0, 2000), max_size=3).map(tuple)
launch = st.builds(
    Launch,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["kernel", "copy", "operator"]),
    size,
    size,
    calls=st.sampled_from([0.0, 0.5, 1.0, 30.0]),
)
device = st.one_of(st.none(), st.sampled_from(all_specs()))
measured = st.one_of(st.none(), calibration)
launches = st.one_of(st.none(), st.lists(launch, max_size=3))
kernels = st.sampled_from([(), (VALU,), (replace(VALU, instructions={"matrix": 1}),)])


@given(
    figures,
    st.one_of(st.sampled_from([0.0, -1.0, float("nan"), float("inf")]), st.floats(1e-9, 1e9)),
    device,
    measured,
    launches,
    kernels,
)
def test_never_raises_and_always_has_a_reason(
    figures: WorkloadFigures,
    time_us: float,
    spec: DeviceSpec | None,
    ceilings: DeviceCeilings | None,
    launches: list[Launch] | None,
    code: tuple[KernelCode, ...],
) -> None:
    """Whatever is None or 0, there is a class, a sentence and a point; what is undecided says what would decide."""
    found = classify_bound(figures, time_us, spec=spec, ceilings=ceilings, launches=launches, code=code)
    assert found.reason
    assert found.point is not None
    assert found.decide or found.bound is not BoundClass.UNDECIDED


@given(figures, st.floats(1e-3, 1e7), st.floats(1.0, 100.0), device, measured, launches, kernels)
def test_a_slower_call_is_not_newly_bound_by_a_roof(
    figures: WorkloadFigures,
    time_us: float,
    factor: float,
    spec: DeviceSpec | None,
    ceilings: DeviceCeilings | None,
    launches: list[Launch] | None,
    code: tuple[KernelCode, ...],
) -> None:
    """The same work in more time is bound by compute or memory only if it was so before, impossible times apart."""
    fast = classify_bound(figures, time_us, spec=spec, ceilings=ceilings, launches=launches, code=code)
    slow = classify_bound(figures, time_us * factor, spec=spec, ceilings=ceilings, launches=launches, code=code)
    if slow.bound in (BoundClass.COMPUTE, BoundClass.MEMORY) and "impossible" not in fast.reason:
        assert fast.bound is slow.bound
