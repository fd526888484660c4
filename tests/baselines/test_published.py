from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from kernels import register
from kernels.hip.steps import STEPS
from pytest_attnperf.backends import Registry
from pytest_attnperf.baselines.published import PublishedReport, PublishedRow, collect_published, load_published
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.reports.run.published_times import published_table
from pytest_attnperf.stats.comparison import compare_processes
from pytest_attnperf.workloads.families import FAMILIES
from suites.block_workloads import BASELINE
from suites.hip_workloads import HIP_SEED

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "baselines" / "published"
SPEEDUP_DIGITS = {"mi300x": 2, "hip": 1}


def report(prefix: str) -> PublishedReport:
    """The one committed report whose file name begins so."""
    paths = sorted(PUBLISHED.glob("*.json"))
    return load_published(PUBLISHED)[[path.name.startswith(prefix) for path in paths].index(True)]


def printed_speedups(prefix: str) -> list[tuple[PublishedRow, PublishedRow]]:
    """Each row that prints a speedup, with the reference row of the same table and workload."""
    found = report(prefix)
    references = {(row.table, row.workload): row for row in found.rows if row.backend == found.speedup_reference}
    return [(row, references[row.table, row.workload]) for row in found.rows if row.speedup is not None]


def test_both_tables_and_the_appendix_are_there() -> None:
    """Four configurations by three backends, before and after tuning, and the two rows at d_k=64."""
    rows = report("mi300x").rows
    assert [sum(row.table.startswith(name) for row in rows) for name in ("before", "after", "appendix")] == [12, 12, 2]
    tuned = {row.time_us: row.config for row in rows if row.table == "after tuning"}
    assert (tuned[162.0]["BLOCK_M"], tuned[162.0]["BLOCK_N"], tuned[162.0]["PRELOAD_V"]) == ("64", "32", "true")


@pytest.mark.parametrize(("prefix", "count"), [("mi300x", 16), ("hip", 3)])
def test_printed_speedups_follow_from_the_printed_times(prefix: str, count: int) -> None:
    """Every printed speedup lies within what the rounding of both printed times and of itself allows."""
    half_time_us, half_speedup = 0.5, 0.5 * 10 ** -SPEEDUP_DIGITS[prefix]
    pairs = printed_speedups(prefix)
    assert len(pairs) == count
    for row, reference in pairs:
        assert row.speedup is not None
        lowest = (reference.time_us - half_time_us) / (row.time_us + half_time_us) - half_speedup
        highest = (reference.time_us + half_time_us) / (row.time_us - half_time_us) + half_speedup
        assert lowest <= row.speedup <= highest, row


def test_the_caveat_counts_the_speedups_that_look_wrong() -> None:
    """As many speedups differ in the last digit from the quotient of the printed times as the caveat says."""
    differing = [row for row, base in printed_speedups("mi300x") if round(base.time_us / row.time_us, 2) != row.speedup]
    assert any(f"but {len(differing)} differ in the last digit" in caveat for caveat in report("mi300x").caveats)


def test_untouched_backends_differ_as_the_caveat_says() -> None:
    """Native and CK moved by 0.1 to 1.7 % between the two tables: the published run-to-run floor."""
    rows = {(row.table, row.workload, row.backend): row.time_us for row in report("mi300x").rows}
    moved = [
        abs(rows["after tuning", workload, backend] / time_us - 1)
        for (table, workload, backend), time_us in rows.items()
        if table == "before tuning" and backend != "aiter.triton"
    ]
    assert (round(100 * min(moved), 1), round(100 * max(moved), 1)) == (0.1, 1.7)
    assert any("by 0.1 to 1.7 %" in caveat for caveat in report("mi300x").caveats)


def test_every_row_belongs_to_a_workload_that_exists() -> None:
    """Row ids parse back to the workload they name, so they meet the measured cases."""
    for published in load_published(PUBLISHED):
        for row in published.rows:
            assert FAMILIES.parse_workload(row.workload).id == row.workload


def test_every_backend_of_a_row_exists() -> None:
    """Rows name backends that this project registers, so that they stand beside measured ones."""
    registry = Registry()
    register(registry)
    named = {row.backend for published in load_published(PUBLISHED) for row in published.rows}
    assert named <= {backend.name for backend in registry}


