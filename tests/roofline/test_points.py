from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.environment.device_specs import DeviceSpec, all_specs
from pytest_attnperf.records import Launch, WorkloadFigures
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.records.rooflines import Ceiling, DeviceCeilings, RooflinePoint
from pytest_attnperf.roofline.points import is_vector, point_under, roofs_of

SPECS = {spec.name: spec for spec in all_specs()}
H200 = SPECS["H200 SXM"]
MEASURED = DeviceCeilings(
    "sm_90",
    "h200",
    132,
    flops_per_s={"f16": 760e12, "f32": 50e12},
    copy_bytes_per_s=4.2e12,
    read_bytes_per_s=4.4e12,
    cache_bytes_per_s=7e12,
    launch_us=2.0,
    processes=3,
    measured="2026-11-22",
)
GEMM = WorkloadFigures(2 * 8192**3, 3 * 8192**2 * 2, "f16", "hot")


def kernel(name: str = "attention", undecoded: str = "", **counts: int) -> KernelCode:
    """A kernel with these counts of instructions."""
    sizes = dict.fromkeys(("vgprs", "agprs", "unified_vgprs", "sgprs", "vgpr_spills", "sgpr_spills"), 0)
    memory = dict.fromkeys(("scratch_bytes", "lds_static_bytes", "lds_dynamic_bytes", "kernarg_bytes"), 0)
    rest = {"threads": 128, "max_threads": 128, "wave_size": 32, "wgp_mode": None, "dynamic_stack": False}
    code = {"code_bytes": 100, "isa_hash": "", "instructions": counts, "undecoded": undecoded}
    return KernelCode(name=name, arch="sm_90", **sizes, **memory, **rest, **code)  # type: ignore[arg-type]


def point_of(
    figures: WorkloadFigures, time_us: float, spec: DeviceSpec | None, ceilings: DeviceCeilings | None = None
) -> RooflinePoint:
    """The point of one call under what is known of a device."""
    return point_under(figures, time_us, roofs_of(figures, spec, ceilings))


def used(figures: WorkloadFigures, spec: DeviceSpec | None, *args: object) -> list[tuple[str, str, float]]:
    """(kind, what, rate) of the compute, memory and cache ceilings that shares are of."""
    roofs = roofs_of(figures, spec, *args)  # type: ignore[arg-type]
    ceilings: tuple[Ceiling | None, ...] = (roofs.compute, roofs.dram, roofs.cache)
    return [(ceiling.kind, ceiling.what, ceiling.rate) for ceiling in ceilings if ceiling is not None]


def test_rates_intensity_and_share_of_the_data_sheet() -> None:
    """8192^3 in 1.45 ms are 758 TFLOP/s at 2731 FLOP per byte, 71 % of what 1980 MHz allow."""
    point = point_of(GEMM, 1450.0, spec=H200)
    assert point.flops_per_s == pytest.approx(758.3e12, rel=1e-3)
    assert point.intensity == pytest.approx(2730.7, rel=1e-3)
    assert point.share == pytest.approx(758.3 / 1070.5, rel=1e-3)
    assert point.roof == "f16 matrix, peak"
    assert point.roof_us == pytest.approx(1450.0 * (point.share or 0))


def test_a_measured_ceiling_is_the_roof_and_the_peak_stays_beside_it() -> None:
    """With a calibration of this device shares are of what it reached, and the data sheet's figures are kept."""
    point = point_of(GEMM, 1450.0, spec=H200, ceilings=MEASURED)
    assert point.roof == "f16 matrix, measured"
    assert point.share == pytest.approx(758.3 / 760, rel=1e-3)
    assert [(ceiling.kind, ceiling.what) for ceiling in point.ceilings] == [
        ("measured", "f16 matrix"),
        ("peak", "f16 matrix"),
        ("measured", "DRAM"),
        ("peak", "DRAM"),
        ("measured", "cache"),
    ]
    assert point.ceilings[0].source == "calibration of h200, 3 processes, 2026-11-22"


def test_the_faster_of_copying_and_reading_is_memorys_ceiling() -> None:
    """A call may only read, so reading counts where it is the faster one."""
    assert ("measured", "DRAM", 4.4e12) in used(GEMM, H200, MEASURED)
    assert ("measured", "DRAM", 4.2e12) in used(GEMM, H200, replace(MEASURED, read_bytes_per_s=None))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arch": "sm_80"}, "arch sm_80 instead of sm_90"),
        ({"product": "h100-80gb-hbm3"}, "product h100-80gb-hbm3 instead of h200"),
        ({"compute_units": 66}, "compute units 66 instead of 132"),
    ],
)
def test_a_calibration_of_another_device_is_not_used(changes: dict[str, object], said: str) -> None:
    """Shares are of the data sheet then, and a note says what differs."""
    foreign = replace(MEASURED, **changes)  # type: ignore[arg-type]
    roofs = roofs_of(GEMM, H200, foreign)
    assert roofs.compute is not None
    assert roofs.compute.kind == "peak"
    assert roofs.cache is None
    assert roofs.launch_us is None
    assert roofs.notes == (f"the calibration is of another device: {said}",)


def test_a_calibration_serves_a_device_without_a_row() -> None:
    """A partitioned card has no data sheet, and what it was measured to reach counts alone."""
    assert used(GEMM, None, MEASURED) == [
        ("measured", "f16 matrix", 760e12),
        ("measured", "DRAM", 4.4e12),
        ("measured", "cache", 7e12),
    ]


