from __future__ import annotations

from pytest_attnperf.reports.html.row_layout import lay_out_rows, make_row_texts, make_upright_lines


def test_rows_are_as_high_as_the_longest_name() -> None:
    """A name that needs two lines on a narrow page makes every row higher; no row is a layout of one."""
    short, long = lay_out_rows(["a"], [""]), lay_out_rows(["a", "n" * 60], ["", ""])
    assert long.row_px > short.row_px
    assert long.height == 2 * long.row_px
    assert lay_out_rows([], []).count == 1


def test_wide_values_leave_names_less_room() -> None:
    """A name beside a long value is broken where beside a short one it is whole."""
    name = "prefill-b4-s512-h8-d256-f16-causal"
    assert len(lay_out_rows([name], ["1 us"]).labels[name]["short"]) == 1
    assert len(lay_out_rows([name], ["1234567.8 us, 100.0x"]).labels[name]["short"]) == 2


def test_layers_read_the_named_data() -> None:
    """Names and values of one set, lines of another; values are places of a row, not pixels of the chart."""
    layout = lay_out_rows(["a"], ["1 us"])
    assert [layer["data"]["name"] for layer in make_row_texts(layout, "rows")] == ["rows", "rows"]
    assert {layer["data"]["name"] for layer in make_upright_lines("marks")} == {"marks"}
    assert 0 < layout.at(layout.middle_px)["bandPosition"] < 1
