"""A small space and its candidates, for every search."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.testing.fake.bench import FakeBench
from pytest_attnperf.tools.tuner.job import search_candidates
from pytest_attnperf.tools.tuner.tuner_journal import TrialJournal
from pytest_attnperf.tools.tuner.tuner_settings import SearchResult, TuneSearchSettings
from pytest_attnperf.tuning_records import Candidate, TuningSpace
from tests.reports.html.conftest import browser, check_page, open_page, read_tooltip

__all__ = ["browser", "check_page", "open_page", "read_tooltip"]
"""Fixtures for pages."""

WORKLOADS = ("seq=512", "seq=1024", "seq=2048", "seq=4096")


def line_space(count: int) -> SimpleNamespace:
    """Candidates BLOCK=0 to count - 1; the last is the default."""
    found = [Candidate({"BLOCK": at}) for at in range(count)]
    return SimpleNamespace(space=TuningSpace("flash", {"BLOCK": tuple(range(count))}, found[-1]), candidates=found)


def valley(candidate: Candidate, workload: str) -> float:
    """100 us at BLOCK=3 and 4 % more for every step away from it, twice as long on a twice as long workload."""
    away = abs(int(candidate.values["BLOCK"]) - 3)
    return 100.0 * 1.04**away * int(workload.removeprefix("seq=")) / 512


@pytest.fixture
def line() -> Callable[[int], SimpleNamespace]:
    """`line(8)`: a space of eight candidates."""
    return line_space


@pytest.fixture
def run_search() -> Callable[..., SearchResult]:
    """`run_search(bench, count=8, journal=..., **settings)`: a search of `line(count)` on four workloads."""

    def run(bench: FakeBench, count: int = 8, journal: TrialJournal | None = None, **settings: Any) -> SearchResult:
        line = line_space(count)
        chosen = TuneSearchSettings(**{"clock": bench.clock, **settings})
        return search_candidates(line.space, line.candidates, WORKLOADS, bench, chosen, journal or TrialJournal())

    return run


@pytest.fixture
def steep() -> Callable[[Candidate, str], float]:
    """Times with one best candidate, BLOCK=3."""
    return valley
