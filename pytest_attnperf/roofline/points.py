"""Places one call under a device's ceilings: its rates, the least time that they allow, and its share of that time.

A ceiling is a peak of the data sheet, or a rate that a calibration of this device reached. Shares are of the measured
one if there is one, because no kernel reaches the peak at the clock that a power limit leaves; the peak is listed with
it. Bytes are the compulsory ones, so a share of memory's ceiling is a lower bound of the traffic, never a utilisation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.environment.device_specs import BYTES_PER_MIB, FLOPS_PER_TFLOP, DeviceSpec
from pytest_attnperf.records import Launch, WorkloadFigures
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.records.rooflines import Ceiling, DeviceCeilings, RooflinePoint
from pytest_attnperf.roofline.floors import UNRELIABLE, US_PER_S

PEAK, MEASURED = "peak", "measured"
FLOPS, BYTES = "FLOP/s", "B/s"
DRAM, CACHE, VECTOR = "DRAM", "cache", "f32 vector"

UNKNOWN_CACHE_BYTES = 512 * BYTES_PER_MIB
"""Assumed size of an unknown last-level cache: twice the largest in the table of devices."""

VECTOR_GEMM = ("sm_", "gfx10", "gfx11", "gfx12")
"""Architectures without matrix instructions for full f32: their f32 GEMM shows what the vector units reach."""

_SHORT_FLOAT_PATHS = ("tf32", "xf32")


@dataclass(frozen=True)
class Roofs:
    """The ceilings that one call is compared with.

    compute, dram, cache   the ceilings of the shares; None if unknown
    every                  these and those of the data sheet
    vector                 True if the code is known to hold no matrix instruction
    cache_bytes            of the last-level cache; None if its size is unknown
    units                  compute units (multiprocessors); None if unknown
    arch                   '' if unknown
    launch_us              measured time of an empty kernel in a graph of many; None if not measured
    notes                  what was not used and why, a sentence each
    """

    compute: Ceiling | None = None
    dram: Ceiling | None = None
    cache: Ceiling | None = None
    every: tuple[Ceiling, ...] = ()
    vector: bool = False
    cache_bytes: float | None = None
    units: int | None = None
    arch: str = ""
    launch_us: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Traffic:
    """Where the compulsory bytes of a call must come from.

    total    each input and output once
    dram     bytes that must cross the memory bus: all of a cold call, of a hot one those beyond the last-level cache
    cached   True if all of them may be in the last-level cache
    """

    total: float
    dram: float
    cached: bool


def point_under(figures: WorkloadFigures, time_us: float, roofs: Roofs) -> RooflinePoint:
    """Returns a call's rates, intensity (FLOP per byte), least time under the ceilings, and the share that it is of
    `time_us`; what is unknown, or needs a positive time, is None."""
    flops, moved = positive_or_none(figures.flops), positive_or_none(figures.bytes_min)
    seconds = None if positive_or_none(time_us) is None else time_us / US_PER_S
    roof_us, roof = max(least_times(figures, roofs), default=(None, ""))
    return RooflinePoint(
        time_us=time_us,
        flops=figures.flops,
        bytes_min=figures.bytes_min,
        flops_per_s=flops / seconds if flops and seconds else None,
        bytes_per_s=moved / seconds if moved and seconds else None,
        intensity=flops / moved if flops and moved else None,
        roof_us=roof_us,
        roof=roof,
        share=roof_us / time_us if roof_us is not None and seconds else None,
        ceilings=roofs.every,
    )


def least_times(figures: WorkloadFigures, roofs: Roofs) -> list[tuple[float, str]]:
    """Returns (least microseconds, name of the ceiling) for compute and for memory or the cache, where known."""
    flops, traffic = positive_or_none(figures.flops), traffic_of(figures, roofs)
    found = [(flops, roofs.compute)] if flops else []
    if traffic is not None:
        found.append((traffic.total, roofs.cache) if traffic.cached else (traffic.dram, roofs.dram))
    return [(work / roof.rate * US_PER_S, name_ceiling(roof)) for work, roof in found if roof is not None and work]


def traffic_of(figures: WorkloadFigures, roofs: Roofs) -> Traffic | None:
    """Returns how many bytes of a call must cross the memory bus and whether all may be cached; None without bytes."""
    total = positive_or_none(figures.bytes_min)
    if total is None:
        return None
    if figures.cache_state != "hot":
        return Traffic(total, total, cached=False)
    room = UNKNOWN_CACHE_BYTES if roofs.cache_bytes is None else roofs.cache_bytes
    return Traffic(total, max(0.0, total - room), cached=total <= room)


def roofs_of(
    figures: WorkloadFigures,
    spec: DeviceSpec | None,
    ceilings: DeviceCeilings | None,
    code: Sequence[KernelCode] = (),
    launches: Sequence[Launch] | None = None,
) -> Roofs:
    """Returns the ceilings for a call: those calibrated on this device, or else those of a reliable data sheet."""
    vector = is_vector(code, launches)
    known, notes = _keep_reliable(spec)
    measured, unused = _keep_own_ceilings(ceilings, spec)
    compute = [_measured_compute(figures.dtype, known, measured, vector), _peak_compute(figures.dtype, known, vector)]
    dram = [_measured_dram(measured), _peak_dram(known)]
    beside = _peak_compute(figures.dtype, known, vector=False) if vector else None
    cache = _make_measured(measured.cache_bytes_per_s, BYTES, CACHE, measured) if measured else None
    size = known.last_level_cache_bytes if known else 0.0
    units = measured.compute_units if measured else spec.compute_units if spec else 0
    return Roofs(
        compute=next(filter(None, compute), None),
        dram=next(filter(None, dram), None),
        cache=cache,
        every=tuple(ceiling for ceiling in (*compute, beside, *dram, cache) if ceiling is not None),
        vector=vector,
        cache_bytes=size or None,
        units=units or None,
        arch=spec.arch if spec else measured.arch if measured else "",
        launch_us=positive_or_none(measured.launch_us) if measured else None,
        notes=(*notes, *unused),
    )


def is_vector(code: Sequence[KernelCode], launches: Sequence[Launch] | None = None) -> bool:
    """Tells whether the machine code of every kernel is known, and none holds a matrix instruction."""
    if not code or any(kernel.undecoded or not kernel.instructions for kernel in code):
        return False
    kernels = {launch.name for launch in launches or () if launch.kind == "kernel"}
    return len(kernels) <= len(code) and not any(kernel.instructions.get("matrix") for kernel in code)


def name_ceiling(ceiling: Ceiling) -> str:
    """Names a ceiling, e.g. 'f16 matrix, measured' or 'DRAM, peak'."""
    return f"{ceiling.what}, {ceiling.kind}"


def positive_or_none(value: float | None) -> float | None:
    """Returns the value if it is a positive finite number, else None."""
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _keep_reliable(spec: DeviceSpec | None) -> tuple[DeviceSpec | None, tuple[str, ...]]:
    if spec is None:
        return None, ()
    if spec.confidence == UNRELIABLE:
        return None, (f"the table's row of {spec.name} is unreliable ({spec.note or spec.source})",)
    return spec, ()


def _keep_own_ceilings(
    ceilings: DeviceCeilings | None, spec: DeviceSpec | None
) -> tuple[DeviceCeilings | None, tuple[str, ...]]:
    if ceilings is None or spec is None:
        return ceilings, ()
    wrong = [
        f"{what} {theirs} instead of {ours}"
        for what, ours, theirs, same in (
            ("arch", spec.arch, ceilings.arch, spec.arch == ceilings.arch),
            ("product", spec.products[0] if spec.products else "", ceilings.product, ceilings.product in spec.products),
            (
                "compute units",
                spec.compute_units,
                ceilings.compute_units,
                spec.compute_units == ceilings.compute_units,
            ),
        )
        if not same
    ]
    return (None, (f"the calibration is of another device: {', '.join(wrong)}",)) if wrong else (ceilings, ())


def _measured_compute(
    dtype: str, spec: DeviceSpec | None, measured: DeviceCeilings | None, vector: bool
) -> Ceiling | None:
    if measured is None:
        return None
    rates = measured.flops_per_s
    if vector:
        of_vector_units = measured.arch.startswith(VECTOR_GEMM)
        return _make_measured(rates.get("f32") if of_vector_units else None, FLOPS, VECTOR, measured)
    if dtype not in ("f32", "tf32"):
        return _make_measured(rates.get(dtype), FLOPS, f"{dtype} matrix", measured)
    # A full f32 GEMM is no ceiling for calls that may round their inputs to tf32 or xf32.
    key = "tf32" if "tf32" in rates or (spec is not None and spec.f32_path in _SHORT_FLOAT_PATHS) else "f32"
    return _make_measured(rates.get(key), FLOPS, _f32_path(spec) if spec else f"{key} matrix", measured)


def _measured_dram(measured: DeviceCeilings | None) -> Ceiling | None:
    if measured is None:
        return None
    # How much of a call's bytes is written is not known, so the faster of both is its upper limit.
    rates = [rate for rate in (measured.copy_bytes_per_s, measured.read_bytes_per_s) if positive_or_none(rate)]
    return _make_measured(max(filter(None, rates), default=None), BYTES, DRAM, measured)


def _make_measured(rate: float | None, unit: str, what: str, measured: DeviceCeilings) -> Ceiling | None:
    if positive_or_none(rate) is None or rate is None:
        return None
    source = f"calibration of {measured.product}, {measured.processes} processes"
    return Ceiling(rate, unit, MEASURED, what, f"{source}, {measured.measured}" if measured.measured else source)


def _peak_compute(dtype: str, spec: DeviceSpec | None, vector: bool) -> Ceiling | None:
    if spec is None:
        return None
    if vector:
        return _make_peak(
            (spec.f32_vector_tflops or 0.0) * FLOPS_PER_TFLOP, FLOPS, VECTOR, f"data sheet of {spec.name}"
        )
    at_most = spec.peak_flops(dtype)
    # Boards of some rows exceed their boost clock, so their maximum is unknown: the boost clock's rate is used instead.
    rate = at_most if at_most is not None else _boost_rate(dtype, spec)
    clock = f"{spec.max_mhz:.0f} MHz" if at_most is not None else "boost clock, which boards may exceed"
    path = _f32_path(spec) if dtype in ("f32", "tf32") else f"{dtype} matrix"
    return _make_peak(rate, FLOPS, path, f"data sheet of {spec.name}, {clock}")


def _f32_path(spec: DeviceSpec) -> str:
    """Names the fastest way to f32 results, e.g. 'tf32 matrix' or 'f32 (fp32 dual issue)'."""
    return f"{spec.f32_path} matrix" if spec.f32_path in _SHORT_FLOAT_PATHS else f"f32 ({spec.f32_path})"


def _boost_rate(dtype: str, spec: DeviceSpec) -> float | None:
    published = spec.f16_tflops if dtype in ("f16", "bf16") else None
    return replace(spec, max_mhz=spec.boost_mhz).peak_flops(dtype) or (published or 0.0) * FLOPS_PER_TFLOP


def _peak_dram(spec: DeviceSpec | None) -> Ceiling | None:
    return _make_peak(spec.peak_bytes_per_s, BYTES, DRAM, f"data sheet of {spec.name}") if spec else None


def _make_peak(rate: float | None, unit: str, what: str, source: str) -> Ceiling | None:
    return None if positive_or_none(rate) is None or rate is None else Ceiling(rate, unit, PEAK, what, source)
