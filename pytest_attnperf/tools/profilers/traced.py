"""Dispatches of a trace by kernel and by size: durations, first dispatches, calls in their order."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass

from pytest_attnperf.tools.profilers.dispatches import Dispatches
from pytest_attnperf.tools.profilers.first_calls import First
from pytest_attnperf.tools.profilers.kernel_families import ATTENTION, Rules
from pytest_attnperf.tools.profilers.passes import Calls
from pytest_attnperf.tools.profilers.spreads import spread_of

KERNELS = ("kernel", "operator")
"""Kinds that compute; an operator is what torch's profiler shows of a CPU."""

APART = -1
"""Stands in the order for what no pass is recognised by: other devices, and the runtime's copies and fills."""


@dataclass(frozen=True)
class TracedKernel:
    """One name of one kind.

    shapes    places in `Dispatches.shapes` of its sizes
    first     the size that its first dispatch has, and `first_at` the place of that dispatch
    """

    name: str
    kind: str
    family: str
    apart: bool
    shapes: tuple[int, ...]
    first: int
    first_at: int


@dataclass(frozen=True)
class Traced:
    """A trace by kernel. durations: nanoseconds by size, in the order they began, parallel to `Dispatches.shapes`."""

    dispatches: Dispatches
    durations: tuple[array[int], ...]
    kernels: tuple[TracedKernel, ...]
    firsts: tuple[First, ...]

    @staticmethod
    def of(dispatches: Dispatches, rules: Rules) -> Traced:
        """Every kernel with its sizes."""
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
            family, apart = rules.family(name, kind).name, rules.is_memory_work(name, kind)
            kernels.append(TracedKernel(name, kind, family, apart, tuple(numbers), first, first_at[first]))
        firsts = tuple(
            First(kernel.name, durations[kernel.first][0], spread_of(durations[kernel.first][1:]))
            for kernel in kernels
            if kernel.kind in KERNELS
        )
        return Traced(dispatches, durations, tuple(kernels), firsts)

    @property
    def holds_kernels(self) -> bool:
        """Whether more than copies and memory sets were traced."""
        return bool(self.firsts)

    @property
    def holds_copies(self) -> bool:
        """Whether copies or memory sets were traced."""
        return len(self.firsts) < len(self.kernels)

    @property
    def kernel_calls(self) -> int:
        """Dispatches of kernels, copies and memory sets left out."""
        return sum(len(self.durations[at]) for kernel in self.kernels if kernel.kind in KERNELS for at in kernel.shapes)

    def calls(self) -> Calls:
        """Calls of kernels on the busiest device, in their order."""
        shapes = self.dispatches.shapes
        device = self._busiest()
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
        attention = [kernel.name for kernel in self.kernels if kernel.family == ATTENTION and kernel.name in counts]
        devices = self._calls_by_device()
        whose = f"on {device}, the busiest of {len(devices)} devices" if len(devices) > 1 else ""
        return Calls(counts, attention, order, numbers, apart, whose)

    def _busiest(self) -> str:
        calls = self._calls_by_device()
        return max(calls, key=lambda device: (calls[device], device), default="")

    def _calls_by_device(self) -> Counter[str]:
        calls: Counter[str] = Counter()
        for kernel in self.kernels:
            if not kernel.apart:
                for at in kernel.shapes:
                    calls[self.dispatches.shapes[at].agent] += len(self.durations[at])
        return calls
