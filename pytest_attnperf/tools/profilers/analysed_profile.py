"""A profile with its conclusions: what a time line, a trace and a page are made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_attnperf.records.profiles import KernelShape, ProfileSummary
from pytest_attnperf.tools.profilers.kernel_families import OTHER
from pytest_attnperf.tools.profilers.profile import Profile


@dataclass(frozen=True)
class PassSpan:
    """One forward pass: its number from 1, its dispatches from index `begin` up to `end`, and its first start and last
    end in ns. It ends where the next begins at the latest."""

    number: int
    begin: int
    end: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class AnalysedProfile:
    """A profile and its summary.

    begins, ends   indices of the first dispatch of every pass, and behind its last one; () if passes are not known or
                   the order of dispatches is not
    """

    profile: Profile
    summary: ProfileSummary
    begins: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    def find_families(self) -> list[str]:
        """Returns the family of each shape of the dispatches, by its index."""
        known = {(kernel.name, kernel.kind): kernel.family for kernel in self.summary.kernels}
        return [known.get((shape.name, shape.kind), OTHER.name) for shape in self.profile.dispatches.shapes]

    def list_passes(self) -> tuple[PassSpan, ...]:
        """Returns the passes in their order; none overlaps the next."""
        return tuple(self._list_spans())

    def _list_spans(self) -> Iterator[PassSpan]:
        dispatches = self.profile.dispatches
        starts = [dispatches.start_ns[begin] for begin in self.begins]
        for number, (begin, end, start) in enumerate(zip(self.begins, self.ends, starts, strict=True), 1):
            last = max(dispatches.end_ns[begin:end])
            yield PassSpan(number, begin, end, start, min([last, *starts[number : number + 1]]))


def format_lane(shape: KernelShape, queue: str, *, with_device: bool) -> str:
    """Returns what a row of a time line is called: 'stream 7', 'GPU 1 stream 7'; 'copies' or 'kernels' if the queue is
    not known."""
    where = queue or ("copies" if shape.kind == "copy" else "kernels")
    return f"{format_device(shape.agent)} {where}" if with_device else where


def format_device(agent: str) -> str:
    """Returns what a device is called: 'GPU 8' for '8', 'Agent 4' as it is, 'GPU' if it is not known."""
    return f"GPU {agent}" if agent.isdigit() else agent or "GPU"
