from __future__ import annotations

import pytest

from pytest_attnperf.gate.code.causes import (
    describe_line_changes,
    describe_lines_holding,
    describe_settings_change,
    format_change,
    instruction_kind,
    join_parts,
    list_count_changes,
)
from pytest_attnperf.records.code import SourceLine

K = SourceLine("prefill.py", 87, "k = tl.load(k_ptrs)", {"global_load_16B": 8})
DOT = SourceLine("prefill.py", 93, "acc = tl.dot(p, v, acc)", {"matrix": 64, "lds_read_16B": 32})


def any_class(_: str) -> bool:
    """Every class is of interest."""
    return True


def stored(*lines: SourceLine) -> tuple[SourceLine, ...]:
    """The lines without their numbers, as a baseline has them."""
    return tuple(SourceLine(line.file, 0, line.text, line.counts) for line in lines)


def test_settings_that_differ_are_named_with_their_file() -> None:
    """Changed, new and dropped settings, in alphabetical order; equal ones are not named."""
    now = {"BLOCK_M": "128", "num_warps": "4", "waves_per_eu": "2"}
    before = {"BLOCK_M": "64", "num_warps": "4", "PRELOAD_V": "true"}
    changes = "BLOCK_M 64 -> 128, PRELOAD_V true -> absent, waves_per_eu absent -> 2"
    assert describe_settings_change(now, before, "configs/a.json") == f"{changes} in configs/a.json"
    assert describe_settings_change(now, before) == changes
    assert describe_settings_change(now, now, "configs/a.json") == ""


def test_a_line_is_found_by_its_text_wherever_it_moved() -> None:
    """A line that moved and became otherwise is named with the number it has now."""
    moved = SourceLine("prefill.py", 90, K.text, {"global_load_2B": 64})
    assert describe_line_changes([moved, DOT], stored(K, DOT), any_class) == (
        "prefill.py:90 `k = tl.load(k_ptrs)`: global_load_16B 8 -> 0, global_load_2B 0 -> 64"
    )


def test_unchanged_lines_are_not_named() -> None:
    """Lines that only moved are no cause; neither is anything where one side has no lines at all."""
    assert describe_line_changes([DOT, K], stored(K, DOT), any_class) == ""
    assert describe_line_changes([K], (), any_class) == ""
    assert describe_line_changes([], stored(K), any_class) == ""


def test_an_edited_line_came_and_went() -> None:
    """The line that went is named without a number, since it stands nowhere any more."""
    edited = SourceLine("prefill.py", 87, "k = tl.load(k_ptrs, mask=m)", {"global_load_2B": 64})
    assert describe_line_changes([edited], stored(K), any_class) == (
        "prefill.py:87 `k = tl.load(k_ptrs, mask=m)`: global_load_2B 0 -> 64; "
        "prefill.py `k = tl.load(k_ptrs)`: global_load_16B 8 -> 0"
    )


def test_lines_of_one_text_are_one() -> None:
    """Two lines of equal text are held together against the stored sum of theirs."""
    twice = [K, SourceLine("prefill.py", 120, K.text, {"global_load_16B": 8})]
    once = [SourceLine("prefill.py", 0, K.text, {"global_load_16B": 16})]
    assert describe_line_changes(twice, once, any_class) == ""
    assert describe_line_changes(twice, stored(K), any_class).startswith("prefill.py:87 `k = tl.load(k_ptrs)`: ")


def test_only_classes_of_interest_count() -> None:
    """A change of other classes in the same line is not named."""
    now = [SourceLine("prefill.py", 93, DOT.text, {"matrix": 32, "lds_read_16B": 4})]
    assert describe_line_changes(now, stored(DOT), lambda name: name == "matrix") == (
        "prefill.py:93 `acc = tl.dot(p, v, acc)`: matrix 64 -> 32"
    )
    assert describe_line_changes(now, stored(DOT), lambda name: name == "barrier") == ""


