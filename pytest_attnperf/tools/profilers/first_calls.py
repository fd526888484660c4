"""Groups a trace by kernel and size, finds the extra time of first dispatches and the warm-up, and sums up host
time."""

from __future__ import annotations

import re
import statistics
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.records.profiles import FirstCalls, Spread, StatsRow
from pytest_attnperf.tools.profilers.dispatches import Dispatches
from pytest_attnperf.tools.profilers.kernel_families import ATTENTION, SOFTMAX, FamilyRules
from pytest_attnperf.tools.profilers.passes import Calls
from pytest_attnperf.tools.profilers.spreads import compute_spread
from pytest_attnperf.tools.profilers.torch_events import OPERATOR

SLOWER = 0.10
"""First passes are warm-up as long as they exceed the median pass by more than this fraction."""

PASSES_NEEDED = 3
"""Least passes for a median that does not depend on the first one."""

OTHERS_NEEDED = 4
"""Least other dispatches of the same size for calling the first one an outlier."""

FENCE = 3.0
"""An outlier lies this many interquartile ranges above the upper quartile (Tukey, Exploratory Data Analysis, 1977)."""

OUTLIER_RATIO = 1.5
"""An outlier must also exceed the others' median by this factor: a clock of 40 ns ticks can give a range of 0."""

KERNELS = ("kernel", "operator")
"""Kinds that compute; torch's profiler shows an operator for a CPU."""

APART = -1
"""Number in the order for dispatches that show no pass: those of other devices, and the runtime's copies and fills."""


@dataclass(frozen=True)
class First:
    """The first dispatch of one kernel: its duration, and the spread of all later ones of the same size."""

    kernel: str
    duration_ns: int
    others: Spread

    @property
    def excess_ns(self) -> int:
        """Nanoseconds by which the first dispatch exceeds the later ones' median; 0 if it does not."""
        return 0 if self.others.median_ns is None else max(0, round(self.duration_ns - self.others.median_ns))

    @property
    def is_outlier(self) -> bool:
        """Whether the first dispatch exceeds the later ones' upper quartile by 3 interquartile ranges, and their median
        by half of it; False with fewer than 4 later ones."""
        q1, median, q3 = self.others.q1_ns, self.others.median_ns, self.others.q3_ns
        if self.others.calls < OTHERS_NEEDED or q1 is None or median is None or q3 is None:
            return False
        return self.duration_ns > q3 + FENCE * (q3 - q1) and self.duration_ns > OUTLIER_RATIO * median


@dataclass(frozen=True)
class WarmUp:
    """The warm-up: all dispatches before index `before`, and the first of each kernel in `first_of`. `text` says
    why."""

    text: str
    before: int = 0
    first_of: frozenset[str] = frozenset()


def use_given_warm_up(count: int, begins: Sequence[int], dispatches: int) -> WarmUp:
    """Returns the user's warm-up: `count` passes, or dispatches if `begins` (where passes begin) is empty."""
    if begins and count:
        held = min(count, len(begins))
        before = begins[held] if held < len(begins) else dispatches
        return WarmUp(f"{held} of {len(begins)} passes, as given ({before:,} dispatches)", before)
    if not count:
        return WarmUp("none, as given")
    return WarmUp(
        f"the first {min(count, dispatches):,} of {dispatches:,} dispatches, as given", min(count, dispatches)
    )


def infer_warm_up(firsts: Iterable[First], begins: Sequence[int], durations: Sequence[int]) -> WarmUp:
    """Infers the warm-up: dispatches before the first pass, and first passes while they exceed the median pass by 10 %;
    if none does, first dispatches of kernels that are outliers.

    `durations` are of all dispatches ordered by start; `begins` are the indices where passes begin."""
    ends = (*begins[1:], len(durations))
    passes = [sum(durations[begin:end]) for begin, end in zip(begins, ends, strict=False)]
    if len(passes) >= PASSES_NEEDED:
        usual = statistics.median(passes)
        slow = next((place for place, each in enumerate(passes) if each <= usual * (1 + SLOWER)), len(passes))
        if slow:
            times = ", ".join(f"{each / usual - 1:+.0%}" for each in passes[:slow])
            text = f"the first {slow} of {len(passes)} passes, against the median pass: {times}"
            return WarmUp(f"{text} ({begins[slow]:,} dispatches)", begins[slow])
    return _infer_from_firsts(list(firsts), begins)


