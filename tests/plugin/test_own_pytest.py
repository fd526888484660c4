from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernels.native.rope import BACKENDS
from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.own_pytest import no_xdist, visit_project

PROGRAM = """
import sys
from pytest_attnperf.errors import AttnperfError, UsageError
from pytest_attnperf.plugin.own_pytest import collect_all, visit_project

def work(registered):
    print([backend.name for backend in registered.backends])
    if len(sys.argv) > 1:
        raise UsageError("as asked")
    return 7

try:
    print((collect_all if 'collect' in sys.argv else visit_project)(work))
except AttnperfError as error:
    print("raised:", error)
"""


def typed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a folder."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_work_is_done_once_and_nothing_collected(tmp_path: Path) -> None:
    """The work sees what the conftest registers, once, gives its status, and no test file is imported."""
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "test_it.py").write_text("raise SystemExit('collected')")
    (tmp_path / "suites" / "conftest.py").write_text(
        "from kernels.native.rope import BACKENDS\n"
        "def pytest_attnperf_register_backends(registry):\n    registry.add(*BACKENDS)\n"
    )
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {Path(__file__).parents[2]}\n")
    done = typed(tmp_path)
    names, status = done.stdout.splitlines()
    assert names == str([backend.name for backend in BACKENDS])
    assert (status, done.stderr) == ("7", "")
    assert typed(tmp_path, "raise").stdout.splitlines()[-1] == "raised: as asked"


def test_a_project_that_cannot_be_loaded(tmp_path: Path) -> None:
    """A conftest that raises is shown by pytest, and ends in an error of ours."""
    (tmp_path / "conftest.py").write_text("import no_such_module\n")
    done = typed(tmp_path)
    assert (
        done.stdout.splitlines()[-1]
        == "raised: pytest could not load the project of . (status 4); see its output above"
    )
    assert "no_such_module" in done.stderr


def test_a_project_says_where_its_tests_are(tmp_path: Path) -> None:
    """Without suites/, conftests of `testpaths` are loaded before anything is collected, as by a plain pytest."""
    (tmp_path / "perf").mkdir()
    (tmp_path / "perf" / "conftest.py").write_text(
        "from kernels.native.rope import BACKENDS\n"
        "def pytest_attnperf_register_backends(registry):\n    registry.add(*BACKENDS)\n"
    )
    (tmp_path / "pytest.ini").write_text(f"[pytest]\ntestpaths = perf\npythonpath = {Path(__file__).parents[2]}\n")
    names, _ = typed(tmp_path).stdout.splitlines()
    assert names == str([backend.name for backend in BACKENDS])


def test_a_test_file_that_cannot_be_imported(tmp_path: Path) -> None:
    """It is named with the last line of its error, and the work is not begun."""
    (tmp_path / "test_it.py").write_text("import no_such_module\n")
    done = typed(tmp_path, "collect")
    assert done.stdout.splitlines()[-1] == (
        "raised: test_it.py cannot be collected: ModuleNotFoundError: No module named 'no_such_module'; correct it, or "
        "name other tests by --tests PATH"
    )


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """A suite that does not exist is named before pytest is started."""
    with pytest.raises(UsageError, match=r"none does not exist; run this in the project's folder"):
        visit_project(lambda registered: 0, str(tmp_path / "none"))


@pytest.mark.parametrize(("without_plugins", "option"), [("", ("-n0",)), ("1", ())])
def test_xdist_is_told_not_to_distribute_where_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, without_plugins: str, option: tuple[str, ...]
) -> None:
    """`-n0` is given where pytest loads installed plugins, and not where it does not: it would be unknown there."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", without_plugins)
    assert no_xdist() == option
