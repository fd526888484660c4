"""Classifies what limits a call: memory, compute, latency, occupancy or the cache; or why this is undecided.

The rules and constants of `bound_rules` decide in this order:

1. A time that contradicts a peak (beyond 103 % of it) is UNDECIDED, 'impossible'.
2. COMPUTE, MEMORY, CACHE: the call reaches most of a roof. First, because whatever else is true of such a call (few
   workgroups, launches), it cannot become much faster without doing less of this.
3. LATENCY: launches take half of the time, or the work is too small for roofs and width to matter. Before
   OCCUPANCY, because a tiny call that fills little of the device would not become faster by filling more of it.
4. OCCUPANCY: part of the device is idle and the rest is busy.
5. UNDECIDED: FLOPs, bytes, time and launches are not enough; counters would decide.

A call that takes longer with the same work only loses evidence for 2. So a slower kernel is never called bound by
compute or memory if a faster one was not.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.records import Launch, WorkloadFigures
from pytest_attnperf.records.code import KernelCode, Occupancy
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, Ceiling, DeviceCeilings
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.roofline.bound_evidence import (
    RDNA,
    Evidence,
    collect_evidence,
    format_ceiling,
    format_launches,
    format_share_of_ceiling,
)
from pytest_attnperf.roofline.bound_rules import (
    ASSUMED_LAUNCH_US,
    DECIDING,
    FEW_LAUNCH_TIMES,
    NEAR,
    beyond_reason,
    compute_threshold,
    format_roof,
    has_idle_width,
    is_near_ridge,
    memory_threshold,
)
from pytest_attnperf.roofline.points import FLOPS, VECTOR, point_under, positive_or_none, roofs_of

CALIBRATE = "attnperf doctor --calibrate"

COUNTERS_NVIDIA = (
    "Nsight Compute counters: dram__bytes.sum and lts__t_bytes.sum (bytes from memory and L2), "
    "sm__pipe_tensor_cycles_active (matrix units busy), l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum (shared "
    "memory conflicts), sm__warps_active (resident waves)"
)
COUNTERS_CDNA = (
    "rocprofv3 --pmc counters: FETCH_SIZE and WRITE_SIZE (bytes from memory), TCC_HIT_sum and TCC_MISS_sum (L2), "
    "MfmaUtil (matrix units busy), LDSBankConflict, OccupancyPercent (resident waves)"
)
COUNTERS_RDNA = (
    "rocprofv3 --pmc counters: GL2C_HIT_sum and GL2C_MISS_sum (L2), SQ_INSTS_VALU, SQ_WAIT_INST_ANY, SQ_WAVES and "
    "SQ_BUSY_CYCLES, as far as rocprofv3-avail lists them for this device"
)
COUNTERS = "counters of bytes from memory and L2, matrix units busy, LDS conflicts and resident waves"

STALLS_NVIDIA = (
    "warp states of Nsight Compute: smsp__average_warps_issue_stalled_wait_per_issue_active.ratio and its "
    "short_scoreboard (results of arithmetic and of shared memory), against long_scoreboard (memory) and barrier"
)
STALLS_AMD = (
    "a thread trace (rocprofv3 --att), which shows how long each instruction of a wave stalls and on what, or "
    "SQ_WAIT_INST_ANY over SQ_WAVE_CYCLES, as far as rocprofv3-avail lists them for this device"
)
STALLS = "how long each instruction of a wave stalls, and on what"
REGROUPED = "whether the same work becomes faster with more independent instructions in a wave"

PROOF = "whether the work is really done (the correctness check of the same call), and the time by another timer"


def classify_bound(
    figures: WorkloadFigures,
    time_us: float,
    *,
    spec: DeviceSpec | None,
    ceilings: DeviceCeilings | None = None,
    launches: Sequence[Launch] | None = None,
    code: Sequence[KernelCode] = (),
    occupancy: Occupancy | None = None,
) -> BoundVerdict:
    """Classifies what limits one call of this work in this time, with the reason and what would confirm it.

    spec        of the device; None if the table has no row for it, e.g. for a partitioned card
    ceilings    measured on this device; those of another arch, product or size are ignored, with a note
    launches    of one call; None if unknown
    code        of its kernels: if none holds a matrix instruction, the vector rate is the roof
    occupancy   of its main kernel, for the reason
    """
    roofs = roofs_of(figures, spec, ceilings, code, launches)
    point = point_under(figures, time_us, roofs)
    if positive_or_none(time_us) is None:
        return BoundVerdict(BoundClass.UNDECIDED, f"a time of {time_us} us is invalid", "a time of this call", point)
    seen = collect_evidence(figures, time_us, roofs, launches, code, occupancy)
    if beyond := beyond_reason(seen):
        return BoundVerdict(BoundClass.UNDECIDED, _join_reasons(seen, beyond), PROOF, point, impossible=True)
    for bound, rule in DECIDING:
        if reason := rule(seen):
            return BoundVerdict(
                bound,
                _join_reasons(seen, reason, *_list_remarks(bound, seen)),
                _describe_confirmation(bound, seen),
                point,
            )
    return BoundVerdict(
        BoundClass.UNDECIDED, _join_reasons(seen, *_list_reasons_against(seen)), _describe_next_measurement(seen), point
    )


def counters_of(arch: str) -> str:
    """Returns which profiler counters show what a kernel waits for, as text, for the vendor and family of `arch`."""
    if arch.startswith("sm_"):
        return COUNTERS_NVIDIA
    if arch.startswith(RDNA):
        return COUNTERS_RDNA
    return COUNTERS_CDNA if arch.startswith("gfx") else COUNTERS


def stalls_of(arch: str) -> str:
    """Returns what shows that instructions wait for one another, as text, for the vendor of `arch`. Times, work and
    launches alone never show it."""
    shown = STALLS_NVIDIA if arch.startswith("sm_") else STALLS_AMD if arch.startswith("gfx") else STALLS
    return f"{shown}; {REGROUPED}"


def _join_reasons(seen: Evidence, *parts: str) -> str:
    return "; ".join((*parts, *seen.roofs.notes))


def _list_remarks(bound: BoundClass, seen: Evidence) -> list[str]:
    """Lists remarks on a call of class `bound`: it uses no matrix instruction, is near both ceilings, idles units."""
    said = _no_matrix(seen)
    if bound in (BoundClass.COMPUTE, BoundClass.MEMORY) and is_near_ridge(seen):
        said.append("near the ridge: the call is near both roofs, so doing less for one alone gains little")
    if bound in (BoundClass.COMPUTE, BoundClass.MEMORY) and has_idle_width(seen.width):
        said.append(f"although {seen.width} do not fill the device")
    return said


def _no_matrix(seen: Evidence) -> list[str]:
    """Returns a remark with the matrix units' peak if vector units do work that matrix units could do, else []."""
    if not seen.roofs.vector or seen.compute is None:
        return []
    faster = [other for other in seen.roofs.every if other.unit == FLOPS and other.what != VECTOR]
    return [f"no kernel holds a matrix instruction, whose roof is {format_ceiling(roof)}" for roof in faster]


