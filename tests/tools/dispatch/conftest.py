"""Times of backends, points and tables, as tests of dispatching make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.tools.dispatch.measured_points import BackendTime, make_points
from pytest_attnperf.tools.dispatch.regions import DispatchTable, make_dispatch_table
from tests.reports.html.conftest import browser, check_page, open_page, read_tooltip

__all__ = ["browser", "check_page", "open_page", "read_tooltip"]
"""Fixtures for pages."""

CONDITIONS = {"timer": "graph", "cache_state": "hot"}


def make_process(us: float, timer: str = "graph") -> ProcessSummary:
    """A process whose median is this."""
    return ProcessSummary(us, us, us, (us,), 10, timer)


def make_timed(backend: str, us: float, *, seq: int = 512, spread: float = 0.001, **fields: object) -> BackendTime:
    """Five processes around a median, `spread` apart, of a causal prefill; of spread 0 a figure without samples."""
    medians = [us * (1 + step * spread) for step in (-2, -1, 0, 1, 2)] if spread else []
    given = {
        "workload": f"prefill-b4-s{seq}-h8-d256-f16-causal",
        "source": "run.json",
        "recorded": "2026-01-01",
        "processes": tuple(map(make_process, medians)),
        "conditions": CONDITIONS if spread else {},
        **fields,
    }
    return BackendTime(backend, median_us=us, **given)  # type: ignore[arg-type]


def make_table(
    times: Sequence[BackendTime], margin: float = 0.02, incumbent: str = "", family: str = ""
) -> DispatchTable:
    """What is decided from these."""
    points, left_out = make_points(times)
    return make_dispatch_table(points, left_out, margin=margin, incumbent=incumbent, family=family)


@pytest.fixture
def timed() -> Callable[..., BackendTime]:
    """`make_timed`."""
    return make_timed


@pytest.fixture
def process() -> Callable[..., ProcessSummary]:
    """`make_process`."""
    return make_process


@pytest.fixture
def table() -> Callable[..., DispatchTable]:
    """`make_table`."""
    return make_table
