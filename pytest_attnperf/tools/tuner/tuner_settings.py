"""Lists the candidates of a declared space, and defines settings and result of a search."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tuning_records import Candidate, Excluded, Trial, TuningSpace, Value

Strategy = Literal["auto", "race", "optuna", "exhaustive"]

INDIFFERENCE = 0.005
"""Candidates this close to the best, as a fraction, count as equal: separating them costs more than it gains."""

PROCESS_SD = 0.0085
"""Largest spread between processes of unchanged code seen on an H200: the prior of every search."""


SHARE_OF_EXHAUSTIVE = 4
"""Divisor: a search of a large space uses this part of the trials of one pass over all candidates and workloads."""

COMBINATIONS_MAX = 100_000
"""Largest grid. A larger one is a mistake in the declaration: listing it alone takes longer than a search."""


def count_allowed_trials(candidates: int, workloads: int) -> int:
    """Returns the most trials of a large search: a quarter of candidates times workloads, at least 4 per workload."""
    return max(candidates * workloads // SHARE_OF_EXHAUSTIVE, 4 * workloads)


@dataclass(frozen=True)
class TuneSearchSettings:
    """Settings of a search.

    strategy     'auto' races small spaces and uses Optuna for larger ones
    budget_s     seconds of this session; a resumed search gets them again
    max_trials   most trials, with those of earlier sessions; None: no limit for a race, and for Optuna a quarter of the
                 trials of one pass over everything
    processes    most processes that the survivors are timed in
    seed         of every random order and draw
    process_sd   assumed relative standard deviation of a process median
    probe        workload that a large space is explored on; '' means the last
    preferred    ids of candidates that are tried before others; empty means no preference
    """

    strategy: Strategy = "auto"
    budget_s: float = math.inf
    max_trials: int | None = None
    processes: int = 5
    seed: int = 0
    clock: Callable[[], float] = time.monotonic
    indifference: float = INDIFFERENCE
    process_sd: float = PROCESS_SD
    probe: str = ""
    preferred: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.strategy not in get_args(Strategy):
            raise UsageError(f"search strategy {self.strategy!r} is unknown; known: {', '.join(get_args(Strategy))}")
        if not self.budget_s > 0:
            raise UsageError(f"the search's budget is {self.budget_s} s, must be above 0")
        if self.max_trials is not None and self.max_trials < 1:
            raise UsageError(f"the search may make {self.max_trials} trials, must be at least 1")
        if self.processes < 1:
            raise UsageError(f"survivors are to be timed in {self.processes} processes, must be at least 1")


@dataclass(frozen=True)
class SearchResult:
    """Result of a search. It does not show that the winner is better: that needs new pairs.

    strategy    the strategy used: 'race', 'optuna' or 'exhaustive'
    ranking     best first, with its cost: geometric mean over workloads of its time over the default's in the same
                process. Finalists come first; the default is among them or after them, with cost 1
    trials      every timed trial in recorded order, including repeated timings of the default
    excluded    candidates that failed, were wrong, or were dropped as clearly slower
    finalists   candidates timed in the last processes, best first
    notes       why it ended, and what was not timed
    """

    strategy: str
    ranking: tuple[tuple[Candidate, float], ...]
    trials: tuple[Trial, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    finalists: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()


def check_space(space: TuningSpace) -> None:
    """Raises UsageError, which names the invalid part, if a space cannot be searched: a parameter has no or repeated
    values, the default is incomplete, there are too many combinations, or no candidate besides the default is valid."""
    for name, values in space.values.items():
        if not values:
            raise UsageError(f"{_name_space(space)}: parameter {name} has no values; give at least one")
        twice = [told for told, count in Counter(map(str, values)).items() if count > 1]
        if twice or len(set(values)) < len(values):
            named = ", ".join(map(repr, values))
            raise UsageError(f"{_name_space(space)}: parameter {name} names a value twice: {named}; remove one")
    _check_default(space)
    count = math.prod(len(values) for values in space.values.values())
    if count > COMBINATIONS_MAX:
        sizes = ", ".join(f"{name} {len(values)}" for name, values in space.values.items())
        raise UsageError(
            f"{_name_space(space)}: {count:,} combinations, at most {COMBINATIONS_MAX:,} are searched; "
            f"remove values (number of values: {sizes})"
        )
    kept, excluded = _split_by_constraints(space)
    if len(kept) > 1:
        return
    counted = Counter(item.reason for item in excluded if item.candidate != space.default)
    reasons = "; ".join(f"{number} x {reason}" for reason, number in counted.most_common()) or "it has none"
    raise UsageError(f"{_name_space(space)}: no valid candidate besides the default {space.default.id}: {reasons}")


def list_candidates(space: TuningSpace) -> tuple[list[Candidate], list[Excluded]]:
    """Returns every candidate that the constraints allow, the default first, and those that they exclude with the
    reason.

    The default is always kept. Raises UsageError as `check_space` does."""
    check_space(space)
    return _split_by_constraints(space)


def _check_default(space: TuningSpace) -> None:
    missing = [name for name in space.values if name not in space.default.values]
    if missing:
        raise UsageError(
            f"{_name_space(space)}: the default {space.default.id!r} lacks {', '.join(missing)}; "
            "a default must give every parameter"
        )
    unknown = [name for name in space.default.values if name not in space.values]
    if unknown:
        raise UsageError(
            f"{_name_space(space)}: the default gives {', '.join(unknown)}, which the space does not have: every "
            f"other candidate "
            "would run without it. Declare it, with one value if it is not to be tuned"
        )
    for extra in space.extra:
        if not extra.label:
            raise UsageError(f"{_name_space(space)}: candidate {extra.id!r} outside the grid has no label; give it one")


def _split_by_constraints(space: TuningSpace) -> tuple[list[Candidate], list[Excluded]]:
    kept, excluded = {space.default.id: space.default}, []
    for combination in itertools.product(*space.values.values()):
        candidate = Candidate(dict(zip(space.values, combination, strict=True)))
        why = _reason_not_allowed(space, candidate.values)
        if why and candidate != space.default:
            excluded.append(Excluded(candidate, "constraint", why))
        elif not why:
            kept.setdefault(candidate.id, candidate)
    for extra in space.extra:
        if kept.setdefault(extra.id, extra) is not extra:
            raise UsageError(f"{_name_space(space)}: two candidates are called {extra.id!r}; rename one")
    return list(kept.values()), excluded


def _reason_not_allowed(space: TuningSpace, values: Mapping[str, Value]) -> str:
    """Returns the text of the first constraint that the values violate, '' if none. UsageError if a constraint
    raises."""
    for constraint in space.constraints:
        try:
            holds = constraint.holds(values)
        except Exception as error:
            told = Candidate(values).id
            raise UsageError(
                f"{_name_space(space)}: constraint {constraint.why!r} raised {type(error).__name__}: {error} for {told}"
            ) from error
        if not holds:
            return constraint.why
    return ""


def _name_space(space: TuningSpace) -> str:
    return f"tuning space of {space.kernel}"
