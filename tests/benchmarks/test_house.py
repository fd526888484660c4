from __future__ import annotations

from pathlib import Path

from benchmarks.house import House

FILES = {
    "__init__.py": "",
    "room/__init__.py": "",
    "room/kinds.py": "from pytest_attnperf.room.a import A\nfrom pytest_attnperf.room import b\nKINDS = (A, b.B)\n",
    "room/looks.py": 'LOOKS = {"first": "c", "second": "d"}\nLATER = "e"\n',
    "room/user.py": "from pytest_attnperf.room.helper import help\nDONE = help()\n",
    **{f"room/{name}.py": f"from pytest_attnperf.room import looks\n{name.upper()} = 1\n" for name in "abcde"},
    "room/helper.py": "def help(): ...\n",
    "other/user.py": "import pytest_attnperf.room.c\nimport pytest_attnperf.room.e\n",
}


def test_members_of_a_list_are_those_that_a_constant_names(tmp_path: Path) -> None:
    """An imported name, or the text of a file's own name, in a tuple or dictionary; a helper that is called is none."""
    for name, text in FILES.items():
        path = tmp_path / "pytest_attnperf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    house = House(tmp_path)
    assert house.members_of_lists() == {f"pytest_attnperf.room.{name}" for name in "abcd"}
    assert house.with_one_importer() == [f"pytest_attnperf.room.{name}" for name in (*"abce", "helper")]