def test_the_largest_changes_come_first_and_the_rest_is_counted() -> None:
    """Three lines are named; how many more there are is said."""
    now = [SourceLine("a.py", number, f"line {number}", {"matrix": number}) for number in range(1, 6)]
    text = describe_line_changes(now, stored(K), lambda name: name == "matrix")
    assert text == (
        "a.py:5 `line 5`: matrix 0 -> 5; a.py:4 `line 4`: matrix 0 -> 4; a.py:3 `line 3`: matrix 0 -> 3; "
        "and 2 more lines"
    )
    assert describe_lines_holding(now[:4], any_class).endswith("; and 1 more line")
    assert "more" not in describe_lines_holding(now[:3], any_class)


def test_lines_that_hold_a_class_are_named() -> None:
    """Those with most come first; a line without any is none of them; what has no text or no line says so."""
    lines = [
        SourceLine("a.py", 3, "", {"scratch_load": 2}),
        SourceLine("a.py", 9, "x = f()", {"scratch_store": 12, "scratch_load": 12, "matrix": 64}),
        SourceLine("a.py", 12, "y = g()", {"matrix": 4}),
        SourceLine("a.py", 13, "z = h()", {"scratch_load": 0}),
        SourceLine("a.py", 0, "", {"scratch_load": 1}),
    ]
    text = describe_lines_holding(lines, lambda name: name.startswith("scratch_"))
    assert text == (
        "a.py:9 `x = f()`: scratch_load 12, scratch_store 12; a.py:3: scratch_load 2; "
        "a.py (no single line): scratch_load 1"
    )


def test_lines_whose_text_is_unknown_are_held_together() -> None:
    """Without their texts the lines of a file are compared as one: their numbers say nothing of the stored ones."""
    now = [SourceLine("a.py", number, "", {"matrix": count}) for number, count in ((3, 8), (9, 4), (0, 1))]
    assert describe_line_changes(now, [SourceLine("a.py", 0, "", {"matrix": 13})], any_class) == ""
    assert describe_line_changes(now, [SourceLine("a.py", 0, "", {"matrix": 9})], any_class) == (
        "a.py (no single line): matrix 9 -> 13"
    )


def test_a_long_line_is_cut() -> None:
    """At most 60 characters of a source line are quoted."""
    for length, quoted in ((200, f"{'x' * 57}..."), (61, f"{'x' * 57}..."), (60, "x" * 60)):
        assert f"`{quoted}`" in describe_lines_holding([SourceLine("a.py", 1, "x" * length, {"matrix": 1})], any_class)


def test_counts_are_listed_widest_first() -> None:
    """Classes of one kind go from wide to narrow; unknown classes come last; equal counts are left out."""
    now = {"global_load_2B": 64, "global_load_16B": 0, "zeta": 1, "matrix": 3}
    before = {"global_load_16B": 8, "global_load_4B": 1, "matrix": 3}
    assert list_count_changes(now, before, any_class) == [
        "global_load_16B 8 -> 0",
        "global_load_4B 1 -> 0",
        "global_load_2B 0 -> 64",
        "zeta 0 -> 1",
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("global_load_16B", "global_load"),
        ("global_load_lds_4B", "global_load_lds"),
        ("global_load", "global_load"),
        ("global_load_tile", "global_load_tile"),
        ("matrix", "matrix"),
    ],
)
def test_a_kind_is_a_class_without_its_width(name: str, kind: str) -> None:
    """Only a width is taken off: what has none is a kind of its own."""
    assert instruction_kind(name) == kind


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("3 waves per SIMD", "1 wave per SIMD", "3 -> 1 waves per SIMD"),
        ("1 VGPR", "12 VGPRs", "1 -> 12 VGPRs"),
        ("0 registers", "12 VGPRs", "0 registers -> 12 VGPRs"),
        ("promised", "not promised", "promised -> not promised"),
        ("64", "128", "64 -> 128"),
    ],
)
def test_equal_units_are_said_once(before: str, after: str, text: str) -> None:
    """Both sides of a change share their unit where they have the same one, singular or plural."""
    assert format_change(before, after) == text


def test_a_sentence_leaves_out_what_is_not_known() -> None:
    """Empty parts leave no separator behind."""
    assert join_parts("a", "", "b", "") == "a; b"