def _infer_from_firsts(firsts: Sequence[First], begins: Sequence[int]) -> WarmUp:
    slow = frozenset(first.kernel for first in firsts if first.is_outlier)
    before = begins[0] if begins else 0
    said = [f"{before:,} dispatches before the first pass"] if before else []
    if slow:
        said.append(
            f"the first dispatch of {len(slow)} of {len(firsts)} kernels, longer than {OUTLIER_RATIO:g} medians and "
            f"beyond {FENCE:g} interquartile ranges of the kernel's others"
        )
    else:
        said.append("no first dispatch of a kernel is far from its others" if said else "none")
    if len(begins) >= PASSES_NEEDED:
        said.append(f"no first pass is slower than the median of {len(begins)} by {SLOWER:.0%}")
    return WarmUp("; ".join(said), before, slow)


_LOADING, _ALLOCATION, _SYNCHRONISATION = "loading and compiling", "allocation", "synchronisation"
_COPIES, _LAUNCH, _SET_UP = "copies", "launch", "set-up"
_HOST = tuple(
    (category, re.compile(pattern))
    for category, pattern in (
        (_LOADING, r"^(?:hiprtc|nvrtc)|Module Loading|Lazy Function Loading"),
        (_LOADING, r"^(?:hip|cuda|cu)(?:Module(?:Load|Get|Unload)|Library|Link|KernelGet|FuncGet)"),
        (_LOADING, r"^__(?:hip|cuda)Register|^hsa_(?:code_object|executable|ven_amd_loader)"),
        (_ALLOCATION, r"^(?:hip|cuda|cu)(?:Ext|Host|Array)?(?:Malloc|Free)|^(?:hip|cu)Mem\w*Alloc"),
        (_ALLOCATION, r"^(?:hip|cuda|cu)(?:Mem(?:Free|Create|Map|Pool)|(?:Mem)?Host(?:Register|Unregister|Alloc))"),
        (_ALLOCATION, r"^hsa_amd_(?:memory_pool_(?:allocate|free)|agents_allow_access)"),
        (_SYNCHRONISATION, r"Synchronize|WaitEvent|EventQuery|StreamQuery|^hsa_signal_(?:wait|load)"),
        (_COPIES, r"^(?:hip|cuda|cu)Mem(?:cpy|set|Prefetch)|^hsa_(?:amd_)?memory_(?:async_copy|copy|fill)"),
        (_LAUNCH, r"Launch|^__(?:hip|cuda)(?:Push|Pop)CallConfiguration"),
        (_SET_UP, r"^(?:hip|cuda|cu)(?:Init|Get|Set|Device|Stream|Event|Ctx|Driver|Runtime|Occupancy)"),
        (_SET_UP, r"^hsa_(?:init|shut|agent|iterate|system|queue|isa|region)"),
    )
)
"""Categories of host time and patterns of functions of HIP, CUDA and HSA. The first match decides."""

OTHER_HOST = "other"
_BENEATH = "hsa_"
"""Prefix of HSA functions. They run within HIP's, so next to those they would be counted twice."""


def find_host_category(name: str) -> str:
    """Returns the category ('allocation', 'launch', ...) of a function of HIP, CUDA or HSA; 'other' if none fits."""
    return next((category for category, pattern in _HOST if pattern.search(name)), OTHER_HOST)


def sum_host_times(rows: Iterable[StatsRow]) -> dict[str, int]:
    """Returns category -> ns of host time, largest first. Leaves out calls that contain or lie within others: torch's
    operators, and functions of HSA next to HIP's.

    Synchronisation is time in which the host waits for the GPU, so it is also part of a synchronous copy."""
    every = [row for row in rows if row.domain == "api"]
    above = any(not row.name.startswith(_BENEATH) for row in every)
    found: dict[str, int] = {}
    for row in every:
        if row.name.startswith(OPERATOR) or (above and row.name.startswith(_BENEATH)):
            continue
        category = find_host_category(row.name)
        found[category] = found.get(category, 0) + row.spread.total_ns
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def sum_first_calls(firsts: Iterable[First], host_ns: Mapping[str, int]) -> FirstCalls:
    """Returns by how many ns first dispatches exceed later ones in all, how many kernels do, and the host's times."""
    excesses = array("q", (first.excess_ns for first in firsts))
    return FirstCalls(sum(excesses), sum(excess > 0 for excess in excesses), dict(host_ns))


