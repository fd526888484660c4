"""Frozen data of the roofline: ceilings of a device, a point below them, and what bounds it. Standard library only."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class BoundClass(str, enum.Enum):
    """What bounds a kernel."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LATENCY = "latency/launch"
    OCCUPANCY = "occupancy"
    CACHE = "cache-resident"
    UNDECIDED = "not decidable from this data"


@dataclass(frozen=True)
class Ceiling:
    """A rate that a device cannot exceed, or never did. unit: 'FLOP/s' or 'B/s'.

    kind     'peak' (data sheet, maximum clock) or 'measured' (a calibration)
    what     'f16 matrix', 'f32 vector', 'DRAM', 'cache'
    source   origin of the figure, with the device
    """

    rate: float
    unit: str
    kind: str
    what: str
    source: str = ""


@dataclass(frozen=True)
class RooflinePoint:
    """One call in the roofline diagram. FLOPs are useful FLOPs, bytes the compulsory ones (each input and output once).

    intensity       FLOP per byte; None without bytes
    roof_us         the least time by these ceilings, and `roof` which of them sets it
    share           roof_us / time_us: the share of its own roof that the call reaches
    """

    time_us: float
    flops: float | None
    bytes_min: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    intensity: float | None
    roof_us: float | None = None
    roof: str = ""
    share: float | None = None
    ceilings: tuple[Ceiling, ...] = ()


@dataclass(frozen=True)
class BoundVerdict:
    """What bounds a call, why, and what would decide it where this data does not.

    reason       the evidence in figures
    decide       the measurement that would decide it, or would confirm it; '' where nothing is open
    impossible   the time contradicts a peak, so nothing can be concluded
    """

    bound: BoundClass
    reason: str
    decide: str = ""
    point: RooflinePoint | None = None
    impossible: bool = False


@dataclass(frozen=True)
class KernelBound:
    """What bounds these kernels together.

    name      the work and its kernels
    time_us   of one call: steady medians of the kernels, each as often as it runs per call
    note      how calls were counted where the kernels do not run equally often; '' where they do
    """

    name: str
    time_us: float
    verdict: BoundVerdict
    note: str = ""


@dataclass(frozen=True)
class DeviceCeilings:
    """The measured ceilings of one device (`attnperf doctor --calibrate`): plateaus, not data sheet peaks.

    arch, product, compute_units   of the device, as in `DeviceInfo`
    flops_per_s        of the fastest square GEMM by dtype ('f16', 'bf16', 'f32', 'tf32', ...)
    copy_bytes_per_s   read and written, of copies far larger than every cache; `read_bytes_per_s` of reading alone
    cache_bytes_per_s  read and written, of the fastest copy within the last-level cache
    launch_us          time of one empty kernel in a graph of many
    eager_launch_us    time per call of an empty kernel, called repeatedly from Python
    sizes              at which each plateau was reached, as text
    processes          number of fresh processes; every figure is their median
    spread             slowest / fastest - 1 of those processes, by figure
    """

    arch: str
    product: str
    compute_units: int
    flops_per_s: dict[str, float] = field(default_factory=dict)
    copy_bytes_per_s: float | None = None
    read_bytes_per_s: float | None = None
    cache_bytes_per_s: float | None = None
    launch_us: float | None = None
    eager_launch_us: float | None = None
    sizes: dict[str, str] = field(default_factory=dict)
    spread: dict[str, float] = field(default_factory=dict)
    processes: int = 0
    software: dict[str, str] = field(default_factory=dict)
    measured: str = ""
