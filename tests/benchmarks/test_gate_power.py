"""Whether pytest finds real slowdowns: which trees and commands run, and what is made of their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gate_power
from benchmarks.gate_power import TrueSize, read
from benchmarks.slowdowns import EDITS
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.testing.sample_runs import sample_run

EDIT = "softmax_power"


class Pytest:
    """Writes results as pytest does: SLOWER in trees of 5 % and, by pairs, of 1 %; else SAME."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, Sequence[str]]] = []

    def __call__(self, command: Sequence[str], tree: Path, environ: dict[str, str]) -> int:
        """One run."""
        self.ran.append((tree.name, command))
        if "--update-baselines" in command:
            (tree / "baselines" / "recorded").write_text("here")
            return 0
        (results,) = (Path(one.split("=")[1]) for one in command if one.startswith("--attnperf-results="))
        verdict = Verdict.SLOWER if tree.name in ("slow5", "slow1") else Verdict.SAME
        (case,) = sample_run(1, verdicts=[verdict]).cases
        key = CaseKey("softmax", EDITS[EDIT].backend, EDITS[EDIT].workload, "")
        json_results.write(results, replace(sample_run(1), cases=(replace(case, key=key, verdict=verdict),)))
        return 1


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, and no copies of the tree: strengths and sizes are given."""

    def made(folder: Path, strengths: Any = None) -> Path:
        (folder / "baselines").mkdir(parents=True)
        return folder

    monkeypatch.setattr(gate_power, "make_tree", made)
    monkeypatch.setattr(gate_power, "preload", lambda device: None)
    monkeypatch.setattr(gate_power, "choose_strengths", lambda trees, cases, levels: {x: {EDIT: 7} for x in levels})

    def sized(trees: Any, cases: Any, strengths: Any, levels: Any, run: str) -> list[TrueSize]:
        return [TrueSize(run, cases[0].name, label, level, level, 0.0, f"{EDIT} 7") for label, level in levels.items()]

    monkeypatch.setattr(gate_power, "sized", sized)


@pytest.mark.usefixtures("sizes")
def test_verdicts_are_counted_by_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unchanged and slowed trees run in turn, against the store and against a clean tree; the file says it again."""
    ran, file = Pytest(), tmp_path / "power.jsonl"
    assert gate_power.main(["--json", str(file), "--edits", EDIT, "--repeats", "2"], ran) == 0
    assert [tree for tree, _ in ran.ran] == ["clean", "slow3", "slow5", "clean", "slow1"] * 2
    assert all(command[-1] == gate_power.node_of(gate_power.Case("triton.softmax", EDITS[EDIT].workload, EDIT))
               for _, command in ran.ran)  # fmt: skip
    paired = [command for _, command in ran.ran if any("against" in one for one in command)]
    assert len(paired) == 4
    assert all("--attnperf-override=threshold=0.3" in command for command in paired)
    assert len(read(file).outcomes) == 10
    capsys.readouterr()
    assert gate_power.main(["--report", str(file)]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(("stored", "pairs"))]
    assert [line[:6] for line in shown] == [
        ["pairs", "plain", "0", "0", "of", "2"],
        ["pairs", "slow1", "1.00", "2", "of", "2"],
        ["stored", "plain", "0", "0", "of", "2"],
        ["stored", "slow3", "3.00", "0", "of", "2"],
        ["stored", "slow5", "5.00", "2", "of", "2"],
    ]


def test_decisions_of_whole_runs_are_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of results of unchanged code each case with a ratio is a decision; many cases have one line together."""
    run = sample_run(1, verdicts=[Verdict.SAME])
    (case,) = run.cases
    cases = [replace(case, key=CaseKey("softmax", "b", f"w{number}", ""), ratio=1.0) for number in range(30)]
    cases.append(replace(case, key=CaseKey("softmax", "b", "untimed", ""), ratio=None))
    json_results.write(tmp_path / "results.json", replace(run, cases=tuple(cases)))
    file = tmp_path / "power.jsonl"
    assert gate_power.main(["--json", str(file), "--runs", str(tmp_path / "results.json")]) == 0
    assert gate_power.main(["--report", str(file)]) == 0
    (line,) = capsys.readouterr().out.splitlines()[2:]
    assert line.split()[:7] == ["suites", "plain", "0", "0", "of", "30", "0"]


@pytest.mark.usefixtures("sizes")
def test_baselines_that_were_recorded_are_those_of_every_tree(tmp_path: Path) -> None:
    """They are recorded in the clean tree, before anything is judged."""
    seen: list[bool] = []

    class Looking(Pytest):
        def __call__(self, command: Sequence[str], tree: Path, environ: dict[str, str]) -> int:
            seen.append((tree / "baselines/recorded").exists())
            return super().__call__(command, tree, environ)

    arguments = ["--json", str(tmp_path / "f"), "--edits", EDIT, "--repeats", "1", "--record"]
    assert gate_power.main(arguments, Looking()) == 0
    assert seen == [False, True, True, True, True, True]


@pytest.mark.usefixtures("sizes")
def test_a_run_without_results_is_a_failure(tmp_path: Path) -> None:
    """And so are baselines that could not be recorded."""
    arguments = ["--json", str(tmp_path / "f"), "--edits", EDIT, "--repeats", "1"]
    assert gate_power.main(arguments, lambda command, tree, environ: 3) == 1
    assert gate_power.main([*arguments, "--record"], lambda command, tree, environ: 3) == 1


@pytest.mark.usefixtures("sizes")
def test_a_dry_run_prints_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is measured, run or written."""
    assert gate_power.main(["--json", str(tmp_path / "f"), "--repeats", "1", "--dry"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["clean", "slow3", "slow5", "clean", "slow1"]
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "needs --json FILE"),
        (["--json", "f", "--edits", "faster"], "--edits has faster; there are flash_rescale"),
        (["--json", "f", "--edits", "softmax_power,softmax_load"], "two edits slow the same case"),
    ],
)
def test_what_cannot_run_is_said(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what exists."""
    with pytest.raises(SystemExit) as ended:
        gate_power.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
