"""Frozen data of the history of many runs. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class HistoryPoint:
    """One case in one run.

    started       when the run began: ISO 8601 with its zone; points are in this order
    commit        of the working tree, '' or 'unknown' where that was not known; ends in '+dirty' where it differed
    verdict       as text, because files of later versions may hold others
    median_us     of the deciding look, microseconds per call
    process_us    median of each of its processes; an import may have one only
    environment   named software, e.g. {'torch': '2.11.0', 'driver': '580.159.04'}
    machine       what must match for two numbers to be comparable (`Fingerprint.must_match`), the timer among it
    run_id        of the run; an import makes one from the file's content
    source        'attnperf', 'results.json' or 'pytest-benchmark': what measured it, or was imported
    """

    started: str
    commit: str
    verdict: str
    median_us: float
    process_us: tuple[float, ...] = ()
    baseline_us: float | None = None
    branch: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    run_id: str = ""
    source: str = "attnperf"


@dataclass(frozen=True)
class ChangePoint:
    """A lasting change of a case's time. Ratios above 1 are slower.

    index          of the first point after it, in `CaseHistory.points`
    before_us      centre of the level before, `after_us` of the one after
    last_before    commit of the last point before; `first_after` that of the first one after
    environment    what of the software or the machine changed between these two points, 'torch: 2.10.0 -> 2.11.0'
    sigmas         size of the change in standard deviations of a point around its level
    """

    index: int
    before_us: float
    after_us: float
    last_before: str
    first_after: str
    environment: tuple[str, ...] = ()
    sigmas: float = 0.0

    @property
    def ratio(self) -> float:
        """Time after the change / time before it; above 1 is slower."""
        return self.after_us / self.before_us


@dataclass(frozen=True)
class CaseHistory:
    """One case on one device over time: `case` is a `CaseKey` as text, 'suite/backend/workload[/label]'.

    `runs` is the number of runs with a time; more than the points if a long series was thinned."""

    case: str
    arch: str
    product: str
    points: tuple[HistoryPoint, ...]
    changes: tuple[ChangePoint, ...] = ()
    notes: tuple[str, ...] = ()
    runs: int = 0

    @property
    def is_thinned(self) -> bool:
        """Whether the points are only some of the runs."""
        return self.runs > len(self.points)
