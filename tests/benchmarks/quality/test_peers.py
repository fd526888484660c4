"""Other tools' ways of timing: each gives its own kind of number, by its own rule of when to stop."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality.peers import MIN_TIME_S, Number, StdRel, _unexposed, nvbench, pytest_benchmark, sampler


def test_nvbench_stops_once_a_quiet_call_was_measured_long_enough() -> None:
    """Half a second of measured time, and a relative standard deviation below half a per cent."""
    criterion = StdRel()
    for count in itertools.count(1):
        criterion.add(0.01 if count % 2 else 0.01001)
        if criterion.finished():
            break
    assert count == pytest.approx(MIN_TIME_S / 0.01, abs=1)
    number = criterion.number()
    assert number.us == pytest.approx(10_005, abs=1)
    assert number.noise == pytest.approx(0.0005, rel=0.1)


def test_nvbench_stops_once_noise_no_longer_changes() -> None:
    """A call that scatters by 10 % never gets quiet; its noise is stable, which is looked at every sixteenth time."""
    criterion = StdRel()
    for count in itertools.count(1):
        criterion.add(0.01 * (1.1 if count % 2 else 0.9))
        if criterion.finished():
            break
    assert count % 16 == 0
    assert 64 < count < 400


def test_nvbench_is_cut_by_the_time_given() -> None:
    """Its numbers are then those of what was measured."""
    found = nvbench({"a": lambda: time.sleep(0.001)}, sampler("cpu"), 0.05)
    assert 1000 < found["a"].us < 20_000
    assert found["a"].noise is not None


def test_pytest_benchmark_itself_measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a small pytest of its own, which hears nothing of the caller's settings; the wait is inside what is timed."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    monkeypatch.chdir(tmp_path)
    found = pytest_benchmark(
        {"a/b-c": lambda: None, "slow": lambda: time.sleep(0.002)}, lambda: time.sleep(0.001), 0.05
    )
    assert set(found) == {"a/b-c", "slow"}
    assert 900 < found["a/b-c"].us < found["slow"].us
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_raises_is_said_by_pytest_benchmark() -> None:
    """With what pytest printed."""

    def broken() -> Any:
        raise KeyError("nothing here")

    with pytest.raises(RuntimeError, match=r"(?s)pytest-benchmark ended with .*nothing here"):
        pytest_benchmark({"a": broken}, lambda: None, 0.05)


def test_a_number_has_no_noise_unless_said() -> None:
    """do_bench and pytest-benchmark give one number."""
    assert Number(3.0).noise is None


def test_a_sample_whose_launch_was_seen_is_taken_again() -> None:
    """Behind a spin that is longer than the host has needed; a host that is never fast enough is an error."""
    spins: list[float] = []

    def attempt(call: Any, spin_s: float) -> tuple[float, float]:
        spins.append(spin_s)
        return (1e-5, 3e-4) if len(spins) > 1 else (9e-4, 1e-3)

    assert _unexposed(attempt, lambda: None) == 1e-5
    assert spins == [2e-4, 2e-3]
    with pytest.raises(RuntimeError, match=r"more than 0\.05 s to enqueue"):
        _unexposed(lambda call, spin_s: (0.0, spin_s), lambda: None)
