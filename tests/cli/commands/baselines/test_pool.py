"""`attnperf baselines pool`: files that come together, what is printed, and what is written."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.records import CaseKey, CheckReport, ErrorFigures, ProcessSummary, Samples, Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.stats.summaries import summarise_process
from pytest_attnperf.testing.project import FakeProject
from pytest_attnperf.testing.sample_runs import sample_run
from tests.plugin.printed.arranging import commit_all

RIGHT = CheckReport((ErrorFigures("seed 1", "out", 1e-3, 2e-3, 1e-4, 2e-4, elements=64),))


def calibrated(case: CaseResult, machine: int, count: int = 4) -> CaseResult:
    """A sample case as a calibration of that machine gives it: processes of its own on two cards."""
    assert case.median_us is not None
    samples = [
        Samples(
            tuple(case.median_us * (1 + step * 1e-3 + (10 * machine + pid) * 1e-4) for step in range(5)), 20, "graph"
        )
        for pid in range(count)
    ]
    processes = tuple(
        dataclasses.replace(summarise_process(one), device_id=f"GPU-{machine}{pid % 2}", process=f"pid {pid}")
        for pid, one in enumerate(samples)
    )
    return dataclasses.replace(case, verdict=Verdict.RIGHT, first=processes, second=(), checks=(RIGHT,) * count)


def move(process: ProcessSummary) -> ProcessSummary:
    """The process as another one that takes 0.4 % longer."""
    blocks = tuple(1.004 * us for us in process.block_us)
    return dataclasses.replace(
        process,
        block_us=blocks,
        **{name: 1.004 * getattr(process, name) for name in ("median_us", "min_us", "mean_us")},
    )


def write_recording(folder: Path, machine: int, change: Any = None, **changes: Any) -> str:
    """Writes the results of a machine's recording of three timed cases and one that is not supported, and returns the
    file's path; `change` is called for each timed case."""
    run = sample_run(4, verdicts=(Verdict.SAME,))
    *timed, last = run.cases
    cases = [calibrated(case, machine) for case in timed]
    cases = [change(case) for case in cases] if change else cases
    last = dataclasses.replace(last, verdict=Verdict.UNSUPPORTED, first=(), checks=())
    made = dataclasses.replace(run, mode="calibrate", cases=(*cases, last), run_id=f"run {machine}", **changes)
    path = folder / f"node{machine}.json"
    json_results.write(path, made)
    return str(path)


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of two machines; the baselines are in the folder where the command runs."""
    monkeypatch.chdir(tmp_path)
    return [write_recording(tmp_path, machine) for machine in (0, 1)]


def test_recordings_of_two_machines_become_entries(nodes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run says the same and writes nothing; then each case has one entry with the processes of all cards."""
    said = "3 cases from 4 cards of 2 recordings: 8 processes each\n1 case timed in no recording\n"
    assert main(["baselines", "pool", *nodes, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"{said}dry run: nothing was written\n"
    assert not Path("baselines").exists()
    assert main(["baselines", "pool", *nodes]) == 0
    path = "baselines/sm_90/sample/prefill.json"
    assert capsys.readouterr().out == f"{said}stored in {path}, which is not under version control\n"
    stored = json.loads(Path(path).read_text())["entries"]
    cards = [{process["device_id"] for process in entry["processes"]} for entry in stored.values()]
    assert cards == [{"GPU-00", "GPU-01", "GPU-10", "GPU-11"}] * 3
    assert {entry["commit"] for entry in stored.values()} == {"4f2c1ab90d11"}


def test_a_case_that_is_not_pooled_is_named(nodes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The others are stored, and the status is 1. One reason of several cases stands once; nothing of a file reaches
    the terminal as it is."""
    wide = CaseKey("prefill", "ck", "a\x1b[2J")

    def change(case: CaseResult) -> CaseResult:
        if case.key.backend == "triton.flash":
            return dataclasses.replace(case, config={"BLOCK_M": "1\x1b[31m"})
        return dataclasses.replace(case, key=wide) if case.key.backend == "native.eager" else case

    nodes[1] = write_recording(Path(), 1, change)
    assert main(["baselines", "pool", *nodes]) == 1
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "1 case from 4 cards of 2 recordings: 8 processes\n" in said
    assert f"prefill-b1-s128-h4-d64-f16-causal: {nodes[0]} (here) and {nodes[1]} (there) differ: BLOCK_M: 128 " in said
    assert "not pooled: 2 cases (" not in said
    assert "not pooled: in node1.json: the key 'prefill/ck/a\\x1b[2J' has unprintable charac" in said
    write_recording(Path(), 1, lambda case: dataclasses.replace(case, source_id="77aa"))
    assert main(["baselines", "pool", *nodes, "--baselines", "others"]) == 1
    said = capsys.readouterr().out
    assert "not pooled: 3 cases (prefill/native.eager/" in said
    assert said.endswith("nothing was stored: no case could be pooled\n")
    assert not Path("others").exists()


def test_foreign_files_end_with_2_and_one_line(nodes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Cut off, a folder, no file, a stored baseline, a gating run, the same file twice and a copy of the other's
    processes: nothing is written."""
    Path("cut.json").write_bytes(Path(nodes[1]).read_bytes()[:3000])
    json_results.write(Path("gate.json"), sample_run(1))
    copied: RunResult = dataclasses.replace(json_results.read(Path(nodes[0])), run_id="another")
    json_results.write(Path("copied.json"), copied)
    told = {
        "cut.json": "cut.json is not a results file of this version: Input data was truncated",
        ".": "is a folder",
        "missing": "there is no missing; pytest --attnperf-calibrate=4 ",
        "gate.json": "gate.json: a run of mode 'gate' is no recording",
        nodes[0]: "are results of the same run",
        "copied.json": "the same process stands in both",
    }
    for name, text in told.items():
        assert main(["baselines", "pool", nodes[0], name]) == 2
        said = capsys.readouterr().err
        assert said.startswith("attnperf: ")
        assert text in said
        assert said.count("\n") == 1
    assert main(["baselines", "pool", *nodes, "--baselines", nodes[0]]) == 2
    assert "is no folder; it takes what pytest --update-baselines wrote" in capsys.readouterr().err
    assert not Path("baselines").exists()


def test_of_several_suites_all_or_none_is_written(nodes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A file that must not be rewritten keeps the other suite's entries out, too; a dry run finds it as well."""
    for machine in (0, 1):
        write_recording(
            Path(),
            machine,
            lambda case: dataclasses.replace(case, key=dataclasses.replace(case.key, suite=case.key.backend[:6])),
        )
    damaged = Path("baselines/sm_90/sample/triton.json")
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{}")
    for more in (["--dry-run"], []):
        assert main(["baselines", "pool", *nodes, *more]) == 2
        assert str(damaged) in capsys.readouterr().err
    assert [path.name for path in damaged.parent.iterdir()] == ["triton.json"]


def test_a_pooled_baseline_gates(
    attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A calibration's own file, pooled with one of another machine, is what the next run compares with."""
    monkeypatch.chdir(attnperf_project.path)
    attnperf_project.backend("fake.a", time_us=100.0)
    commit_all(attnperf_project, "all")
    result = attnperf_project.run("--attnperf-calibrate=4", "--attnperf-report=.attnperf/one")
    assert result.ret == 0, result.stdout.str()
    one = json_results.read(Path(".attnperf/one/results.json"))
    cases = tuple(dataclasses.replace(case, first=tuple(map(move, case.first))) for case in one.cases)
    json_results.write(Path(".attnperf/two.json"), dataclasses.replace(one, cases=cases, run_id="two"))
    assert main(["baselines", "pool", ".attnperf/one/results.json", ".attnperf/two.json"]) == 0
    said = capsys.readouterr().out
    assert ": 8 processes\n" in said
    assert "commit it: git add baselines/fake/fake1/prefill.json && git commit -m 'Pool baselines of 1 case'" in said
    assert attnperf_project.run("--attnperf", "--attnperf-strict").ret == 0
    assert attnperf_project.verdicts() == {"fake.a": "SAME"}
