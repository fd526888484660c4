"""What a tuning run is told: what to tune, with which processes, within which budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_attnperf.records import CaseKey
from pytest_attnperf.tools.tuner.decide import DecisionRule
from pytest_attnperf.tools.tuner.pruning import PruneRules
from pytest_attnperf.tools.tuner.settings import SearchSettings
from pytest_attnperf.tools.tuner.worker_bench import PLAN
from pytest_attnperf.tuning_records import Candidate, Tunable, Value
from pytest_attnperf.workers.conversation import BlockPlan
from pytest_attnperf.workers.interleave import InterleavePlan
from pytest_attnperf.workers.pool import Pool
from pytest_attnperf.workloads.base import Workload


@dataclass(frozen=True)
class Served:
    """A workload that the changed rule serves, and the case of the suite that runs it."""

    key: CaseKey
    workload: Workload


@dataclass(frozen=True)
class TunePools:
    """Where a run's processes come from: a pool for each GPU of the search, two on one GPU for pairs, one to warm."""

    lanes: Sequence[Pool]
    base: Pool
    new: Pool
    warm: Pool | None = None

    def shutdown(self) -> None:
        """End every process."""
        for pool in (*self.lanes, self.base, self.new, *([self.warm] if self.warm is not None else [])):
            pool.shutdown()


@dataclass(frozen=True)
class TuneJob:
    """What to tune, and with what.

    backend, name   what is tuned, and its registered name
    tuned           workloads that are searched on, by id, in order
    suite           what else the suite runs of this backend, by id; only what the changed rule serves is measured
    elsewhere       workloads that the suites have of this backend in other families: not measured, but said
    root            the project
    cache           folder of compiled objects
    pools           makes the pools; not called in static mode
    journal         where trials are kept; a journal that is there is resumed
    source          says in tuned files what measured them
    kernel, when    as `Tunable.tuning_space` takes them; `default` replaces the space's own
    identity        what else must be the same for a journal to be resumed, e.g. the commit
    static          rank by code object only; `static_files` then gives the files of the first in rank
    jobs            compiling processes; `warm_processes` that open cases on a GPU before the search, 0 for none
    """

    backend: Tunable
    name: str
    tuned: Mapping[str, Served]
    arch: str
    root: Path
    cache: Path
    journal: Path
    pools: Callable[[], TunePools]
    suite: Mapping[str, Served] = field(default_factory=dict)
    elsewhere: Sequence[Workload] = ()
    source: str = ""
    kernel: str = ""
    when: Mapping[str, Value] | None = None
    default: Candidate | None = None
    identity: Mapping[str, str] = field(default_factory=dict)
    static: bool = False
    static_files: bool = False
    budget_s: float = 600.0
    settings: SearchSettings = field(default_factory=SearchSettings)
    rules: PruneRules = field(default_factory=PruneRules)
    decision: DecisionRule = field(default_factory=DecisionRule)
    pairs: InterleavePlan = field(default_factory=InterleavePlan)
    blocks: BlockPlan = PLAN
    jobs: int = 1
    warm_processes: int = 0
    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda text: None

    @property
    def workloads(self) -> list[Workload]:
        """Those that are searched on."""
        return [served.workload for served in self.tuned.values()]
