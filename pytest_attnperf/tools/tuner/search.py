"""Chooses and runs a search strategy."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.tuner import optuna_search, race
from pytest_attnperf.tools.tuner.slots import Slots
from pytest_attnperf.tools.tuner.trial_bench import TrialBench
from pytest_attnperf.tools.tuner.tuner_journal import TrialJournal
from pytest_attnperf.tools.tuner.tuner_settings import SearchResult, TuneSearchSettings
from pytest_attnperf.tuning_records import Candidate, TuningSpace

RACE_TRIALS_MAX = 256
"""Most candidates times workloads for racing every candidate; above, Optuna uses a quarter of the trials."""


def search_candidates(
    space: TuningSpace,
    candidates: Sequence[Candidate],
    workloads: Sequence[str],
    bench: TrialBench,
    settings: TuneSearchSettings,
    journal: TrialJournal,
) -> SearchResult:
    """Searches by the strategy of the settings, and returns the result. Trials that the journal has are not repeated.
    Raises UsageError without a workload, for one named twice, without a candidate besides the default, and for a search
    with Optuna where it is not installed."""
    if not workloads:
        raise UsageError("a search needs at least one workload, got none")
    if len(set(workloads)) < len(workloads):
        raise UsageError(f"a workload is named twice: {', '.join(workloads)}; name each once")
    if all(candidate.id == space.default.id for candidate in candidates):
        raise UsageError(f"no candidate besides the default {space.default.id} is left to search; widen the space")
    chosen = choose_strategy(candidates, workloads, settings)
    if chosen == "optuna":
        optuna_search.require_optuna()
    searches = {
        "race": race.search_by_race,
        "optuna": optuna_search.search_by_optuna,
        "exhaustive": race.search_exhaustively,
    }
    slots = Slots(chosen, space.default, workloads, bench, settings, journal)
    return searches[chosen](space, candidates, slots)


def choose_strategy(candidates: Sequence[Candidate], workloads: Sequence[str], settings: TuneSearchSettings) -> str:
    """Returns 'race', 'optuna' or 'exhaustive' as the settings say; for 'auto', 'race' up to RACE_TRIALS_MAX candidates
    times workloads, else 'optuna'."""
    if settings.strategy != "auto":
        return settings.strategy
    return "race" if len(candidates) * len(workloads) <= RACE_TRIALS_MAX else "optuna"