def _describe_confirmation(bound: BoundClass, seen: Evidence) -> str:
    """Returns what would confirm OCCUPANCY, or CACHE or LATENCY on an uncalibrated device, as text; else ''."""
    if bound is BoundClass.CACHE and seen.cache is None:
        return f"{CALIBRATE} (the cache's own ceiling), and {PROOF}"
    if bound is BoundClass.LATENCY and seen.launch_us is None:
        return f"{CALIBRATE} (what a launch takes)"
    if bound is BoundClass.OCCUPANCY:
        return "the same work in more workgroups (smaller tiles, a split over keys or heads)"
    return ""


def _list_reasons_against(seen: Evidence) -> list[str]:
    """Lists why the call is UNDECIDED: missing figures, shares with their thresholds, idle units, launches."""
    said = [*_list_missing_figures(seen), *_list_shares(seen), *_no_matrix(seen), *_hot_bytes(seen)]
    if has_idle_width(seen.width):
        said.append(
            f"{seen.width} use {format_share_of_ceiling(seen.width.of_simds)} of the device" if seen.width else ""
        )
    if seen.occupancy is not None and seen.occupancy.limiters:
        fit = f"{seen.occupancy.whole_waves_per_simd:g} of {seen.occupancy.max_waves_per_simd} waves fit a SIMD"
        said.append(f"{fit} (limited by {', '.join(seen.occupancy.limiters)})")
    if seen.launch_us is not None:
        total = seen.launches * seen.launch_us
        said.append(f"{format_launches(seen)}: {format_share_of_ceiling(total / seen.time_us)} of the time")
    elif seen.on_gpu and seen.time_us <= FEW_LAUNCH_TIMES * ASSUMED_LAUNCH_US * seen.launches:
        said.append(
            f"{format_launches(seen)} may take much of {format_time(seen.time_us)}; a launch's time was not measured"
        )
    return said or ["no figure of this call decides"]


