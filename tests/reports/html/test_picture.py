from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.records import Verdict, WorkloadFigures
from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.reports.html.charts import build_config
from pytest_attnperf.reports.html.page_charts import MARKS
from pytest_attnperf.reports.html.picture import build_picture
from pytest_attnperf.reports.html.rows import build_table
from pytest_attnperf.reports.run.joined import join_runs, join_single
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import sample_run

Case = Callable[..., CaseResult]
Run = Callable[..., RunResult]

CEILINGS = [Ceiling(1e15, "FLOP/s", "peak", "f16 matrix"), Ceiling(4e12, "B/s", "measured", "DRAM")]
MEASURED = [*CEILINGS, Ceiling(7e14, "FLOP/s", "measured", "f16 matrix")]


def picture_of(*runs: RunResult, ceilings: Mapping[str, Sequence[Ceiling]] | None = None) -> Any:
    """The picture of the page of these runs."""
    joined = join_runs([(f"{number}.json", run) for number, run in enumerate(runs)])
    return build_picture(build_table(joined), ceilings or {})


def recorded(cases: int = 12) -> RunResult:
    """A run that compared nothing."""
    return sample_run(cases, verdicts=[Verdict.NO_BASELINE])


def test_gated_cases_are_drawn_by_their_change(case: Case, run: Run) -> None:
    """Change, interval and limit are in percent, and a case without a change has none of them."""
    slower = case("a", verdict=Verdict.SLOWER, ratio=1.061, interval=(1.05, 1.072), threshold=1.02)
    wrong = case("b", verdict=Verdict.INCORRECT, ratio=None, interval=None, threshold=1.02)
    found = picture_of(run(slower, wrong))
    order = [row.shown.case.verdict for row in build_table(join_single(run(slower, wrong))).rows]
    at = order.index(Verdict.SLOWER)
    assert found["kind"] == "changes"
    figures = [found[name][at] for name in ("change", "low", "high", "limit")]
    assert figures == pytest.approx([6.1, 5.0, 7.2, 2.0])
    assert [found[name][1 - at] for name in ("change", "low", "high", "limit")] == [None] * 4


def test_figures_that_are_no_numbers_are_none(case: Case, run: Run) -> None:
    """NaN and infinity are not JSON, and nothing is drawn of them."""
    bad = case("a", ratio=float("nan"), interval=(float("-inf"), float("inf")), threshold=float("inf"))
    found = picture_of(run(bad))
    json.dumps(found, allow_nan=False)
    assert [found[name] for name in ("change", "low", "high", "limit")] == [[None]] * 4


def test_without_a_change_times_are_drawn() -> None:
    """A run without a baseline shows the share of the floor of each backend."""
    found = picture_of(recorded())
    assert (found["kind"], found["unit"]) == ("times", "%")
    assert found["title"] == "least possible time / time (%)"
    assert found["names"] == sorted(found["names"])
    assert {"ck", "native.eager"} <= set(found["names"])
    assert all(0 < value <= 100 for value in found["value"])


def test_roofline_comes_before_the_floor_and_speedup_before_time() -> None:
    """The first figure that half of the cases have is drawn; a time is the last resort."""
    run = recorded()
    assert picture_of(run, ceilings={"sm_90/sample": MEASURED})["title"] == "share of the roofline (%)"
    bare = replace(run, cases=tuple(replace(case, floor_us=None, figures=None) for case in run.cases))
    assert picture_of(bare)["title"] == "times as fast as native.eager"
    alone = replace(bare, cases=tuple(case for case in bare.cases if case.key.backend == "ck"))
    found = picture_of(alone)
    assert (found["title"], found["unit"]) == ("time per call", "us")
    assert sorted(found["value"]) == pytest.approx(sorted(case.median_us or 0.0 for case in alone.cases), rel=1e-3)


def test_rows_are_suites_where_there_are_several() -> None:
    """A row per suite; with several devices a row per device and suite."""
    first = recorded()
    second = replace(first, cases=tuple(replace(case, key=replace(case.key, suite="decode")) for case in first.cases))
    assert picture_of(first, second)["names"] == ["decode", "prefill"]
    other = sample_run(6, product="other", verdicts=[Verdict.NO_BASELINE])
    assert picture_of(first, other)["names"] == ["sm_90/other prefill", "sm_90/sample prefill"]


@pytest.mark.parametrize("cases", [0, 3])
def test_nothing_timed_is_no_picture(cases: int) -> None:
    """An empty frame says nothing."""
    assert picture_of(sample_run(cases, verdicts=[Verdict.UNSUPPORTED])) is None


def test_every_verdict_has_its_mark() -> None:
    """Verdicts of one colour that fail differently have different shapes, and none is left out."""
    assert set(MARKS) == set(Verdict)
    assert len({MARKS[verdict] for verdict in (Verdict.SLOWER, Verdict.INCORRECT, Verdict.FASTER, Verdict.SAME)}) == 4


@pytest.mark.parametrize("verdict", [Verdict.SAME, Verdict.NO_BASELINE])
def test_picture_is_drawn(verdict: Verdict) -> None:
    """Both kinds compile and draw a mark for each case."""
    vl_convert = pytest.importorskip("vl_convert", reason="drawing needs vl_convert")
    point = {"at": 0, "change": 1.0, "low": 0.5, "high": 1.5, "mark": "SLOWER", "value": 40.0, "row": "0000 a"}
    label = {**point, "label": "limit"}
    data = {"points": [point, {**point, "at": 1}], "band": [point], "rest": [point], "labels": [label]}
    spec = {**picture_of(sample_run(4, verdicts=[verdict]))["spec"], "datasets": data, "width": 500}
    svg = vl_convert.vegalite_to_svg(spec, config=build_config())
    assert svg.count('aria-roledescription="point"') == 2
    assert ">limit</text>" in svg


def test_hostile_names_are_data(hostile: RunResult) -> None:
    """A suite's name is in a list, never in the specification."""
    found = picture_of(hostile)
    assert "pwned" not in json.dumps(found["spec"])
    untimed = replace(hostile, cases=tuple(replace(case, ratio=None) for case in hostile.cases))
    found = picture_of(untimed)
    assert "pwned" not in json.dumps(found["spec"]).replace(json.dumps(found["title"]), "")


def test_share_needs_figures_that_mean_something(case: Case, run: Run) -> None:
    """FLOPs of zero and no bytes give no share."""
    empty = WorkloadFigures(0.0, 0.0, "f16", "hot")
    found = picture_of(run(case("a", ratio=None, interval=None, figures=empty, floor_us=None)))
    assert found["unit"] == "us"
