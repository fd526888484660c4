"""benchmarks/figures/collect.py: what it runs, and how units of several commands become one run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from figures_records import Pass, Process, read
from figures_trees import SUITE, make_trees


def test_trees_differ_in_the_injections_only(tmp_path: Path) -> None:
    """Both sides hold the same files with the same content, but for what the candidate's settings slow."""
    trees = make_trees(tmp_path, "cpu", {"copy": {"slow1": {"kind": "copy"}}})
    files = {tree: sorted(p.relative_to(tree) for p in tree.rglob("*") if p.is_file())
             for tree in (trees.candidate, trees.base)}  # fmt: skip
    assert files[trees.candidate] == files[trees.base]
    differing = [
        str(name)
        for name in files[trees.base]
        if (trees.candidate / name).read_bytes() != (trees.base / name).read_bytes()
    ]
    assert differing == [f"{SUITE}/settings.json"]
    assert json.loads((trees.base / SUITE / "settings.json").read_text()) == {"device": "cpu", "injections": {}}
    assert [path.name for path in trees.harness.iterdir()] == ["pytest_attnperf"]


def test_environment_is_scrubbed(tmp_path: Path) -> None:
    """A pytest in a tree sees the harness first, and none of the caller's pytest settings."""
    trees = make_trees(tmp_path, "cpu", {})
    made = trees.environment({"PYTEST_ADDOPTS": "-x", "CI": "1", "PYTHONPATH": "before", "HOME": "h"})
    assert made == {"PYTHONPATH": f"{trees.harness}:before", "HOME": "h"}


def test_passes_ask_the_plugin(program: Callable[[str], Any], tmp_path: Path) -> None:
    """Processes are calibrated, pairs interleaved against the base tree, each with its own labels."""
    collect = program("collect")
    trees = make_trees(tmp_path / "trees", "cpu", {})
    plan = collect.plan_of(["--out", str(tmp_path / "f.jsonl"), "--device", "cpu", "--processes", "3", "--pairs", "2"])
    processes = collect.command_of(plan, trees, "processes", tmp_path / "r.json")
    pairs = collect.command_of(plan, trees, "pairs", tmp_path / "r.json")
    assert "--attnperf-calibrate=3" in processes
    assert "test_plain_ or test_slow3_ or test_slow5_" in processes
    assert {f"--attnperf-against=dir:{trees.base}", "--attnperf-interleave=all", "--attnperf-pairs=2"} <= set(pairs)
    assert "test_plain_ or test_slow05_ or test_slow1_" in pairs
    assert plan.kinds == ("processes", "pairs")


def test_selection_and_passes_can_be_narrowed(program: Callable[[str], Any], tmp_path: Path) -> None:
    """--select is added to the labels, --only chooses passes."""
    collect = program("collect")
    out = ["--out", str(tmp_path / "f.jsonl")]
    plan = collect.plan_of([*out, "--select", "copy", "--pair-labels", "plain"])
    trees = make_trees(tmp_path / "trees", "cpu", {})
    assert "(test_plain_) and (copy)" in collect.command_of(plan, trees, "pairs", tmp_path / "r.json")
    assert plan.kinds == ("processes", "pairs")
    assert collect.plan_of([*out, "--only", "pairs"]).kinds == ("pairs",)


def test_no_units_are_refused(program: Callable[[str], Any], capsys: pytest.CaptureFixture[str]) -> None:
    """A pass of nothing is a usage error with the values seen."""
    with pytest.raises(SystemExit, match="2"):
        program("collect").plan_of(["--out", "f", "--pairs", "1"])
    assert "--processes=14 --pairs=1: at least 1 process and 2 pairs" in capsys.readouterr().err


def test_second_command_of_a_run_counts_on(
    program: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Units of one run keep their own numbers, command after command; another pass of the run starts at 0."""
    collect = program("collect")

    def passed(plan: Any, trees: Any, kind: str) -> list[Any]:
        made = [Process(plan.run, "attnperf", "a", "plain", unit, 1.0, 0.1) for unit in range(2)]
        return [Pass(plan.run, kind, "now", "card", "h200", {}, 2, 1.0), *made]

    monkeypatch.setattr(collect, "through_the_plugin", passed)
    injections = tmp_path / "i.json"
    injections.write_text('{"a": {"slow3": {"kind": "calls", "nominal": 0.03, "true": 0.031, "true_sd": 0.0}}}')
    arguments = [
        "--out",
        str(tmp_path / "f.jsonl"),
        "--run",
        "r",
        "--injections",
        str(injections),
        "--only",
        "processes",
    ]
    assert collect.main(arguments) == collect.main(arguments) == 0
    found = read(tmp_path / "f.jsonl")
    assert [process.unit for process in found.processes] == [0, 1, 2, 3]
    assert [(size.label, size.true) for size in found.sizes] == [("slow3", 0.031)] * 2
    assert collect.units_before(collect.plan_of(arguments), "pairs") == 0


def test_case_without_a_number_is_the_exit_status(
    program: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What failed is printed and exits with 1; the rest is kept."""
    collect = program("collect")
    failed = Pass("r", "pairs", "now", "card", "h200", {}, 2, 1.0, ("a: ERROR: died",))
    monkeypatch.setattr(collect, "sized", lambda plan: {})
    monkeypatch.setattr(collect, "through_the_plugin", lambda plan, trees, kind: [failed])
    assert collect.main(["--out", str(tmp_path / "f.jsonl"), "--only", "pairs"]) == 1
    assert "no number: a: ERROR: died" in capsys.readouterr().out
    assert read(tmp_path / "f.jsonl").passes == [failed]


def test_pass_that_leaves_no_results_stops(
    program: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A usage error of the plugin is no measurement: the program stops with the command and its status."""
    collect = program("collect")
    trees = make_trees(tmp_path / "trees", "cpu", {})
    plan = collect.plan_of(["--out", str(tmp_path / "f.jsonl"), "--device", "cpu", "--pytest-options=--nonsense"])
    with pytest.raises(SystemExit, match="ended with 4 and left no results"):
        collect.through_the_plugin(plan, trees, "processes")


@pytest.mark.soak
def test_small_collection_on_a_cpu(
    program: Callable[[str], Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Two real processes and two real pairs of the copy, from the plugin itself, are collected and reported."""
    out = tmp_path / "f.jsonl"
    arguments = ["--out", str(out), "--device", "cpu", "--processes", "2", "--pairs", "2"]
    assert program("collect").main([*arguments, "--select", "copy"]) == 0
    found = read(out)
    assert {(p.case, p.label, p.unit) for p in found.processes} == {
        ("copy", label, unit) for label in ("plain", "slow3", "slow5") for unit in (0, 1)
    }
    assert {(p.case, p.label, p.unit) for p in found.pairs} == {
        ("copy", label, unit) for label in ("plain", "slow05", "slow1") for unit in (0, 1)
    }
    assert program("report").main([str(out), "--trials", "2"]) == 1
    assert "MISSED  pairs collected: 2 in 1 runs on 1 cards" in capsys.readouterr().out
