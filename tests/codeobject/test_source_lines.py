from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.codeobject.source_lines import TEXT_CHARACTERS, source_lines, without_numbers
from pytest_attnperf.records.code import SourceLine


def placed(*rows: tuple[str, str, int] | tuple[str]) -> tuple[list[Instruction], list[str]]:
    """Instructions and their classes, from (class, path, line); without a path they have no place."""
    made = [Instruction("x", "", at, place=row[1:] if len(row) == 3 else None) for at, row in enumerate(rows)]
    return made, [row[0] for row in rows]


def test_lines_stand_in_order_of_their_first_instruction_with_their_text(tmp_path: Path) -> None:
    """Counted by class in the order of CLASSES; arithmetic, and code without a place, is left out."""
    source = tmp_path / "kernel.py"
    source.write_text("def kernel():\n    k = tl.load(k_ptr)\n    s = tl.dot(q, k)\n")
    path = str(source)
    rows = (
        ("valu", path, 1),
        ("matrix", path, 3),
        ("lds_read_8B", path, 2),
        ("global_load_16B", path, 2),
        ("matrix", path, 3),
        ("lds_read_8B", path, 2),
        ("barrier",),
        ("scratch_store", path, 3),
    )
    assert source_lines(*placed(*rows)) == (
        SourceLine("kernel.py", 3, "s = tl.dot(q, k)", {"matrix": 2, "scratch_store": 1}),
        SourceLine("kernel.py", 2, "k = tl.load(k_ptr)", {"global_load_16B": 1, "lds_read_8B": 2}),
    )
    assert list(source_lines(*placed(*rows))[1].counts) == ["global_load_16B", "lds_read_8B"]


@pytest.mark.parametrize("name", ["wait", "nop", "salu", "scalar_load", "branch", "cross_lane", "agpr_move", "other"])
def test_what_moves_no_data_lists_no_line(name: str) -> None:
    """The list is for data and matrices."""
    assert source_lines(*placed((name, "/src/a.py", 1))) == ()


@pytest.mark.parametrize(
    "name",
    ["matrix", "barrier", "global_atomic", "global_store_4B", "global_load_lds_16B", "image_store", "lds_atomic"],
)
def test_what_moves_data_lists_its_line(name: str) -> None:
    """Loads and stores of every kind, atomics, barriers."""
    assert source_lines(*placed((name, "/src/a.py", 1))) == (SourceLine("a.py", 1, "", {name: 1}),)


def test_code_of_no_line_is_in_no_line() -> None:
    """The compiler writes line 0 for what it made itself, spill code for instance."""
    assert source_lines(*placed(("scratch_load", "/src/a.py", 0))) == ()


def test_a_text_is_cut(tmp_path: Path) -> None:
    """A line of a thousand characters is not kept."""
    source = tmp_path / "long.py"
    source.write_text("   " + "x" * 1000)
    assert source_lines(*placed(("matrix", str(source), 1)))[0].text == "x" * TEXT_CHARACTERS


def test_what_cannot_be_read_has_no_text(tmp_path: Path) -> None:
    """Missing, a folder, a pipe that nobody writes to, a line behind the end, no path at all, a huge file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "short.py").write_text("one line\n")
    with (tmp_path / "huge.py").open("wb") as file:
        file.truncate(5 << 20)
    names = [("missing.py", 1), ("", 1), ("pipe", 1), ("short.py", 9), ("a\0b", 1), ("huge.py", 1)]
    lines = source_lines(*placed(*(("matrix", str(tmp_path / name), line) for name, line in names)))
    assert [line.text for line in lines] == [""] * len(names)


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    """A session that compiles twice shows the text of each time."""
    source = tmp_path / "kernel.py"
    source.write_text("before")
    assert source_lines(*placed(("matrix", str(source), 1)))[0].text == "before"
    source.write_text("after")
    os.utime(source, ns=(1, 1))
    assert source_lines(*placed(("matrix", str(source), 1)))[0].text == "after"


def test_without_numbers_equal_texts_of_a_file_are_one() -> None:
    """Counts add up, in the order of CLASSES; equal texts of two files stay two."""
    lines = (
        SourceLine("a.py", 3, "x = tl.load(p)", {"lds_write_4B": 2}),
        SourceLine("b.py", 3, "x = tl.load(p)", {"matrix": 1}),
        SourceLine("a.py", 9, "x = tl.load(p)", {"global_load_4B": 1, "lds_write_4B": 1}),
    )
    assert without_numbers(lines) == (
        SourceLine("a.py", 0, "x = tl.load(p)", {"global_load_4B": 1, "lds_write_4B": 3}),
        SourceLine("b.py", 0, "x = tl.load(p)", {"matrix": 1}),
    )
    assert list(without_numbers(lines)[0].counts) == ["global_load_4B", "lds_write_4B"]
    assert without_numbers(without_numbers(lines)) == without_numbers(lines)
