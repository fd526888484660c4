from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.tuner.tuned_files import RESULT, written
from pytest_attnperf.tuning_records import BETTER, NO_BETTER, Candidate, TunedFile, TuneResult

DEFAULT = Candidate({"a": 1})
FILE = TunedFile("configs/good.json", "{}", "good")
BETTER_RESULT = TuneResult("b", "k", "arch", None, ("w",), "race", BETTER, "", DEFAULT, DEFAULT, 2, files=(FILE,))
NONE_BETTER = replace(BETTER_RESULT, verdict=NO_BETTER, files=())


def said(result: TuneResult, out: Path) -> str:
    """What the terminal is told, in one line: where a long folder breaks its lines is the terminal's business."""
    return " ".join(written(result, out).split())


@pytest.mark.parametrize("path", ["../outside.json", "/tmp/outside.json", "configs/../../outside.json"])
def test_no_file_is_written_outside(tmp_path: Path, path: str) -> None:
    """A tuned file's path is data of a backend: one that leaves the folder is refused, and nothing is written."""
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UsageError, match="outside"):
        written(replace(BETTER_RESULT, files=(FILE, replace(FILE, path=path))), out)
    assert list(tmp_path.rglob("*.json")) == []


def test_files_that_no_longer_hold_are_removed(tmp_path: Path) -> None:
    """A run that goes on and finds nothing better leaves no configuration of the run before it."""
    assert "written: " in said(BETTER_RESULT, tmp_path)
    assert (tmp_path / FILE.path).read_text() == FILE.text
    assert "removed: " not in said(BETTER_RESULT, tmp_path)
    assert "removed: " in said(NONE_BETTER, tmp_path)
    assert not (tmp_path / FILE.path).exists()


def test_a_file_that_somebody_changed_is_left_and_said(tmp_path: Path) -> None:
    """It is no longer the tuner's."""
    written(BETTER_RESULT, tmp_path)
    (tmp_path / FILE.path).write_text("mine")
    assert "not removed: " in said(NONE_BETTER, tmp_path)
    assert (tmp_path / FILE.path).read_text() == "mine"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"files": 3}',
        '{"files": [{"path": 1, "text": 2}]}',
        '{"files": [{"path": "a\\u0000", "text": ""}]}',
        "[" * 100_000,
    ],
)
def test_an_earlier_result_that_cannot_be_read_removes_nothing(tmp_path: Path, text: str) -> None:
    """It is replaced."""
    (tmp_path / RESULT).write_text(text)
    written(NONE_BETTER, tmp_path)
    assert json.loads((tmp_path / RESULT).read_text())["verdict"] == NO_BETTER


def test_nothing_outside_is_removed(tmp_path: Path) -> None:
    """A path in a result is data, too."""
    out, other = tmp_path / "out", tmp_path / "other.json"
    out.mkdir()
    other.write_text("{}")
    (out / RESULT).write_text(json.dumps({"files": [{"path": "../other.json", "text": "{}"}]}))
    written(NONE_BETTER, out)
    assert other.exists()