@dataclass(frozen=True)
class TracedKernel:
    """A kernel of a trace: one name of one kind.

    shapes    indices of its sizes in `Dispatches.shapes`
    first     index of the size of its first dispatch
    """

    name: str
    kind: str
    family: str
    apart: bool
    shapes: tuple[int, ...]
    first: int


@dataclass(frozen=True)
class Traced:
    """A trace by kernel. `durations` are nanoseconds by size, ordered by start, parallel to `Dispatches.shapes`."""

    dispatches: Dispatches
    durations: tuple[array[int], ...]
    kernels: tuple[TracedKernel, ...]
    firsts: tuple[First, ...]

    @staticmethod
    def from_dispatches(dispatches: Dispatches, rules: FamilyRules) -> Traced:
        """Groups dispatches by kernel (name and kind) and launch size, and finds each kernel's first dispatch."""
        durations = tuple(dispatches.durations_by_shape())
        last = len(dispatches) - 1
        first_at = {shape: last - place for place, shape in enumerate(reversed(dispatches.shape))}
        sizes: dict[tuple[str, str], list[int]] = {}
        for number, shape in enumerate(dispatches.shapes):
            if number in first_at:
                sizes.setdefault((shape.name, shape.kind), []).append(number)
        kernels = []
        for (name, kind), numbers in sizes.items():
            first = min(numbers, key=first_at.__getitem__)
            family, apart = rules.find_family(name, kind).name, rules.is_memory_work(name, kind)
            kernels.append(TracedKernel(name, kind, family, apart, tuple(numbers), first))
        firsts = tuple(
            First(kernel.name, durations[kernel.first][0], compute_spread(durations[kernel.first][1:]))
            for kernel in kernels
            if kernel.kind in KERNELS
        )
        return Traced(dispatches, durations, tuple(kernels), firsts)

    @property
    def has_kernels(self) -> bool:
        """Whether the trace has kernels or operators, and not copies and memory sets only."""
        return bool(self.firsts)

    @property
    def has_copies(self) -> bool:
        """Whether the trace has copies or memory sets."""
        return len(self.firsts) < len(self.kernels)

    @property
    def kernel_calls(self) -> int:
        """Number of dispatches of kernels, without copies and memory sets."""
        return sum(len(self.durations[at]) for kernel in self.kernels if kernel.kind in KERNELS for at in kernel.shapes)

    def count_calls(self) -> Calls:
        """Returns the calls by kernel, and their order, on the device with most calls; copies and fills are apart."""
        shapes = self.dispatches.shapes
        device = self._find_busiest_device()
        counts: dict[str, int] = {}
        apart: dict[str, int] = {}
        numbers: dict[str, int] = {}
        number_of = [APART] * len(shapes)
        for kernel in self.kernels:
            own = [at for at in kernel.shapes if kernel.apart or shapes[at].agent == device]
            count = sum(len(self.durations[at]) for at in own)
            if kernel.apart:
                apart[kernel.name] = apart.get(kernel.name, 0) + count
            elif count:
                counts[kernel.name] = counts.get(kernel.name, 0) + count
                for at in own:
                    number_of[at] = numbers.setdefault(kernel.name, len(numbers))
        order = array("i", map(number_of.__getitem__, self.dispatches.shape))
        families = {
            family: [one.name for one in self.kernels if one.family == family and one.name in counts]
            for family in (ATTENTION, SOFTMAX)
        }
        attention = families[ATTENTION] or families[SOFTMAX]
        devices = self._calls_by_device()
        whose = f"on {device}, the busiest of {len(devices)} devices" if len(devices) > 1 else ""
        return Calls(counts, attention, order, numbers, apart, whose)

    def _find_busiest_device(self) -> str:
        calls = self._calls_by_device()
        return max(calls, key=lambda device: (calls[device], device), default="")

    def _calls_by_device(self) -> Counter[str]:
        calls: Counter[str] = Counter()
        for kernel in self.kernels:
            if not kernel.apart:
                for at in kernel.shapes:
                    calls[self.dispatches.shapes[at].agent] += len(self.durations[at])
        return calls