def _list_missing_figures(seen: Evidence) -> list[str]:
    """Lists a text for each missing figure: FLOPs or bytes of the work, peaks or rates of the device."""
    flops, moved = positive_or_none(seen.figures.flops), positive_or_none(seen.figures.bytes_min)
    said = []
    if flops is None and moved is None:
        said.append("the workload gives neither FLOPs nor bytes")
    elif flops is None or moved is None:
        said.append(f"the workload gives no {'FLOPs' if flops is None else 'bytes'}")
    if not seen.on_gpu:
        said.append("these are operators on a CPU, which has no known ceiling")
    elif seen.roofs.compute is None and seen.roofs.dram is None:
        said.append("no peak of this device is known (no row of the table, or a partitioned card), nor a calibration")
    elif seen.roofs.compute is None and flops is not None:
        said.append(f"no {VECTOR if seen.roofs.vector else seen.figures.dtype or 'unknown dtype'} rate is known")
    return said


def _list_shares(seen: Evidence) -> list[str]:
    """Lists a text for each known share of the compute and memory ceiling that the call reaches, with its threshold."""
    said = []
    if seen.compute is not None and seen.roofs.compute is not None:
        said.append(
            _format_share_against(seen, seen.roofs.compute, seen.compute, compute_threshold(seen.roofs.compute))
        )
    if seen.dram and seen.roofs.dram is not None:
        said.append(_format_share_against(seen, seen.roofs.dram, seen.dram, memory_threshold(seen.roofs.dram)))
    if seen.compute and seen.rival and min(seen.compute, seen.rival) >= NEAR * max(seen.compute, seen.rival):
        said.append("both shares are similar: this intensity is near the ridge")
    return said


def _format_share_against(seen: Evidence, ceiling: Ceiling, share: float, threshold: float) -> str:
    verb = "the threshold is" if share < threshold else "enough, but the other share is larger; the threshold is"
    return f"{format_roof(seen, ceiling, share)} ({verb} {format_share_of_ceiling(threshold)})"


def _hot_bytes(seen: Evidence) -> list[str]:
    """Returns a text if bytes of a hot call may come from a cache, which makes memory's share uncertain; else []."""
    traffic = seen.traffic
    if traffic is None or traffic.dram == traffic.total or seen.dram_most is None:
        return []
    room = seen.roofs.cache_bytes
    cache = f"the {room / 2**20:.0f} MiB last-level cache" if room else "a last-level cache of unknown size"
    all_of_them = (
        f"its {traffic.total / 1e6:.4g} MB would be {format_share_of_ceiling(seen.dram_most)} of memory's rate"
    )
    if traffic.cached:
        measured = "" if seen.cache is None else f", and are {format_share_of_ceiling(seen.cache)} of the cache's"
        return [f"{all_of_them}, but {'fit' if room else 'may be in'} {cache}{measured}"]
    return [f"{all_of_them}, but part of them may be in {cache}"]


def _describe_next_measurement(seen: Evidence) -> str:
    """Returns what would decide an UNDECIDED call: a calibration, FLOPs, counters, or on a CPU a run on a GPU."""
    if not seen.on_gpu:
        return "a run on a GPU"
    wanted = []
    if seen.roofs.compute is None or seen.roofs.dram is None or seen.launch_us is None:
        wanted.append(CALIBRATE)
    if seen.figures.flops is None:
        wanted.append("the FLOPs of this workload")
    return "; ".join((*wanted, counters_of(seen.roofs.arch)))
