"""benchmarks/kernel_ratios.py: what a ratio is, and that none is silently left out."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest

import kernels
from pytest_attnperf.backends import Registry
from pytest_attnperf.workloads.families import parse_workload

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "kernel_ratios.py"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("kernel_ratios", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel_ratios"] = module
    spec.loader.exec_module(module)
    return module


def test_a_ratio_is_work_per_time(program: ModuleType) -> None:
    """The median over the turns of the other's time over ours; half the bytes in half the time is the same."""
    turns = [(10.0, 12.0), (10.0, 30.0), (20.0, 22.0)]
    assert program.ratio(turns, 1.0, 1.0) == pytest.approx(1.2)
    assert program.ratio([(5.0, 10.0)], 1e9, 2e9) == pytest.approx(1.0)


def test_the_tables_stand_between_the_marks(program: ModuleType, tmp_path: Path) -> None:
    """A page gets a table for each family of a stored run, and what stood there before is gone."""
    low = program.Result("f", "a", "x", "y", "speed", 1.2, ratio=1.1, ours_us=2.0, against_us=2.2)
    run = program.Run("GPU", "torch 2", (low, program.Result("g", "b", "x", "y", "speed", 1.0, why="wrong")))
    stored = tmp_path / "run.json"
    stored.write_text(json.dumps(asdict(run)))
    assert program.read_run(stored) == run
    page = program.with_tables(f"head\n{program.TABLES}old{program.END}\ntail", run)
    assert "old" not in page
    assert page.startswith("head\n")
    assert page.endswith("\ntail")
    assert page.count("missed") == 2
    assert page.split("GPU, torch 2.")[1].split()[1:7] == ["f", "ours_us", "theirs_us", "ratio", "wanted", "a"]
    short = program.with_tables(f"head\n{program.SUMMARY}old{program.END}\ntail", run)
    assert "old" not in short
    assert short.split("```")[1].split() == [
        *("text", "met", "of", "least", "largest"), *("f", "0", "1", "1.10", "1.10"), *("g", "0", "1", "none", "none"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="the page lacks"):
        program.with_tables("head", run)


@pytest.mark.parametrize("page", ["docs/kernels.md", "kernels/RATIOS.md"])
def test_the_pages_show_the_stored_run(page: str, program: ModuleType) -> None:
    """Writing them again changes nothing, and every ratio that is wanted is in the run."""
    root = PROGRAM.parents[1]
    run = program.read_run(root / "tests" / "data" / "ratios" / "h200.json")
    text = (root / page).read_text(encoding="utf-8")
    assert program.with_tables(text, run) == text
    assert [result.name for result in run.results] == [wanted.name for wanted in program.WANTED]


def test_a_missed_ratio_and_a_missing_one_say_so(program: ModuleType) -> None:
    """Below what is wanted is MISSED; a side that could not run is no ratio, with its reason."""
    low = program.Result("f", "a", "x", "y", "speed", 1.2, ratio=1.1, ours_us=2.0, against_us=2.2)
    none = program.Result("f", "b", "x", "y", "speed", 1.2, why="ValueError: wrong")
    assert "1.100, wanted 1.2: MISSED" in program.line(low)
    assert program.line(none) == "b: none, ValueError: wrong"
    assert not none.met
    assert program.table([low, none]).count("MISSED") == 2


def test_every_side_is_a_registered_backend_and_a_workload_of_its_family(program: ModuleType) -> None:
    """No ratio names a backend or a workload that does not exist."""
    registry = Registry()
    kernels.register(registry)
    for wanted in program.WANTED:
        for case in (wanted.ours, wanted.against):
            name, _, text = case.partition("/")
            assert parse_workload(text).family in registry.get(name).families
    assert len({wanted.name for wanted in program.WANTED}) == len(program.WANTED)


def test_says_that_it_needs_a_gpu() -> None:
    """Without a GPU the program ends with one line saying so; an unknown word names what there is."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU; the program would measure for minutes")
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False)
    assert (done.returncode, "needs a GPU that torch can use" in done.stderr) == (2, True)
    done = subprocess.run([sys.executable, str(PROGRAM), "teapot"], capture_output=True, text=True, check=False)
    assert "no ratio's name holds teapot; there are: d64 4x2048 f16 causal over cuDNN" in done.stderr
