from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.files.junit import properties
from pytest_attnperf.results import CaseResult

CaseFactory: TypeAlias = Callable[..., CaseResult]


def test_figures_are_unrounded_builtins(case: CaseFactory) -> None:
    """Properties hold the verdict and every known figure as plain builtins."""
    found = dict(properties(case(median_us=26.123456789)))
    assert found["attnperf.verdict"] == "SLOWER"
    assert type(found["attnperf.verdict"]) is str
    assert found["attnperf.median_us"] == 26.123456789
    assert found["attnperf.ratio_high"] == 1.07
    assert found["attnperf.processes"] == 5
    assert {type(value) for value in found.values()} <= {str, int, float}
    assert json.loads(json.dumps(found)) == found


def test_pairs_and_what_they_were_against(case: CaseFactory) -> None:
    """A case settled by pairs says how many and against what; another has neither property."""
    pairs = (PairSummary(1.061, 24.6, 26.1, 8, "graph"),) * 8
    found = dict(properties(case(pairs=pairs, against="main (4f2c1ab)")))
    assert (found["attnperf.pairs"], found["attnperf.against"]) == (8, "main (4f2c1ab)")
    assert {"attnperf.pairs", "attnperf.against"}.isdisjoint(dict(properties(case())))


def test_unknown_figures_are_left_out(case: CaseFactory) -> None:
    """What is not known has no property."""
    unknown = case(
        median_us=None, interval=None, figures=None, first=(), second=(), floor_us=None, reproduce="", label=""
    )
    names = {name for name, _ in properties(unknown)}
    assert names.isdisjoint(
        f"attnperf.{name}" for name in ("median_us", "ratio_low", "flops", "processes", "floor_us", "reproduce")
    )
    assert "attnperf.verdict" in names