def test_expected_ladder_meets_its_suite() -> None:
    """The table of naive, shared memory and flash names steps of the HIP ladder and a workload that its suite runs."""
    rows = report("hip_ladder").rows
    assert [row.backend for row in rows] == [step.name for step in STEPS[:3]]
    assert {row.workload for row in rows} == {workload.id for workload in HIP_SEED}


def test_layer_baseline_meets_its_suite() -> None:
    """The published 418 ms are of the workload that the layer's performance baseline times, with its caveats."""
    published = report("rocmforge")
    assert [(row.workload, row.time_us) for row in published.rows] == [(BASELINE[0].id, 418300.0)]
    assert not published.device
    assert f"{BASELINE[0].flops / 1e6:.1f} million operations" in " ".join(published.caveats)


def test_every_report_states_source_method_and_caveats() -> None:
    """Each report says where it comes from, how it measured and what is wrong with it; the table prints all of it."""
    reports = load_published(PUBLISHED)
    assert len(reports) == 3
    for published in reports:
        assert published.source
        assert published.method
        assert published.caveats
        shown = collect_published(PUBLISHED, [row.workload for row in published.rows], None)
        text = " ".join(published_table(shown, width=80).split())
        assert all(" ".join(said.split()) in text for said in (published.title, published.method, *published.caveats))


def test_figures_of_a_run_are_those_of_its_workloads() -> None:
    """The rows of one workload come with their report, and are of the run's device or are not; an unknown workload,
    and a project without published figures, have none."""
    workload, mi300x = "prefill-b4-s1024-h8-d64-f16-causal", DeviceInfo("rocm", "gfx942", "mi300x")
    (found,) = collect_published(PUBLISHED, [workload, "prefill-b1-s1-h1-d64-f16"], mi300x)
    assert [(row.workload, row.backend.split(" ")[0], row.time_us) for row in found.rows] == [
        (workload, "ck", 154.0),
        (workload, "aiter.triton", 152.0),
    ]
    assert (found.device, found.same_device) == ("AMD Instinct MI300X (gfx942)", True)
    for device in (None, DeviceInfo("rocm", "gfx942", "mi325x"), DeviceInfo("cuda", "sm_90", "h200")):
        assert [one.same_device for one in collect_published(PUBLISHED, [workload], device)] == [False]
    assert collect_published(PUBLISHED, ["prefill-b1-s1-h1-d64-f16"], mi300x) == ()
    assert collect_published(PUBLISHED / "none", [workload], mi300x) == ()


def test_nothing_that_judges_can_see_published_figures() -> None:
    """No module that measures, compares or decides imports them, and a comparison refuses their rows."""
    package = ROOT / "pytest_attnperf"
    judging = [path for folder in ("gate", "stats", "session", "measure") for path in (package / folder).rglob("*.py")]
    assert len(judging) > 5
    for path in judging:
        imported = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        assert not [node for node in imported if "published" in ast.unparse(node)], path
    rows: Any = report("mi300x").rows
    with pytest.raises(TypeError, match="holds a PublishedRow, not a ProcessSummary"):
        compare_processes(rows, rows, 0.01, 3.0)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"schema": 1', '"schema": 2', "field `schema` is 2; this version reads 1"),
        ('"time_us": 274.0', '"time_us": -1', r"field `rows\[0\].time_us` is -1.0, expected a positive time"),
        ('"time_us": 274.0', '"time_us": "fast"', r"Expected `float`, got `str` - at `\$.rows\[0\].time_us`"),
        ("{", "", "is not a published report"),
    ],
)
def test_an_unsound_report_is_named(tmp_path: Path, old: str, new: str, text: str) -> None:
    """A newer, damaged or meaningless report is an error naming file and field."""
    path = tmp_path / "broken.json"
    path.write_text((PUBLISHED / "mi300x_ck_triton_native.json").read_text().replace(old, new, 1))
    with pytest.raises(BaselineError, match=text) as caught:
        load_published(tmp_path)
    assert str(path) in str(caught.value)


def test_an_absent_folder_holds_no_reports(tmp_path: Path) -> None:
    """A project without published figures has none, which is no error."""
    assert load_published(tmp_path / "none") == []
