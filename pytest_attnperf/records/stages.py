"""Frozen data of how a call's time divides into stages. Standard library only: the worker's server imports this.

Stages are those of a backend whose call is a `backends.Pipeline`; any other backend has figures of the whole call only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records import Launch


@dataclass(frozen=True)
class StageTime:
    """One stage, run repeatedly on values that a whole call left. Microseconds per run of the stage.

    median_us        of its blocks; 0 for a stage that launches nothing
    launches         what one run does (on a CPU torch's operators, see `Launch`); None where that is not known
    allocations      memory requests to torch per run, `allocated_bytes` their size; None where unknown
    cache_state      'cold' where it ran on copies of the workload's inputs that together exceed the cache. A few rows
                     that it reads of a large input may still be cached, and so may values from earlier stages
    """

    name: str
    median_us: float
    launches: tuple[Launch, ...] | None = None
    allocations: int | None = None
    allocated_bytes: int | None = None
    cache_state: str = "hot"

    @property
    def launch_count(self) -> float | None:
        """Number of kernels, copies and memory sets (on a CPU: operators) of one run of the stage; None if unknown."""
        return launch_count(self.launches)


@dataclass(frozen=True)
class Breakdown:
    """One call in one process: its stages, the whole call timed in turns with them, and what came before.

    stages           in the order they run; empty where the backend's call has none
    call_us          median of the whole call's blocks among those of the stages
    timer            that all of these were timed with
    build_ms         of `Backend.prepare`: building, compiling, converting
    first_call_ms    of the first call after that, until it ended
    launches         of one whole call, and `allocations` and `allocated_bytes`, as in `StageTime`
    """

    stages: tuple[StageTime, ...]
    call_us: float
    timer: str
    build_ms: float
    first_call_ms: float
    launches: tuple[Launch, ...] | None = None
    allocations: int | None = None
    allocated_bytes: int | None = None

    @property
    def sum_us(self) -> float | None:
        """Sum of the medians of all stages, in microseconds; None without stages."""
        return sum(stage.median_us for stage in self.stages) if self.stages else None

    @property
    def share(self) -> float | None:
        """Sum of stages / time of the whole call: 1 if nothing is lost or gained between them; None without stages."""
        return None if self.sum_us is None or self.call_us <= 0 else self.sum_us / self.call_us

    @property
    def launch_count(self) -> float | None:
        """Number of kernels, copies and memory sets (on a CPU: operators) that one call launches; None if not known."""
        return launch_count(self.launches)


def launch_count(launches: Sequence[Launch] | None) -> float | None:
    """Returns how many launches a call makes: the sum of `Launch.calls`; None where launches are not known."""
    return None if launches is None else sum(launch.calls for launch in launches)
