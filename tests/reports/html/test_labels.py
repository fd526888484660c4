from __future__ import annotations

import pytest

from pytest_attnperf.reports.html.labels import count_cells, encode_label, estimate_px, make_labels, make_legend
from pytest_attnperf.reports.text.text_width import display_width

LONG = "prefill/native.sdpa_flash/prefill-b4-s4096-h8-d256-f16-causal"


def test_long_name_has_a_short_form_of_two_lines() -> None:
    """The short form breaks behind a separator; both lines together are the name."""
    label = make_labels([LONG], 36)[LONG]
    assert label["name"] == LONG
    assert label["short"] == ["prefill/native.sdpa_flash/prefill-", "b4-s4096-h8-d256-f16-causal"]


@pytest.mark.parametrize("name", ["", "a", "\x1b[31m\ud800", "漢" * 40, "x" * 5000, "-" * 73])
def test_no_line_is_wider_than_its_room(name: str) -> None:
    """Whatever the name is, it has at most two lines, each with at most so many cells, and no control character."""
    label = make_labels([name], 36)[name]
    assert 1 <= len(label["short"]) <= 2
    assert all(display_width(line) <= 36 for line in label["short"])
    assert "\x1b" not in "".join([label["name"], *label["short"]])


def test_two_names_have_two_short_forms() -> None:
    """Names that differ in their middle only are numbered."""
    names = [f"{'a' * 60}{number}{'b' * 60}" for number in range(3)]
    found = [tuple(label["short"]) for label in make_labels(names, 20).values()]
    assert len(set(found)) == 3


def test_wide_letters_count_more() -> None:
    """A name of wide letters gets fewer cells than one of narrow ones, so that it fits."""
    assert estimate_px("mmm") > estimate_px("nnn") > estimate_px("lll")
    assert count_cells(300, ["m" * 80]) < count_cells(300, ["n" * 80]) <= count_cells(300, ["l" * 80])


def test_legend_has_room_for_its_longest_name() -> None:
    """Its columns are as wide as the longest name, whatever the chart's width is."""
    assert make_legend(["n" * 30])["columns"] == {"expr": f"max(1, floor(width / {estimate_px('n' * 30) + 36}))"}


def test_room_is_at_least_one_cell() -> None:
    """A figure that takes the whole width leaves one cell, not none or fewer."""
    assert count_cells(-50) == 1


def test_whole_name_needs_room_for_its_neighbour() -> None:
    """The condition compares the chart's width with the name's and with what stands beside it."""
    assert encode_label(30)["condition"]["test"] == "width > datum.name_px + 30"
