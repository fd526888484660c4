"""From a case's result to what is stored: the same in the run that measured it and in the one that merges."""

from __future__ import annotations

from datetime import datetime, timezone

from pytest_attnperf import __version__
from pytest_attnperf.baselines.store import NewEntry
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import Measurement, Verdict
from pytest_attnperf.results import CaseResult


def new_entry(result: CaseResult, commit: str, acknowledged: str = "") -> NewEntry:
    """The entry of a RECORDED result; `acknowledged` says why a slowdown since the anchor is wanted.

    Raises BaselineError for any other verdict: only right results are stored."""
    if result.verdict is not Verdict.RECORDED or result.fingerprint is None or result.figures is None:
        raise BaselineError(f"{result.key} is {result.verdict.value}: only results recorded for it become a baseline")
    return NewEntry(
        measurement=Measurement(result.first, result.checks, result.peak_memory_bytes),
        workload=result.figures.definition,
        fingerprint=result.fingerprint,
        policy=result.policy,
        recorded=datetime.now(timezone.utc).date().isoformat(),
        harness_version=__version__,
        commit=commit,
        config=result.config,
        launches=result.launches,
        bound=result.floor_bound,
        canary=result.canary,
        acknowledged=acknowledged,
    )
