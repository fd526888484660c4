from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.tools.profilers.csv_table import CsvTable, Problems, parse_whole_number, read_columns, read_head


@pytest.fixture
def short_fields() -> Iterator[None]:
    """The csv module takes fields of ten characters."""
    before = csv.field_size_limit(10)
    yield
    csv.field_size_limit(before)


def test_columns(tmp_path: Path) -> None:
    """Names without blanks around them; an unusual separator inside a name does not end the line."""
    path = tmp_path / "a.csv"
    path.write_text('"a" , b\x0c,"c\nd"\n1,2,3\n')
    assert read_columns(path) == ("a", "b", "c\nd")
    with CsvTable(path) as table:
        assert list(table) == [["1", "2", "3"]]
        assert (table.find_column("x", "b", "a"), table.find_column("x"), table.line) == ("b", "", 3)


@pytest.mark.usefixtures("short_fields")
def test_a_field_beyond_the_limit(tmp_path: Path) -> None:
    """In the columns it is an error with the file's name, in a row a problem."""
    path = tmp_path / "a.csv"
    path.write_text("a" * 20 + ",b\n")
    with pytest.raises(ProfileError, match=r"a\.csv: the line of columns cannot be read: field larger than"):
        read_columns(path)
    path.write_text(f"a,b\n1,{'2' * 20}\n3,4\n")
    with CsvTable(path) as table:
        assert list(table) == [["3", "4"]]
        assert [problem.line for problem in table.problems.list_problems(1)] == [2]


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    """The system's reason is in the error."""
    with pytest.raises(ProfileError, match=r"gone\.csv cannot be read: No such file or directory"):
        read_head(tmp_path / "gone.csv")


def test_problems_say_what_is_used() -> None:
    """Of rows: one, several, none."""
    problems = Problems(Path("a.csv"))
    problems.add(4, "off", kind="k")
    assert [problems.list_problems(rows)[0].used for rows in (1, 2, 0)] == [
        "the row is left out, the other row is used",
        "the row is left out, the other 2 rows are used",
        "the row is left out, no row of this file can be used",
    ]


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("-1", None), ("1.0", None), ("", None), ("\u0661", None)],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    """Digits that 64 bits hold, nothing else."""
    assert parse_whole_number(text) == number
