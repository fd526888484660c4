from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.records import CaseKey, DeviceInfo, Launch, Verdict
from pytest_attnperf.records.stages import Breakdown, StageTime
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

Run = Callable[..., str]

LAYER = "block-b1-s64-h4-d32-f16"
PREFILL = "prefill-b1-s64-h4-d32-f16"
STAGES = ("qk_scores-b1-s64-h4-d32-f16", "row_softmax-b1-s64-h4-f16", "weighted_values-b1-s64-h4-d32-f16")
GPU = DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200")
CPU = DeviceInfo("cpu", "cpu-x86_64", "epyc", "AMD EPYC")
FOUND = Breakdown(
    (StageTime("qkv_projection", 30.0, (Launch("gemm"),), 1, 2**20), StageTime("split", 0.0, (), 0, 0)),
    31.0, "graph", 12.0, 3.0, (Launch("gemm"),), 1, 2**20,
)  # fmt: skip


def case(backend: str, workload: str, us: float | None, breakdown: Breakdown | None = None) -> CaseResult:
    """A case of any suite."""
    verdict = Verdict.SAME if us else Verdict.UNSUPPORTED
    return CaseResult(CaseKey("s", backend, workload), "n", verdict, "", median_us=us, breakdown=breakdown)


def results(path: Path, *cases: CaseResult, device: DeviceInfo | None = GPU) -> str:
    """A results file."""
    run = RunResult(RESULTS_SCHEMA, "0.1.0", "gate", "2026-01-01", "pytest --attnperf", "c0", device, None, cases)
    json_results.write(path, run)
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Results with stages and staged attention, of one without either, and of CPUs, by name."""
    layers = (case("layer.plain", LAYER, 62.0, FOUND), case("layer.hip.best", LAYER, 31.0, FOUND))
    staged = [case("hip.staged", workload, 10.0) for workload in (*STAGES, PREFILL)]
    both = (*layers, *staged, case("hip.best", PREFILL, 5.0))
    return {
        "gpu": results(tmp_path / "gpu.json", *both),
        "layers": results(tmp_path / "layers.json", *layers),
        "staged": results(tmp_path / "staged.json", *both[2:]),
        "none": results(tmp_path / "none.json", case("hip.best", PREFILL, 5.0)),
        "cpu": results(tmp_path / "cpu.json", case("layer.plain", LAYER, 6200.0), device=CPU),
        "cpu without": results(tmp_path / "no.json", case("layer.plain", PREFILL, None), device=CPU),
    }


@pytest.fixture
def run(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Run:
    """Type `attnperf stages NAME ARGUMENTS`, names of files in braces; what it prints with exit status 0."""

    def typed(name: str, *arguments: str) -> str:
        status = main(["stages", files[name], *(argument.format_map(files) for argument in arguments)])
        printed = capsys.readouterr()
        assert status == 0, printed.err
        return printed.out

    return typed


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `attnperf stages ARGUMENTS` says with exit status 2."""
    assert main(["stages", *arguments]) == 2
    return capsys.readouterr().err


def test_everything_that_a_run_has(run: Run) -> None:
    """The device, an overview, every backend's stages in full, and staged against fused."""
    text = run("gpu")
    assert text.startswith("device: NVIDIA H200 (sm_90)\n")
    titles = (LAYER, f"{LAYER}: layer.plain", f"{LAYER}: layer.hip.best", f"staged against fused: {PREFILL}")
    lines = text.splitlines()
    assert [line for line in lines if line in titles] == list(titles)
    assert max(map(len, lines)) <= 110
    assert "hip.staged, sum of 3" in text


def test_a_run_with_one_of_both(run: Run) -> None:
    """What is not there is said where something could be expected, and is no error."""
    assert "staged against fused: no case of the stages of a prefill that is here, too" in run("layers")
    text = run("staged")
    assert "where the time goes" not in text
    assert "hip.best" in text


def test_over_the_cpu_of_another_run(run: Run) -> None:
    """Both devices are named, and each backend's time is held to the CPU's."""
    text = run("layers", "--cpu", "{cpu}")
    assert "device: NVIDIA H200 (sm_90)\n" in text
    assert "CPU: AMD EPYC (cpu-x86_64), layer.plain\n" in text
    (line,) = (one for one in text.splitlines() if one.endswith("200.0x"))
    assert line.split() == ["layer.hip.best", "31.00", "200.0x"]


def test_one_workload(run: Run) -> None:
    """--workload shows it alone, of either kind."""
    assert PREFILL not in run("gpu", "--workload", LAYER)
    assert LAYER not in run("gpu", "--workload", PREFILL)


def test_markdown(run: Run) -> None:
    """Every table whole, under a heading."""
    text = run("gpu", "--markdown")
    assert f"### {LAYER}\n\n| backend " in text


def test_files_without_any_of_it(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A run without stages, and a chosen workload without, are errors that say what makes them."""
    said = refused(capsys, files["none"])
    assert "none.json holds no stages (mode 'gate', 1 cases): stages are timed by pytest --attnperf for tests" in said
    chosen = refused(capsys, files["gpu"], "--workload", STAGES[0])
    assert f"gpu.json holds no stages of {STAGES[0]}" in chosen
    assert "unknown workload 'block-b9'; known: block-b1" in refused(capsys, files["gpu"], "--workload", "block-b9")


def test_a_cpu_file_that_is_none(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A GPU's results, and a CPU's that has no such time, are refused with what is wanted."""
    wrong = refused(capsys, files["gpu"], "--cpu", files["layers"])
    assert "layers.json was measured on NVIDIA H200 (sm_90); --cpu wants a run on a CPU: pytest --attnperf" in wrong
    without = refused(capsys, files["gpu"], "--cpu", files["cpu without"])
    assert "no.json has no time of layer.plain on a workload whose stages are shown; it has times of it on: none" in (
        without
    )


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The name and the reason, without a traceback."""
    assert "No such file" in refused(capsys, str(tmp_path / "gone.json"))