def test_code_without_matrix_instructions_has_the_vector_units_roof() -> None:
    """The vendor's f32 vector rate is the roof; the matrix peak that the kernel leaves alone stays beside it."""
    roofs = roofs_of(GEMM, H200, None, [kernel(valu=10)])
    assert roofs.vector
    assert (roofs.compute.what, roofs.compute.rate) == ("f32 vector", 67e12) if roofs.compute else False
    assert "f16 matrix" in {ceiling.what for ceiling in roofs.every}


def test_an_f32_gemm_measures_vector_units_where_there_is_no_f32_matrix_instruction() -> None:
    """So it does on an H200, and does not on an MI300X, whose f32 GEMM runs on matrix units."""
    code = [kernel(valu=10)]
    assert ("measured", "f32 vector", 50e12) in used(GEMM, H200, MEASURED, code)
    mi300x = replace(MEASURED, arch="gfx942", product="mi300x", compute_units=304)
    assert ("peak", "f32 vector", 163.4e12) in used(GEMM, SPECS["MI300X"], mi300x, code)


@pytest.mark.parametrize(
    ("code", "launches"),
    [
        ([], None),
        ([kernel(matrix=1, valu=10)], None),
        ([kernel(valu=10), kernel("gemm", matrix=4)], None),
        ([kernel(valu=10, undecoded="no nvdisasm")], None),
        ([kernel()], None),
        ([kernel(valu=10)], [Launch("attention"), Launch("cublas_gemm")]),
    ],
    ids=["none", "matrix", "one of two", "undecoded", "empty", "a kernel without code"],
)
def test_unknown_code_counts_as_matrix(code: list[KernelCode], launches: list[Launch] | None) -> None:
    """Only where every kernel's code is known to hold no matrix instruction is the lower roof taken."""
    assert not is_vector(code, launches)


def test_copies_and_operators_have_no_code_to_know() -> None:
    """Work that is no kernel does not hinder the vector roof."""
    assert is_vector([kernel(valu=10)], [Launch("attention"), Launch("", "copy"), Launch("fill", "set")])


def test_f32_counts_tf32() -> None:
    """A full f32 GEMM is no ceiling of calls that may use tf32; a tf32 GEMM is."""
    call = replace(GEMM, dtype="f32")
    assert used(call, H200, MEASURED)[0][:2] == ("peak", "tf32 matrix")
    with_tf32 = replace(MEASURED, flops_per_s={"f32": 50e12, "tf32": 400e12})
    assert used(call, H200, with_tf32)[0] == ("measured", "tf32 matrix", 400e12)
    assert len({ceiling.what for ceiling in roofs_of(call, H200, with_tf32).every}) == 3
    mi210 = replace(MEASURED, arch="gfx90a", product="mi210", compute_units=104)
    assert used(call, SPECS["MI210"], mi210)[0] == ("measured", "f32 (fp32 matrix and packed fp32)", 50e12)


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("RX 7900 XTX", "f16", 122.8),
        ("Radeon 8060S (Ryzen AI Max+ 395)", "bf16", 59.4),
        ("B200 (HGX, 1 kW)", "f16", 2250.0),
    ],
)
def test_boost_clock_where_no_maximum_is_known(name: str, dtype: str, tflops: float) -> None:
    """A board whose maximum clock is not stated has its data sheet's rate as a yardstick, and the source says so."""
    roofs = roofs_of(replace(GEMM, dtype=dtype), SPECS[name], None)
    assert roofs.compute is not None
    assert roofs.compute.rate == pytest.approx(tflops * 1e12, rel=2e-3)
    assert roofs.compute.source.endswith("boost clock, which boards may exceed")


def test_an_unreliable_row_gives_no_ceiling() -> None:
    """MI308X has no published peaks, so nothing is a share of them; the note says why."""
    roofs = roofs_of(GEMM, SPECS["MI308X"], None)
    assert (roofs.compute, roofs.dram, roofs.cache_bytes) == (None, None, None)
    assert roofs.notes[0].startswith("the table's row of MI308X is unreliable (80 CU bin")


def test_hot_bytes_that_fit_the_cache_have_no_memory_roof() -> None:
    """Compute alone bounds such a call, until the cache itself was measured."""
    call = WorkloadFigures(1e6, 7e6, "f16", "hot")
    assert point_of(call, 10.0, spec=H200).roof == "f16 matrix, peak"
    found = point_of(call, 10.0, spec=H200, ceilings=MEASURED)
    assert (found.roof, found.roof_us) == ("cache, measured", pytest.approx(1.0))


def test_hot_bytes_beyond_the_cache_must_come_from_memory() -> None:
    """A hot call moves what exceeds 60 MiB; a cold one everything."""
    total = 60 * 2**20 + 4814.3e6
    hot = point_of(WorkloadFigures(None, total, "f16", "hot"), 2000.0, spec=H200)
    cold = point_of(WorkloadFigures(None, total, "f16", "cold"), 2000.0, spec=H200)
    assert hot.roof_us == pytest.approx(1000.0)
    assert cold.roof_us == pytest.approx(1000.0 * total / 4814.3e6)


def test_nothing_known_gives_an_empty_point() -> None:
    """Without work or time there is no rate, and without a device no roof."""
    point = point_of(WorkloadFigures(None, 0.0, "f16", "hot"), 0.0, spec=None)
    assert (point.flops_per_s, point.bytes_per_s, point.intensity, point.roof_us, point.share) == (None,) * 5
    assert point.ceilings == ()
