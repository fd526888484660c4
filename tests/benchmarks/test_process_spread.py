"""benchmarks/process_spread.py: how far apart stored processes lie, and whether that is within the limit."""

from __future__ import annotations

import importlib.util
import math
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_attnperf.baselines.schema import BASELINE_SCHEMA, BaselineFile, Check, Entry, content_id, encode_baseline
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import Fingerprint, ProcessSummary

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "process_spread.py"
MACHINE = Fingerprint({"arch": "sm_90"}, {})


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("process_spread", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "process_spread", module)
    spec.loader.exec_module(module)
    return module


def entry(centre_us: float, spread_percent: float) -> Entry:
    """Three processes whose relative standard deviation is `spread_percent`: c - s, c, c + s."""
    step = centre_us * spread_percent / 100
    medians = (centre_us - step, centre_us, centre_us + step)
    processes = tuple(ProcessSummary(us, us, us, (us,), 10, "graph") for us in medians)
    return Entry({}, content_id(MACHINE), content_id({}), processes, Check(0.5, 0.5), "2026-01-01", "0.1.0")


def written(folder: Path, **entries: Entry) -> Path:
    """A baseline file of these entries."""
    file = BaselineFile(
        BASELINE_SCHEMA, "prefill", "sm_90", "h200", {content_id(MACHINE): MACHINE}, {content_id({}): {}}, entries
    )
    path = folder / "prefill.json"
    path.write_bytes(encode_baseline(file))
    return path


def run(program: Any, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Type the command."""
    monkeypatch.setattr(sys, "argv", ["process_spread.py", *map(str, arguments)])
    status: int = program.main()
    return status


def test_spread_is_the_relative_standard_deviation(program: Any, tmp_path: Path) -> None:
    """Of the processes' medians, over their mean, in percent; smallest first."""
    path = written(tmp_path, wide=entry(100, 0.5), narrow=entry(40, 0.2))
    rows = program.spreads(program.decode_baseline(path.read_bytes(), str(path)))
    assert [(key, count) for key, count, *_ in rows] == [("narrow", 3), ("wide", 3)]
    assert rows[1][2:] == pytest.approx((100, 100 * statistics.stdev([99.5, 100, 100.5]) / 100))


def test_worst_case_is_last_and_within_the_limit(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The table ends with the widest spread, the closing line names it, and the exit status is 0."""
    path = written(tmp_path, a=entry(100, 0.3), b=entry(100, 0.5), c=entry(100, 0.1))
    assert run(program, monkeypatch, path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["c", "a", "b"]
    assert lines[-2:] == [
        "3 cases of at least 15 us: median sd 0.300 %, worst 0.500 % (b)",
        "0 of them beyond 0.6 %",
    ]


@pytest.mark.parametrize(("limit", "status", "beyond"), [("0.4", 1, 1), ("0.2", 1, 2), ("0.51", 0, 0)])
def test_limit_is_the_exit_status(
    program: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    limit: str,
    status: int,
    beyond: int,
) -> None:
    """One case beyond --limit-percent makes it 1, and all of them are counted."""
    path = written(tmp_path, a=entry(100, 0.3), b=entry(100, 0.5), c=entry(100, 0.1))
    assert run(program, monkeypatch, path, "--limit-percent", limit) == status
    assert capsys.readouterr().out.endswith(f"{beyond} of them beyond {limit} %\n")


def test_short_cases_are_listed_and_not_held_to_the_limit(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A case shorter than --least-us may spread; it is neither counted nor named as worst."""
    path = written(tmp_path, short=entry(8, 5.0), held=entry(20, 0.2))
    assert run(program, monkeypatch, path) == 0
    printed = capsys.readouterr().out
    assert "short" in printed
    assert "1 cases of at least 15 us: median sd 0.200 %, worst 0.200 % (held)" in printed
    assert run(program, monkeypatch, path, "--least-us", 5) == 1


def test_no_case_is_long_enough(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A file of short cases only names no worst."""
    assert run(program, monkeypatch, written(tmp_path, short=entry(8, 5.0))) == 0
    assert "worst" not in capsys.readouterr().out


def test_several_files_are_one_table(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Their cases are sorted and counted together, those of another timer left out, and the goal counted apart."""
    paths = []
    for name, spread in (("one", 0.2), ("two", 0.5)):
        (tmp_path / name).mkdir()
        paths.append(written(tmp_path / name, **{name: entry(100, spread)}))
    assert run(program, monkeypatch, *paths, "--goal-percent", 0.3, "--timer", "graph") == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "2 cases of at least 15 us: median sd 0.350 %, worst 0.500 % (two)",
        "1 of them within 0.3 %",
        "0 of them beyond 0.6 %",
    ]
    run(program, monkeypatch, *paths, "--timer", "graph_cold")
    assert "cases of at least" not in capsys.readouterr().out


def test_an_unsound_file_is_named(program: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A truncated baseline is refused by name, not measured."""
    path = written(tmp_path, a=entry(100, 0.3))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BaselineError, match=r"prefill\.json: is not readable as JSON"):
        run(program, monkeypatch, path)


def test_within_cards_leaves_out_how_cards_differ(program: Any) -> None:
    """Two cards 10 % apart, whose own processes lie 1 us apart: the spread is that of the processes."""
    medians = {"GPU-a": (99.5, 100.5), "GPU-b": (109.5, 110.5)}
    processes = tuple(
        ProcessSummary(us, us, us, (us,), 10, "graph", device_id=card) for card, each in medians.items() for us in each
    )
    file = BaselineFile(
        BASELINE_SCHEMA, "prefill", "sm_90", "h200", {content_id(MACHINE): MACHINE}, {content_id({}): {}},
        {"a": replace(entry(100, 1), processes=processes)},
    )  # fmt: skip
    ((_, count, mean, within),) = program.spreads(file, within_cards=True)
    assert (count, mean, within) == (4, 105.0, pytest.approx(100 * math.sqrt(0.5) / 105))
    assert program.spreads(file)[0][3] > 5
