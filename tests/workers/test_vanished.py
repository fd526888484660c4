from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.records import Role
from pytest_attnperf.workers.counterparts import find_vanished_files
from pytest_attnperf.workers.launch import LaunchPlan

CASE = "def test_a(attnperf):\n    attnperf.run(None, None)\n"


@pytest.fixture
def plan(tmp_path: Path) -> LaunchPlan:
    """A working tree with one file of cases, of which everything is selected."""
    root = tmp_path / "work"
    (root / "suites").mkdir(parents=True)
    (root / "suites/test_here.py").write_text(CASE)
    plan = LaunchPlan(files=["suites/test_here.py"], rootdir=root, scratch=tmp_path / "s", role=Role.INTERPRET)
    return replace(plan, selected=(root / "suites",))


def test_files_with_cases_are_found(plan: LaunchPlan, tmp_path: Path) -> None:
    """Those that the other tree alone has, below what was selected; they are read, and never run."""
    base = tmp_path / "base"
    for name, text in {
        "suites/test_here.py": CASE,
        "suites/test_old.py": CASE + "raise SystemExit\n",
        "suites/deep/test_object.py": "class TestA:\n    def test_a(self, code_object): ...\n",
        "suites/test_plain.py": "def test_a(): 'attnperf'\n",
        "suites/test_broken.py": "def test_a(attnperf)\n",
        "suites/helpers.py": CASE,
        "suites/.venv/test_x.py": CASE,
        "suites/env/pyvenv.cfg": "",
        "suites/env/test_x.py": CASE,
        "elsewhere/test_old.py": CASE,
    }.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(text)
    one = (plan.rootdir / "suites/test_old.py",)
    assert find_vanished_files(plan, base) == ("suites/deep/test_object.py", "suites/test_old.py")
    assert find_vanished_files(replace(plan, selected=one), base) == ("suites/test_old.py",)
    assert find_vanished_files(replace(plan, patterns=("helpers.py",)), base) == ("suites/helpers.py",)
    assert find_vanished_files(replace(plan, selected=()), base) == ()
    assert find_vanished_files(replace(plan, selected=(tmp_path / "outside",)), base) == ()
