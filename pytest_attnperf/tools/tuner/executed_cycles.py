"""Orders the best-ranked candidates of a static run again, by cycles of machine code that was executed.

The issue model of a key loop sees no addresses, hence no bank conflicts of LDS: of two candidates that it gives 61 % of
the matrix units' peak, one may have a conflict of 16 ways in every read. So the first candidates are launched by the
interpreter of machine code, a part of one workgroup each, and `isa.cycle_model` estimates what ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pytest_attnperf.backends import Backend, replay_choice
from pytest_attnperf.codeobject.amdgcn import PEAK_FLOPS_PER_CYCLE
from pytest_attnperf.codeobject.occupancy import occupancy_of
from pytest_attnperf.environment.device import interpreted_gpu
from pytest_attnperf.errors import AttnperfError, UsageError
from pytest_attnperf.measure.build_proofs import prepare_executed
from pytest_attnperf.measure.executing import Executor, executing
from pytest_attnperf.tools.tuner.job import TuneJob
from pytest_attnperf.tuning_records import Candidate, StaticFigures, Tunable
from pytest_attnperf.workloads.base import Workload

if TYPE_CHECKING:
    from pytest_attnperf.isa.cycle_model import CycleEstimate

EXECUTED_MOST = 6
"""Candidates that are executed: the interpreter takes seconds for each."""

SAMPLE_INSTRUCTIONS = 8_000
"""Of each wave: some tens of tiles of keys, beside which a kernel's beginning is short."""


@dataclass(frozen=True)
class SampleRun:
    """How candidates are executed: on `workload`, for `arch`, with compiled objects in the folder `cache`."""

    backend: Tunable
    workload: Workload
    arch: str
    cache: Path

    def estimate(self, pin: Mapping[str, str]) -> CycleEstimate:
        """Returns the estimate of a part of the longest launch of a call that is pinned to a candidate.

        Raises AttnperfError if it cannot be executed.
        """
        from pytest_attnperf.isa.cycle_model import estimate_cycles

        executor = Executor(self.arch, self.cache, sample=SAMPLE_INSTRUCTIONS)
        with executing(executor):
            backend = replay_choice(cast("Backend", self.backend), pin)
            prepared = prepare_executed(backend, self.workload, interpreted_gpu(self.arch))
            executor.launches.clear()
            prepared.run()
        launches = [one.execution for one in executor.launches]
        if not launches:
            raise UsageError("nothing was launched")
        longest = max(launches, key=lambda one: one.instructions)
        if longest.record is None:
            raise UsageError("nothing was recorded")
        occupancy = occupancy_of(longest.code)
        return estimate_cycles(longest.record, max(1, occupancy.workgroups) if occupancy else 1)


def order_by_execution(
    job: TuneJob,
    ranking: Sequence[Candidate],
    static: dict[str, StaticFigures],
    notes: list[str],
    make_pin: Callable[[Candidate], Mapping[str, str]],
) -> list[Candidate]:
    """Returns the ranking, its first candidates in the order of executed cycles; adds their figures to `static` and
    what to tell to `notes`.

    The largest tuned workload is executed. The ranking stays where cycles are not modelled (NVIDIA, RDNA) or a
    candidate cannot be executed.
    """
    if job.arch not in PEAK_FLOPS_PER_CYCLE:
        return list(ranking)
    largest = max(job.workloads, key=lambda one: one.flops or 0.0)
    sample = SampleRun(job.backend, largest, job.arch, job.cache)
    found: dict[str, StaticFigures] = {}
    for candidate in ranking[:EXECUTED_MOST]:
        figures = static[candidate.id]
        if figures.peak_share is None:
            break
        job.say(f"executing a part of {candidate.id}")
        try:
            found[candidate.id] = add_execution(figures, sample.estimate(make_pin(candidate)))
        except AttnperfError as error:
            notes.append(f"{candidate.id} was not executed, and the order is that of objects: {error}")
            return list(ranking)
    if not found:
        return list(ranking)
    from pytest_attnperf.isa.cycle_model import ESTIMATED

    first, rest = ranking[: len(found)], ranking[len(found) :]
    ordered = sorted(first, key=lambda one: -(found[one.id].executed_share or 0.0))
    notes.append(f"the first {len(found)} are ordered by executed cycles, bank conflicts of LDS included ({ESTIMATED})")
    static.update(found)
    return [*ordered, *rest]


def add_execution(figures: StaticFigures, executed: CycleEstimate) -> StaticFigures:
    """Returns the figures with what was executed, where a product that several waves compute counts once, too."""
    lds = executed.busy["lds"]
    return replace(
        figures,
        executed_share=executed.peak_share / figures.repeated,
        conflict_share=executed.conflict_cycles / lds if lds else 0.0,
    )
