"""benchmarks/figures/report.py: every figure from a file alone, and its mark."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from figures_records import Pair, Pass, Process, Record, TrueSize, append

CASES = ("native.sdpa_flash/a", "triton.flash/b", "copy")


def file_of(folder: Path, *, process_sd: float = 0.003, pair_shift: float = 0.0, units: int = 14) -> Path:
    """Three runs on two cards, with everything that is asked for."""
    rng = random.Random(5)
    records: list[Record] = []
    for number in range(3):
        run, card = f"r{number}", f"card{number % 2}"
        records += [
            Pass(run, kind, "2026-01-01", card, "h200", {}, units, 100.0) for kind in ("processes", "pairs", "peers")
        ]
        for case in CASES:
            records += _units(rng, run, case, process_sd, pair_shift, units)
    path = folder / "figures.jsonl"
    append(path, records)
    return path


def scattered(rng: random.Random, units: int, sd: float) -> list[float]:
    """Factors around 1 that are as normal as so few can be, in random order: no file is unlucky by itself."""
    scores = [statistics.NormalDist(1, sd).inv_cdf((unit + 0.5) / units) for unit in range(units)]
    return rng.sample(scores, units)


def _units(rng: random.Random, run: str, case: str, sd: float, shift: float, units: int) -> list[Record]:
    made: list[Record] = []
    for label, true in (("plain", 0.0), ("slow3", 0.031), ("slow5", 0.052)):
        made += [
            Process(run, "attnperf", case, label, unit, 100 * (1 + true) * factor, 0.05, "graph")
            for unit, factor in enumerate(scattered(rng, units, sd))
        ]
        made.append(TrueSize(run, case, label, true, true, 0.0001, "more work")) if true else None
    for label, true in (("plain", 0.0), ("slow05", 0.0052), ("slow1", 0.011)):
        made += [
            Pair(run, case, label, unit, (1 + true + shift) * factor, 100, 101, 30, "graph", 0.5)
            for unit, factor in enumerate(scattered(rng, units, 0.001))
        ]
        made.append(TrueSize(run, case, label, true, true, 0.0001, "more work")) if true else None
    for method, seconds in (("do_bench", 0.13), ("pytest_benchmark", 1.0)):
        made += [Process(run, method, case, "plain", unit, 100 * rng.gauss(1, 0.05), seconds) for unit in range(units)]
    return made


def test_what_is_reached_and_not_proven_is_open(
    program: Callable[[str], Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Figures of spread and time pass, rates are open with the bound reached, and the exit status is 0."""
    assert program("report").main([str(file_of(tmp_path)), "--trials", "15"]) == 0
    printed = capsys.readouterr().out
    figures = printed.partition("\nFigures\n")[2].splitlines()
    assert [line[:6].strip() for line in figures] == ["PASS"] * 7 + ["OPEN"] * 8
    assert "bound reached: 63.16 % at 95 % from 0 red of 3 independent sets, 299 without any would prove it" in printed
    assert "42 independent processes, 3 cases" in printed
    assert "42 independent pairs" in printed


def test_every_table_names_its_cases(
    program: Callable[[str], Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Peers stand beside the gate's own spread with their device time; true sizes, curves and shares are printed."""
    program("report").main([str(file_of(tmp_path)), "--trials", "5"])
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith("triton.flash/b "))
    assert row.split()[-5::2] == ["50", "130", "1000"]
    assert "3.100" in printed
    assert "interleaved, 8 pairs: share caught by true slowdown" in printed
    assert (
        "whole interleaved look, run r0: 100 s wall for 14 pairs of every case and label, about 57 s for 8" in printed
    )


def test_spread_beyond_the_limit_is_missed_and_explained(
    program: Callable[[str], Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Processes of 0.8 % miss the figure; the table says of each case what is known of the cause; status 1."""
    assert program("report").main([str(file_of(tmp_path, process_sd=0.008)), "--trials", "5"]) == 1
    printed = capsys.readouterr().out
    assert "MISSED  standard deviation per process: worst" in printed
    assert "3 of 3 cases beyond" in printed
    assert "over 42 processes: runs lie" in printed


def test_biased_pairs_are_missed(
    program: Callable[[str], Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Same-code pairs that lie half a per cent high miss their figure and turn suite runs red."""
    assert program("report").main([str(file_of(tmp_path, pair_shift=0.005)), "--trials", "5"]) == 1
    printed = capsys.readouterr().out
    assert "MISSED  median same-code ratio over pairs: furthest +0.5" in printed
    assert "MISSED  interleaved: same-code suite runs red, within a run: 100 % of 5 resampled" in printed


def test_too_few_units_are_missed_not_hidden(
    program: Callable[[str], Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Two processes and pairs a run give spreads, and say of every rate that there is none."""
    assert program("report").main([str(file_of(tmp_path, units=2)), "--trials", "5"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("not enough units, wanted") == 8
    assert "MISSED  processes collected: 6 in 3 runs on 2 cards, wanted at least 40 in 3 runs on 2" in printed


def test_empty_file_misses_everything(
    program: Callable[[str], Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nothing collected is no figure reached."""
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    assert program("report").main([str(path)]) == 1
    assert "PASS" not in capsys.readouterr().out


def test_plot_without_its_library_says_so(program: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib no picture is written, and the line says what says the same."""
    import figures_curve

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = figures_curve.save_plot({"a": [(0.01, 0.5)]}, Path("curve.svg"))
    assert said == "curve.svg: not written, matplotlib is not installed; the plot of characters says the same"
    assert f"1.00 % |{'#' * 25}{' ' * 25}|  50.00 %" in figures_curve.text_plot({"a": [(0.01, 0.5)]})
