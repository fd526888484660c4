"""Which tests fail under which circumstances."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.test_circumstances import CIRCUMSTANCES, LONG, Circumstance, failed_tests, folder_in, main, run_once

FRAGILE = """
import os
import signal


def test_interruptible():
    assert signal.getsignal(signal.SIGINT) != signal.SIG_IGN


def test_narrow():
    assert os.environ.get("COLUMNS", "80") == "80"


def test_folder(tmp_path):
    assert len(str(tmp_path)) < 120
"""


@pytest.mark.parametrize(
    ("name", "failed"),
    [
        ("idle", ()),
        ("background", ("test_fragile::test_interruptible",)),
        ("60 columns", ("test_fragile::test_narrow",)),
        ("long TMPDIR", ("test_fragile::test_folder",)),
    ],
)
def test_a_fragile_test_is_found(tmp_path: Path, name: str, failed: tuple[str, ...]) -> None:
    """Each circumstance makes the test fail that depends on it, and no other."""
    (tmp_path / "test_fragile.py").write_text(FRAGILE)
    arguments = [f"--rootdir={tmp_path}", "-c", os.devnull, str(tmp_path)]
    if name == "idle":
        assert run_once(CIRCUMSTANCES[name], [*arguments, "-k", "narrow"]) == failed
    else:
        assert set(failed) <= set(run_once(CIRCUMSTANCES[name], arguments))


def test_a_run_that_does_not_begin_is_a_failure(tmp_path: Path) -> None:
    """What leaves no report has not passed."""
    assert failed_tests(tmp_path / "report.xml") == ("(the run itself)",)


def test_a_long_folder(tmp_path: Path) -> None:
    """It has as many characters as it says, unless it stands too deep for that."""
    short = folder_in(tmp_path, long=False, user=None)
    assert short == tmp_path / "t"
    deep = tmp_path / "a"
    deep.mkdir()
    assert len(str(folder_in(deep, long=True, user=None))) == max(LONG, len(str(deep)) + 2)


def test_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A row of each circumstance, with every test that failed and in how many runs; exit status 1 where one did."""
    runs = iter([("a::one", "a::two"), ("a::one",), ()])

    def run(circumstance: Circumstance, arguments: Sequence[str]) -> tuple[str, ...]:
        assert arguments == ["tests/stats", "-x"]
        return next(runs, ())

    typed = ["test_circumstances.py", "--runs=2", "--only=idle", "--only=busy", "--", "tests/stats", "-x"]
    monkeypatch.setattr(sys, "argv", typed)
    assert main(run) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert lines == [["idle", "2", "a::one", "(2)"], ["a::two", "(1)"], ["busy", "2", "none"]]
