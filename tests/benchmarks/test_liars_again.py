"""The campaign over liars counts what was told and who was accused."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from benchmarks import liars_again
from pytest_attnperf.testing.liars import LIARS


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    """Its exit status."""
    monkeypatch.setattr(sys, "argv", ["liars_again.py", *args])
    return liars_again.main()


def test_a_liar_that_is_told_and_its_twin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line counts both."""
    assert run(monkeypatch, "--runs", "2", "--only", "writes_nothing") == 0
    said = "cpu: 1 liars and their twins, 2 runs, 1 at a time, beside 0 busy ones: 2 of 2 told, 0 by another fault, "
    assert capsys.readouterr().out.splitlines()[-1] == f"{said}0 of 2 twins accused"


def test_a_liar_found_by_another_fault_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is counted apart, and fails the run; an error that is no verdict finds nothing."""
    liar = next(liar for liar in LIARS if liar.trick == "writes_nothing")
    monkeypatch.setattr(liars_again, "LIARS", [dataclasses.replace(liar, clue="another trick")])
    assert run(monkeypatch, "--runs", "1") == 1
    assert "0 of 1 told, 1 by another fault, 0 of 1 twins accused" in capsys.readouterr().out
    monkeypatch.setattr(liars_again, "find_problems", lambda *_: f"{liars_again.ERROR}UsageError: no device")
    assert run(monkeypatch, "--runs", "1") == 1
    assert "0 of 1 told, 0 by another fault, 1 of 1 twins accused" in capsys.readouterr().out


def test_a_liar_that_is_missed_and_a_twin_that_is_accused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An honest backend in a liar's place is missed, a lying one in a twin's place accused; both fail the run."""
    liar = next(liar for liar in LIARS if liar.trick == "writes_nothing")
    monkeypatch.setattr(liars_again, "LIARS", [dataclasses.replace(liar, lying=liar.honest, honest=liar.lying)])
    assert run(monkeypatch, "--runs", "1") == 1
    out = capsys.readouterr().out
    assert "missed: liar.writes_nothing in 1 of 1 runs" in out
    assert "accused: twin.writes_nothing: timed inputs: 'out' holds" in out
