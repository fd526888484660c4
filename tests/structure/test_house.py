"""Figures of `benchmarks/house.py` that must not get worse."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.house import House

ROOT = Path(__file__).parents[2]

ONE_IMPORTER_SHARE_MOST = 0.15
"""Share of files that one other file imports, members of lists apart: more is a sign of files cut too small."""


@pytest.fixture(scope="module")
def house() -> House:
    """This checkout."""
    return House(ROOT)


def test_no_file_imports_itself_over_others(house: House) -> None:
    """Neither in the package nor in kernels, also not where an import stands in a function."""
    assert house.circles() == []


def test_files_are_not_cut_smaller(house: House) -> None:
    """A file that serves one other belongs into it, unless it has a job of its own."""
    found = set(house.with_one_importer()) - house.members_of_lists()
    assert len(found) <= ONE_IMPORTER_SHARE_MOST * len(house.line_counts())


def test_a_circle_is_found(tmp_path: Path) -> None:
    """Over three files, one of them lazily, and not where an import is for a type checker only."""
    package = tmp_path / "pytest_attnperf"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from pytest_attnperf import b\n")
    (package / "b.py").write_text("def f():\n    from pytest_attnperf.c import g\n")
    (package / "c.py").write_text("import pytest_attnperf.a\n")
    (package / "d.py").write_text("if TYPE_CHECKING:\n    from pytest_attnperf import e\n")
    (package / "e.py").write_text("from pytest_attnperf import d\n")
    assert House(tmp_path).circles() == [[f"pytest_attnperf.{name}" for name in "abc"]]


def test_what_the_package_exports_has_a_user(tmp_path: Path) -> None:
    """A module that `__init__` names as the place of an export serves more than the one file that imports it."""
    package = tmp_path / "pytest_attnperf"
    package.mkdir()
    (package / "__init__.py").write_text("_PLACES = {'a': ('f',)}\n")
    (package / "a.py").write_text("")
    (package / "b.py").write_text("")
    (package / "c.py").write_text("from pytest_attnperf import a, b\n")
    assert House(tmp_path).with_one_importer() == ["pytest_attnperf.b"]
