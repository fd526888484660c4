from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.reports.html.charts import COLOURS
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.tools.dispatch.dispatch_page import LISTED, MAPS, ROWS, build_sections
from pytest_attnperf.tools.dispatch.dispatch_record import DispatchRecord, LeftOutRecord, PointRecord, make_record
from tests.reports.html.conftest import HOSTILE

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Check = Callable[[str, int], None]
Make = Callable[..., Any]


@pytest.fixture
def record(timed: Make, table: Make) -> DispatchRecord:
    """Head sizes 64 and 128, lengths 512, 1024 and 2048, causal or not; at 1024 a tie, at 2048 one backend."""
    times = []
    for dim in (64, 128):
        for causal in ("", "-causal"):
            for seq, others in ((512, 2.0), (1024, 1.0), (2048, None)):
                workload = f"prefill-b4-s{seq}-h8-d{dim}-f16{causal}"
                times.append(timed("ck", 1.0, workload=workload))
                times += [] if others is None else [timed("triton.flash", others, workload=workload)]
    return make_record(table(times), ["H200", "recorded today"])


def one_point(name: str, backend: str, family: str = "prefill") -> dict[str, Any]:
    """Fields of a shape with one point, for `replace`."""
    point = PointRecord(name, 512, backend, "clear", True, "other", 9.0, (8.0, 10.0), {backend: 1.0, "other": 1.09})
    return {"family": family, "shape": name, "points": (point,)}


def with_shapes(record: DispatchRecord, shapes: list[dict[str, Any]]) -> DispatchRecord:
    """The record with these shapes alone."""
    like = record.groups[0]
    groups = tuple(
        replace(
            like,
            family=shape["family"],
            shape=shape["shape"],
            fields={"label": shape["shape"]},
            regions=(replace(like.regions[0], points=shape["points"]),),
        )
        for shape in shapes
    )
    return replace(record, groups=groups, incumbents={"prefill": "ck"})


def test_a_map_for_each_combination_of_the_other_fields(record: DispatchRecord, check_page: Check) -> None:
    """Length by head size, one map causal and one not; clear, tied, alone are told apart; all points are in a table."""
    source, section = build_sections(record)
    assert source.lead == ("H200", "recorded today")
    assert [figure.title for figure in section.figures] == [
        "prefill, not causal, by sequence length", "prefill, causal, by sequence length"
    ]  # fmt: skip
    data = section.figures[0].data
    assert [row["name"] for row in data["rows"]] == ["head_dim 64", "head_dim 128"]
    assert {name: [cell["words"] for cell in data[name]] for name in ("full", "pale", "outline")} == {
        "full": ["+100.0 %"] * 2, "pale": ["tie"] * 2, "outline": ["only one"] * 2
    }  # fmt: skip
    assert len(section.tables[0].rows) == 12
    assert section.folded
    check_page(render_document("Dispatch", [source, section]), 2)


def test_scattered_shapes_are_rows_of_one_map(record: DispatchRecord, check_page: Check) -> None:
    """Where a map for each combination would have a cell or two, one map has a row for each shape, at most ROWS."""
    found = with_shapes(record, [one_point(f"shape {number}", "ck") for number in range(30)])
    _, section = build_sections(found)
    (figure,) = section.figures
    assert len(figure.data["rows"]) == ROWS
    assert "Not drawn: 6 rows; the table has all points." in figure.caption
    check_page(render_document("Dispatch", build_sections(found)), 1)


def test_colours_end_and_then_share_one(record: DispatchRecord) -> None:
    """The backends that are chosen most have a colour of their own; all others share the last."""
    found = with_shapes(record, [one_point(f"shape {number}", f"b{number}") for number in range(12)])
    figure = build_sections(found)[1].figures[0]
    colours = [layer["encoding"]["color"]["scale"] for layer in figure.spec["layer"] if "color" in layer["encoding"]]
    assert colours[0]["range"][:8] == list(COLOURS)
    assert set(colours[0]["range"][7:]) == {COLOURS[-1]}


def test_the_largest_maps_are_drawn(record: DispatchRecord) -> None:
    """Of many families MAPS have a map; the others say so, and have their table."""
    found = with_shapes(record, [one_point("s", "ck", f"family{number}") for number in range(MAPS + 3)])
    sections = build_sections(found)[1:]
    assert sum(len(section.figures) for section in sections) == MAPS
    assert sections[-1].lead == ("No map: the page has the largest maps only.",)
    assert sections[-1].tables[0].rows


def test_ten_thousand_points_stay_a_page(record: DispatchRecord) -> None:
    """The table is bounded, and says so."""
    shapes = [one_point(f"s{number}", "ck") for number in range(10_000)]
    (table,) = build_sections(with_shapes(record, shapes))[1].tables
    assert len(table.rows) == LISTED
    assert table.caption == "All points of prefill, the first 2000 of 10000"


def test_nothing_to_choose_is_said(record: DispatchRecord, check_page: Check) -> None:
    """A family with one backend has no map; a page without families is its sources."""
    alone = replace(record, groups=(), left_out=(LeftOutRecord("ck", "prefill-b1", "INCORRECT"),))
    (source,) = build_sections(alone)
    assert "Nothing to choose, because no case has more than one backend: prefill (ck)." in source.lead
    assert [table.caption for table in source.tables] == ["Never measured, so the incumbent is chosen"] * bool(
        alone.never_combined
    ) + ["Left out of all decisions: 1"]
    check_page(render_document("Dispatch", [source]), 0)


def test_hostile_names_stay_names(record: DispatchRecord, check_page: Check) -> None:
    """Families, shapes, backends and reasons that are scripts, control characters or lone surrogates."""
    found = with_shapes(record, [one_point(f"{text}{n}", text, text) for n, text in enumerate(HOSTILE)])
    left_out = tuple(LeftOutRecord(text, text, text) for text in HOSTILE)
    found = replace(found, told=HOSTILE, left_out=left_out, incumbents={text: text for text in HOSTILE})
    check_page(render_document("Dispatch", build_sections(found)), len(HOSTILE))
