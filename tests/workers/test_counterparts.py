import os
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import Role
from pytest_attnperf.workers.counterparts import (
    config_file,
    find_missing_files,
    has_folder_of_suite,
    refuse_without_suite,
    relative_files,
)
from pytest_attnperf.workers.launch import LaunchPlan


@pytest.fixture
def plan(tmp_path: Path) -> LaunchPlan:
    """Two files of a working tree, one named absolutely as pytest does, one relatively."""
    root = tmp_path / "work"
    root.mkdir()
    files = [str(root / "suites/test_a.py"), "suites/test_b.py"]
    return LaunchPlan(files=files, rootdir=root, scratch=tmp_path / "s", role=Role.INTERPRET)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The other tree, with an empty folder of suites."""
    (tmp_path / "other/suites").mkdir(parents=True)
    return tmp_path / "other"


def test_files_are_matched_by_relative_path(plan: LaunchPlan, other: Path) -> None:
    """A file that the other tree lacks is named; a file outside the rootdir has no counterpart anywhere."""
    (other / "suites/test_b.py").touch()
    outside = replace(plan, files=[*plan.files, "../elsewhere/test_c.py"])
    assert relative_files(outside) == ["suites/test_a.py", "suites/test_b.py"]
    assert find_missing_files(outside, other) == ("suites/test_a.py", "../elsewhere/test_c.py")


def test_a_linked_rootdir_is_seen_through(plan: LaunchPlan, other: Path, tmp_path: Path) -> None:
    """The rootdir may be typed by a link while the files are not."""
    link = tmp_path / "link"
    link.symlink_to(plan.rootdir)
    assert relative_files(replace(plan, rootdir=link)) == ["suites/test_a.py", "suites/test_b.py"]


def test_a_tree_without_the_suite_is_an_error(plan: LaunchPlan, other: Path) -> None:
    """The error names the tree, what is missing and the hint given."""
    with pytest.raises(UsageError, match=r"^it lacks the suite: suites/test_a.py, nor any other of 2 files, is not"):
        refuse_without_suite(find_missing_files(plan, other), "it")
    with pytest.raises(UsageError, match=r"lacks the suite: suites/test_b.py is not there; look elsewhere$"):
        refuse_without_suite(["suites/test_b.py"], "it", "; look elsewhere")


def test_an_older_tree_has_the_folder_of_the_suite(plan: LaunchPlan, other: Path, tmp_path: Path) -> None:
    """A tree with the suite's folder may be this project before it had these files; any other folder is not."""
    assert has_folder_of_suite(plan, other)
    assert not has_folder_of_suite(plan, tmp_path / "empty")


@pytest.mark.parametrize(
    ("used", "there", "expected"),
    [
        ("pytest.ini", {"pytest.ini": "", "pyproject.toml": "[tool.pytest.ini_options]"}, "pytest.ini"),
        ("pytest.ini", {"pyproject.toml": "[tool.pytest.ini_options]"}, "pyproject.toml"),
        ("pyproject.toml", {"pyproject.toml": "[project]", "tox.ini": "[pytest]"}, "tox.ini"),
        ("ci/gpu.ini", {"ci/gpu.ini": "[pytest]", "pytest.ini": ""}, "ci/gpu.ini"),
        ("ci/gpu.ini", {"setup.cfg": "[tool:pytest]"}, "setup.cfg"),
        (None, {"pyproject.toml": "[tool.pytest]"}, "pyproject.toml"),
        ("pytest.ini", {"pyproject.toml": "[project]", "setup.cfg": "[metadata]"}, os.devnull),
        (None, {}, os.devnull),
    ],
)
def test_the_settings_are_the_other_trees_own(
    plan: LaunchPlan, other: Path, used: str | None, there: dict[str, str], expected: str
) -> None:
    """The file of the same name, else the one pytest would find there, else none; never one from above the tree."""
    for name, text in there.items():
        (other / name).parent.mkdir(exist_ok=True)
        (other / name).write_text(text)
    chosen = replace(plan, config_file=plan.rootdir / used if used else None)
    assert config_file(chosen, other) == other / expected


def test_settings_outside_the_rootdir_are_shared(plan: LaunchPlan, other: Path, tmp_path: Path) -> None:
    """`-c /etc/ci.ini` names a file that belongs to neither tree."""
    assert config_file(replace(plan, config_file=tmp_path / "ci.ini"), other) == tmp_path / "ci.ini"
