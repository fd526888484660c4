"""Frozen data of profiles: what profilers recorded, and conclusions from it. Standard library only.

Times are integer nanoseconds, as every profiler writes them. What a profiler does not report is None, never 0. Shares
are of the GPU's busy time: the durations of all kernels, copies and memory sets added up.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from pytest_attnperf.records import Launch
from pytest_attnperf.records.code import Occupancy
from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.rooflines import BoundVerdict

Size3 = tuple[int, int, int]


@dataclass(frozen=True)
class KernelShape:
    """The common properties of all dispatches of one kernel with the same sizes.

    name            as the profiler wrote it, without '.kd' and ' [clone .kd]'; of a copy its direction
    kind            'kernel', 'copy' or 'set'
    agent           the device as the file names it ('Agent 4', '8'), '' where it does not
    workgroup       threads of a workgroup (block) in x, y, z
    grid_items      WORK-ITEMS of the launch in x, y, z, as rocprofv3 counts; not workgroups
    lds_bytes       LDS (shared memory) of a workgroup by the profiler; see `caveats` in `ShapeTime`
    scratch_bytes   private memory per work-item
    vgprs           VGPRs per lane as ALLOCATED, in granules (registers per thread on NVIDIA)
    accum_vgprs     AccVGPRs per lane, the same
    sgprs           SGPRs per wave, the same; a constant 128 on gfx10 and later
    bytes           of a copy or a memory set
    """

    name: str
    kind: str = "kernel"
    agent: str = ""
    workgroup: Size3 | None = None
    grid_items: Size3 | None = None
    lds_bytes: int | None = None
    scratch_bytes: int | None = None
    vgprs: int | None = None
    accum_vgprs: int | None = None
    sgprs: int | None = None
    bytes: int | None = None

    @property
    def threads(self) -> int | None:
        """Number of threads of a workgroup; None if its size is not known."""
        return None if self.workgroup is None else self.workgroup[0] * self.workgroup[1] * self.workgroup[2]

    @property
    def grid(self) -> Size3 | None:
        """Number of workgroups in x, y, z, partial ones counted as whole; None if sizes are not known or 0."""
        if self.workgroup is None or self.grid_items is None or 0 in self.workgroup:
            return None
        x, y, z = (-(-items // size) for items, size in zip(self.grid_items, self.workgroup, strict=True))
        return x, y, z

    @property
    def workgroups(self) -> int | None:
        """Number of workgroups of the launch; None where sizes are not known."""
        return None if self.grid is None else self.grid[0] * self.grid[1] * self.grid[2]

    def as_launch(self, calls: float) -> Launch:
        """Returns this kernel and size as a `Launch` that happens `calls` times per call of the case."""
        block = self.workgroup or () if self.grid is not None else ()
        return Launch(self.name, self.kind, self.grid or (), block, self.lds_bytes or 0, calls)


@dataclass(frozen=True)
class Spread:
    """Durations of several dispatches in nanoseconds. A stats file gives no median and no quartiles: these are None."""

    calls: int
    total_ns: int
    median_ns: float | None = None
    q1_ns: float | None = None
    q3_ns: float | None = None
    min_ns: int | None = None
    max_ns: int | None = None
    stddev_ns: float | None = None

    @property
    def mean_ns(self) -> float | None:
        """Mean duration of a dispatch in nanoseconds; None without calls."""
        return self.total_ns / self.calls if self.calls else None

    @property
    def cv(self) -> float | None:
        """Coefficient of variation: standard deviation (n-1) / mean; None where either is not known."""
        mean = self.mean_ns
        return self.stddev_ns / mean if self.stddev_ns is not None and mean else None


@dataclass(frozen=True)
class ProfileSource:
    """One file (or live profiler) that was read.

    form      'rocprofv3 kernel_trace', 'rocprofv3 kernel_stats', 'rocpd', 'rocprof v1 results', 'torch.profiler', ...
    version   of the program that wrote it, by its columns ('ROCm 7.0 or later'); '' where not known
    rows      number of rows that were used
    """

    path: str
    form: str
    version: str = ""
    rows: int = 0


@dataclass(frozen=True)
class Problem:
    """Something in a file that could not be used.

    text    what, the value seen, and what was expected
    used    the part of the file that is still used; '' where none is
    line    counted from 1, including the column names; None for the file as a whole
    """

    path: str
    text: str
    used: str = ""
    line: int | None = None
    column: str = ""

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.path, self.line) if part is not None)
        column = f" column {self.column}:" if self.column else ""
        return f"{where}:{column} {self.text}" + (f"; {self.used}" if self.used else "")


@dataclass(frozen=True)
class Agent:
    """One device of a profile, from agent_info, rocpd or torch. `name` as files refer to it ('Agent 4', '8'); `arch`
    (gfx942, sm_90) and `product` (marketing name) are '' where they are not known."""

    name: str
    kind: str = "gpu"
    arch: str = ""
    product: str = ""
    compute_units: int | None = None
    wave_size: int | None = None


@dataclass(frozen=True)
class StatsRow:
    """One row of a *_stats file, or of an API trace summed up. `domain` is 'kernel', 'copy', 'api' or 'domain'."""

    domain: str
    name: str
    spread: Spread
    percentage: float | None = None


@dataclass(frozen=True)
class ShapeTime:
    """One kernel at one launch size: its time, its resources, and how many waves fit.

    occupancy   calculated from the resources, an upper bound; None where they or the architecture do not suffice
    caveats     limitations of these resource figures, a sentence each
    """

    shape: KernelShape
    spread: Spread
    occupancy: Occupancy | None = None
    caveats: tuple[str, ...] = ()


class Confidence(str, enum.Enum):
    """How sure a kernel's family is: by its name, with no evidence against it; by evidence against the one in its name;
    by its name, with some evidence against it."""

    SURE = "sure"
    LIKELY = "likely"
    DOUBTFUL = "doubtful"


@dataclass(frozen=True)
class KernelTime:
    """One kernel (or direction of copying), all sizes together.

    spread     of all dispatches
    steady     of those after the warm-up; None where all are warm-up, or the order is not known (stats files)
    first_ns   duration of the first dispatch; None where the order is not known
    share      of all GPU time
    confidence, evidence   how sure the family is, and what is against the one in the kernel's name
    """

    name: str
    family: str
    kind: str
    spread: Spread
    share: float
    steady: Spread | None = None
    first_ns: int | None = None
    shapes: tuple[ShapeTime, ...] = ()
    confidence: Confidence = Confidence.SURE
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class FamilyTime:
    """Kernels of one family. `nature` is 'compute', 'conversion', 'copy' (between or on devices), 'fill',
    'communication' or 'other': what a kernel really does, even if the runtime calls it memory work."""

    family: str
    nature: str
    kernels: int
    calls: int
    total_ns: int
    share: float


@dataclass(frozen=True)
class Gain:
    """Amdahl's law for one kernel or family, exact.

    limit         gain of the whole if this took no time: 1 / (1 - share) - 1
    partial       (gain of this alone, what the whole then gains), each as a fraction: +4 % of 1.5 % is +0.06 %
    """

    name: str
    share: float
    limit: float
    partial: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class ForwardPasses:
    """How many forward passes (steps) a profile has, inferred from counts of calls.

    count       None where nothing fits
    layers      number of layers, in each of which some kernels run once per pass; given or inferred
    how         the reasoning as text
    odd         'kernel: 113 calls do not divide by 5 passes' for every kernel that does not fit
    """

    count: int | None
    how: str
    layers: int | None = None
    odd: tuple[str, ...] = ()


class PhaseKind(str, enum.Enum):
    """What a stretch of a trace is, by its place and its kernels."""

    LOADING = "loading"
    """Before the passes, without attention."""
    BEFORE = "before"
    """Before the passes, with attention: a prefill or a warm-up."""
    PASSES = "passes"
    """From the first pass to the end of the last, what stands between them included."""
    AFTER = "after"


@dataclass(frozen=True)
class PhaseTime:
    """One phase of a trace.

    calls, total_ns   dispatches in it, and the sum of their durations
    span_ns, busy_ns   from the first start to the last end, and the time in which at least one ran
    families          kernels by family, with shares of `total_ns`
    idle_shares       of each pass in the phase of the passes, the share of its span in which nothing ran; else ()
    """

    kind: PhaseKind
    calls: int
    total_ns: int
    span_ns: int
    busy_ns: int
    families: tuple[FamilyTime, ...] = ()
    idle_shares: tuple[float, ...] = ()

    @property
    def idle_share(self) -> float:
        """Share of the span in which nothing ran; 0 for an empty one."""
        return 1 - self.busy_ns / self.span_ns if self.span_ns else 0.0


@dataclass(frozen=True)
class FirstCalls:
    """The extra time of the first dispatches compared with steady state.

    excess_ns     by which the first dispatches exceed their kernels' medians of the rest, added up
    host_ns       host time by its use ('allocation', 'loading and compiling', ...), from API stats or traces
    before_ns     from the start of the profile's clock to the first dispatch, where an API trace has it; else None
    """

    excess_ns: int
    kernels: int
    host_ns: dict[str, int] = field(default_factory=dict)
    before_ns: int | None = None


@dataclass(frozen=True)
class ProfileFinding:
    """A contradiction, or a checked claim.

    rule      name of the rule
    holds     True: checked, and it is right; False: contradicted; None: cannot be checked from what is given
    said      the claim or figure as given
    should    what it should be, or what contradicts it; '' where it holds
    text      the whole sentence
    """

    rule: str
    holds: bool | None
    said: str
    should: str
    text: str


@dataclass(frozen=True)
class Advice:
    """A recommendation, its evidence in figures of this profile, and the most it could gain overall, as a fraction."""

    text: str
    evidence: str
    gain: float | None = None


@dataclass(frozen=True)
class ProfileSummary:
    """All conclusions from one profile.

    total_ns      durations of all kernels, copies and sets added up; `busy_ns` the time in which at least one ran;
                  `span_ns` from the first start to the last end; None where there is no trace
    warm_up       how many dispatches count as warm-up, and why, as text
    phases        what stands before, in and after the passes; () if nothing stands outside them, or none are known
    in_passes     the same for the phase of the passes alone, which advice is about; None without phases
    is_part       whether this is such a part
    """

    name: str
    sources: tuple[ProfileSource, ...]
    agents: tuple[Agent, ...]
    total_ns: int
    calls: int
    kernels: tuple[KernelTime, ...]
    families: tuple[FamilyTime, ...]
    gains: tuple[Gain, ...] = ()
    span_ns: int | None = None
    busy_ns: int | None = None
    warm_up: str = ""
    passes: ForwardPasses | None = None
    first_calls: FirstCalls | None = None
    host: tuple[StatsRow, ...] = ()
    counters: tuple[KernelCounter, ...] = ()
    findings: tuple[ProfileFinding, ...] = ()
    advice: tuple[Advice, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    phases: tuple[PhaseTime, ...] = ()
    in_passes: ProfileSummary | None = None
    is_part: bool = False


@dataclass(frozen=True)
class LiveKernel:
    """One kernel, copy or set of a profiled call: the durations of all its runs, in the order of their starts."""

    shape: KernelShape
    durations_ns: tuple[int, ...]


@dataclass(frozen=True)
class CaseProfile:
    """The torch profile of a proven case, taken in a process that times nothing afterwards.

    calls           number of profiled calls, after the warm-up; durations are of all of them
    kernels         on a CPU torch's operators (kind 'operator'), by their self time
    profiler_ns     the profiler's own total of device time (self time on a CPU) over the same calls
    build_ms        time of preparing; `first_call_ms` of the first call after that, until it ended
    host_ns         self time of host operators and runtime calls over the profiled calls, by name
    allocations     requests for memory per call, and their bytes; None where unknown
    cache_state     'cold' where every call found its inputs out of the cache, as a cold workload is timed
    notes           limitations of these figures, a sentence each
    """

    calls: int
    kernels: tuple[LiveKernel, ...]
    profiler_ns: int
    device: str = ""
    build_ms: float = 0.0
    first_call_ms: float = 0.0
    host_ns: dict[str, int] = field(default_factory=dict)
    allocations: int | None = None
    allocated_bytes: int | None = None
    bound: BoundVerdict | None = None
    cache_state: str = "hot"
    notes: tuple[str, ...] = ()

    @property
    def total_ns(self) -> int:
        """Sum of the durations of all kernels over all profiled calls, in nanoseconds."""
        return sum(sum(kernel.durations_ns) for kernel in self.kernels)
