"""Chooses the search."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.tuner import optuna_search, race
from pytest_attnperf.tools.tuner.bench import Bench
from pytest_attnperf.tools.tuner.journal import Journal
from pytest_attnperf.tools.tuner.settings import SearchResult, SearchSettings
from pytest_attnperf.tuning_records import Candidate, TuningSpace

RACE_TRIALS_MAX = 256
"""Candidates times workloads up to which every candidate is raced; beyond, Optuna takes a quarter of the trials."""


def search(
    space: TuningSpace,
    candidates: Sequence[Candidate],
    workloads: Sequence[str],
    bench: Bench,
    settings: SearchSettings,
    journal: Journal,
) -> SearchResult:
    """Search as the settings say. Resumes what the journal holds. Raises UsageError when there is nothing to search."""
    if not workloads:
        raise UsageError("a search needs at least one workload, got none")
    if len(set(workloads)) < len(workloads):
        raise UsageError(f"a workload is named twice: {', '.join(workloads)}")
    if all(candidate.id == space.default.id for candidate in candidates):
        raise UsageError(f"no candidate beside the default {space.default.id} is left to search")
    chosen = strategy_for(candidates, workloads, settings)
    modules = {"race": race.search, "optuna": optuna_search.search, "exhaustive": race.search_all}
    return modules[chosen](space, candidates, workloads, bench, settings, journal)


def strategy_for(candidates: Sequence[Candidate], workloads: Sequence[str], settings: SearchSettings) -> str:
    """'race', 'optuna' or 'exhaustive'."""
    if settings.strategy != "auto":
        return settings.strategy
    return "race" if len(candidates) * len(workloads) <= RACE_TRIALS_MAX else "optuna"
