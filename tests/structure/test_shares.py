"""`make test` divides its files between two processes: each file is run by one, and by no more than one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.choose_tests import Timed, seconds_by_file
from tests import shares

TESTS = Path(__file__).parents[1]
INI = "[pytest]\npythonpath = .\naddopts = --import-mode=importlib -p no:randomly\n"


def test_each_file_is_in_one_share() -> None:
    """Two shares have every file once, and take about as long."""
    own = [shares.OwnShare(share, TESTS) for share in ("1/2", "2/2")]
    assert own[0].own | own[1].own == set(TESTS.rglob("test_*.py"))
    assert not own[0].own & own[1].own
    ignored = [share.pytest_ignore_collect(Path(__file__)) for share in own]
    assert sorted(ignored, key=str) == [None, True]


def test_what_takes_longest_is_dealt_first() -> None:
    """The longest goes alone where the others together take as long; a file without seconds counts little."""
    seconds = {"a": 1.0, "b": 3.0, "c": 2.0}
    assert shares.shares(["a", "b", "c", "d"], seconds, 2) == [{"b", "d"}, {"a", "c"}]


def test_seconds_are_of_files_that_there_are() -> None:
    """A file that was renamed counts as a short one, and would make its share longer than the other."""
    assert [file for file in shares.seconds_by_file() if not (TESTS.parent / file).exists()] == []


def test_seconds_are_those_of_a_file_together() -> None:
    """Tests of a file count together, and short files are left out."""
    tests = [Timed("a.py::test_b", 0.6), Timed("a.py::test_c[x]", 0.7), Timed("d.py::test_e", 0.9)]
    assert seconds_by_file(tests) == {"a.py": pytest.approx(1.3)}


def test_two_processes_run_every_test_once(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in two shares runs each test once, counts as many as there are, and leaves no share to what tests start."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    folder = pytester.mkdir("tests")
    (folder / "shares.py").write_text((TESTS / "shares.py").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "conftest.py").write_text(
        "def pytest_configure(config):\n    from tests import shares\n    shares.install(config)\n"
    )
    for name in "abc":
        test = f"import os\ndef test_{name}():\n    assert 'TEST_SHARE' not in os.environ\n"
        (folder / f"test_{name}.py").write_text(test)
    pytester.makeini(INI)
    tx = [word for share in ("1/2", "2/2") for word in ("--tx", f"popen//env:TEST_SHARE={share}")]
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.runpytest_subprocess("-p", "xdist.plugin", "tests", "--dist", "each", *tx, "-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*33%*", "*66%*", "*100%*"])
    for name in "abc":
        assert sum(f"PASSED tests/test_{name}.py" in line for line in result.outlines) == 1
