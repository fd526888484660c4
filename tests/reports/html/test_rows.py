from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_attnperf.records import DeviceInfo, Verdict
from pytest_attnperf.reports.html.embedding import pack_json
from pytest_attnperf.reports.html.rows import (
    CaseTable,
    build_table,
    format_key,
    list_cells,
    parse_length,
    to_columnar_json,
)
from pytest_attnperf.reports.run.joined import join_runs, join_single
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import sample_run

Case = Callable[..., CaseResult]
Run = Callable[..., RunResult]


def _texts(table: CaseTable, name: str) -> list[str]:
    column = next(column for column in table.columns if column.name == name)
    return [column.text(row) for row in table.rows]


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ("prefill-b4-s512-h8-d256-f16", ("prefill-b4-s*-h8-d256-f16", 512)),
        ("prefill-b1-s512-kv2048-h16-d96", ("prefill-b1-s512-kv*-h16-d96", 2048)),
        ("decode-b8-kv4096", ("decode-b8-kv*", 4096)),
        ("prefill-s64", ("prefill-s*", 64)),
        ("softmax-m4096-n64", None),
        ("a-split4-h2", None),
        ("a-s" + "9" * 40, None),
    ],
)
def test_length_of_a_workload(workload: str, expected: tuple[str, int] | None) -> None:
    """The sequence length is the keys' own where they have one; a workload without has none."""
    assert parse_length(workload) == expected


def test_rows_are_worst_first(case: Case, run: Run) -> None:
    """Failing cases stand first, and a row's cells are the reports' formatted figures."""
    same = case("b", verdict=Verdict.SAME, fails=False, ratio=1.0, interval=None)
    table = build_table(join_single(run(same, case("a"))))
    assert _texts(table, "verdict") == ["SLOWER", "SAME"]
    assert _texts(table, "ms") == ["26.10", "26.10"]
    assert _texts(table, "change") == ["+6.1 %", "0.0 %"]
    assert _texts(table, "interval") == ["+5.2 % .. +7.0 %", "-"]
    assert table.keys[0] == "sm_90/h200 prefill/a/prefill-b4-s512-h8-d256-f16-causal"


def test_columns_without_a_figure_are_left_out(case: Case, run: Run) -> None:
    """A column that says nothing of any case is not there; device and suite are hidden where all rows agree."""
    table = build_table(join_single(run(case("a", peak_memory_bytes=None, detection_limit=None))))
    names = [column.name for column in table.columns]
    assert not {"peak", "finds", "speedup"} & set(names)
    assert {"device", "suite", "family"} == table.hidden
    assert not {"device", "suite"} & {column.name for column in table.shown_columns}
    assert len(list_cells(table, table.rows)[0]) == len(table.shown_columns)


def test_one_case_on_two_devices_is_two_rows(case: Case, run: Run) -> None:
    """The same object on two devices keeps both, and the device is shown."""
    one = run(case("a"))
    other = replace(one, device=DeviceInfo("rocm", "gfx942", "mi300x"))
    table = build_table(join_runs([("a", one), ("b", other)]))
    assert sorted(_texts(table, "device")) == ["gfx942/mi300x", "sm_90/h200"]
    assert "device" not in table.hidden
    assert len(set(table.keys)) == 2


@pytest.mark.parametrize(
    ("backends", "reference"),
    [
        (("native.eager_fp32", "native.sdpa", "a"), "native.eager_fp32"),
        (("native.sdpa", "a"), "native.sdpa"),
        (("a", "b"), ""),
    ],
)
def test_speedup_is_over_one_named_backend(case: Case, run: Run, backends: tuple[str, ...], reference: str) -> None:
    """It is over the float32 reference, else over a torch backend; without any there is no such column."""
    cases = [case(backend, median_us=10.0 * (index + 1)) for index, backend in enumerate(backends)]
    table = build_table(join_single(run(*cases)))
    assert table.reference == reference
    found = dict(zip([row.shown.case.key.backend for row in table.rows], table.rows, strict=True))
    expected = 1 / len(backends) if reference else None
    assert found[backends[-1]].speedup == (pytest.approx(expected) if reference else None)
    assert ("speedup" in [column.name for column in table.columns]) is bool(reference)


def test_columnar_holds_every_text_once(case: Case, run: Run) -> None:
    """Texts are words and codes, figures have a number to sort by, and groups are of workloads of several lengths."""
    workloads = ("p-s512-d64", "p-s1024-d64", "q-s64-d64")
    data = to_columnar_json(build_table(join_single(run(*(case("a", workload=workload) for workload in workloads)))))
    columns = {column["name"]: column for column in data["columns"]}
    assert columns["verdict"]["words"] == ["SLOWER"]
    assert columns["verdict"]["codes"] == [0, 0, 0]
    assert "sort" not in columns["workload"]
    assert columns["ms"]["sort"] == [pytest.approx(0.0261)] * 3
    assert data["groups"] == ["sm_90/h200 prefill/p-s*-d64"]
    assert sorted(zip(data["length"], data["group"], strict=True), key=str) == [(1024, 0), (512, 0), (64, None)]
    assert data["fails"] == [1, 1, 1]


def test_foreign_names_are_cut(case: Case, run: Run) -> None:
    """A name of 100 kB is one short line wherever it stands."""
    table = build_table(join_single(run(case("x" * 100_000, workload="\x1b[31m\n" * 9_000, label="l" * 9_000))))
    texts = [*list_cells(table, table.rows)[0], format_key(table.rows[0].shown)]
    assert max(map(len, texts)) <= 400
    assert not any("\n" in text or "\x1b" in text for text in texts)


def test_no_cases_are_a_table_without_rows(run: Run) -> None:
    """An empty run has a table, too."""
    data = to_columnar_json(build_table(join_single(run())))
    assert (data["keys"], data["columns"]) == ([], [])


def test_a_row_takes_little_room() -> None:
    """Every case is in the table's data, in fewer than 100 bytes: ten thousand take a third of the page."""
    data = to_columnar_json(build_table(join_single(sample_run(800))))
    assert len(data["keys"]) == 800
    assert len(pack_json(data)) < 80_000
