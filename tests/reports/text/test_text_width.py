from __future__ import annotations

import random

import pytest

from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.reports.text.text_width import (
    both_ends,
    cut_before_command,
    cut_text,
    display_width,
    shorten_distinctly,
    wrap_text,
)


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("ascii", 5), ("注意力", 6), ("e\u0301", 1), ("\uff0b\uff16", 4), ("±5 µs", 5), ("🚀", 2)],
)
def test_cells_of_a_text(text: str, width: int) -> None:
    """Wide characters take two cells, combining marks none, other letters one."""
    assert display_width(text) == width


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 5, "short"),
        ("abcdefghij", 9, "abc...hij"),
        ("abcdefghij", 8, "abc...ij"),
        ("abcdefghij", 4, "abcd"),
        ("abcdefghij", 0, ""),
        ("abcdefghij", -3, ""),
        ("注意力前向反向", 11, "注意...反向"),
        ("注意力前向反向", 10, "注意...向"),
    ],
)
def test_both_ends_stay(text: str, width: int, shown: str) -> None:
    """The middle goes; where there is no room for two ends the beginning stays; a wide character is never halved."""
    assert cut_text(text, width) == shown
    assert display_width(cut_text(text, width)) <= max(0, width)


def test_a_huge_name_is_safe_and_keeps_its_end() -> None:
    """100 kB with an escape sequence become one line with the end still there."""
    text = both_ends(f"begin\x1b[2J{'x' * 100_000}\nend")
    assert text.startswith("begin [2J")
    assert text.endswith(" end")
    assert len(text) < 500


def test_names_are_never_shown_alike() -> None:
    """Names that differ in what is cut away are numbered, also where another is called like the outcome."""
    names = ["start-1-end of it", "start-2-end of it", "start-3-end of it", "st...it#1", "start-1-end of it"]
    shown = shorten_distinctly(names, 9)
    assert list(shown) != []
    assert set(shown) == set(names)
    assert len(set(shown.values())) == 4
    assert shown["st...it#1"] == "st...it#1"
    assert shown["start-1-end of it"] == "st...it#2"
    assert all(display_width(text) <= 9 for text in shown.values())


def test_control_characters_do_not_make_names_alike() -> None:
    """Two names that differ in what a terminal must not get are told apart."""
    shown = shorten_distinctly(["a\x1bb", "a\x07b"], 20)
    assert list(shown.values()) == ["a b#1", "a b#2"]


def test_a_hundred_names_of_100_kb_are_told_apart() -> None:
    """Numbers go as far as there are names."""
    names = [f"{'x' * 50_000}{index}{'y' * 50_000}" for index in range(100)]
    shown = shorten_distinctly(names, 20)
    assert len(set(shown.values())) == 100
    assert shown[names[99]].endswith("yy#100")


def test_text_is_wrapped_between_words() -> None:
    """Further lines are indented, and no word is lost."""
    assert wrap_text("errors up to 3 x are allowed", 12) == ["errors up to", "  3 x are", "  allowed"]
    assert wrap_text("short", 12) == ["short"]
    assert wrap_text("", 12) == [""]


def test_a_command_is_neither_broken_nor_cut() -> None:
    """It has a line of its own, longer than the width; a cut goes before it."""
    command = 'pytest --update-baselines --attnperf-arch=gfx942 "suites/t.py::t[a b-c]"'
    assert wrap_text(f"nothing is stored; store one with: {command}", 20) == [
        "nothing is stored;",
        "  store one with:",
        f"  {command}",
    ]
    assert cut_before_command(f"store one with: {command}", 40) == "store one with: ..."
    assert cut_before_command(f"store one with: {command}", 200) == f"store one with: {command}"


@pytest.mark.parametrize("seed", range(5))
def test_a_long_word_stays_whole_on_its_line(seed: int) -> None:
    """Words of any width, wide characters among them, are never broken: only a single one may be wider than asked."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("ab注力", k=draw.randrange(1, 60))) for _ in range(20)]
    lines = wrap_text(" ".join(words), 25)
    assert [word for line in lines for word in line.split()] == words
    assert all(display_width(line) <= 25 or len(line.split()) == 1 for line in lines)


@pytest.mark.parametrize("length", range(20))
def test_no_line_begins_with_a_command(length: int) -> None:
    """However long the word before it is, '::' begins no line."""
    word = one_line(f"{'a' * length}::stop-commands::x {'b' * length} ::stop-commands::y")
    assert not any(line.lstrip().startswith("::") for width in range(6, 20) for line in wrap_text(word, width))
