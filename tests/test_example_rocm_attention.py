"""The scripts of examples/rocm-attention, as far as a machine without an AMD GPU can run them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from pytest_attnperf.cli.program import build_parser
from pytest_attnperf.records import CaseKey, Launch, Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import CaseResult
from pytest_attnperf.testing.sample_runs import sample_run

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "rocm-attention"
PROFILES = ROOT / "tests" / "data" / "profiles" / "rocprofv3_rocm63"
WORKLOAD = "prefill-b1-s512-h8-d64-f16"

ROCPROFV3 = f"""#!/usr/bin/env bash
while [ "$1" != -d ]; do shift; done
mkdir -p "$2"
case $2 in
*/trace) sed 's/void addition_kernel<float>/attention_flash/' {PROFILES}/kernel_trace.csv >"$2/run_kernel_trace.csv" ;;
*) sed 's/void addition_kernel<float>/attention_flash/' {PROFILES}/counter_collection.csv \
    >"$2/run_counter_collection.csv" ;;
esac
"""
"""Writes what the real one wrote elsewhere, under the name of our kernel."""


def run_script(name: str, *arguments: str, out: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a script of the example with results in `out`."""
    environment = os.environ | {"OUT": str(out), "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)} | variables
    environment.pop("PYTEST_ADDOPTS", None)
    command = ["bash", str(EXAMPLE / name), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def analysis() -> ModuleType:
    """The module analysis.py."""
    spec = importlib.util.spec_from_file_location("rocm_attention_analysis", EXAMPLE / "analysis.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("ci", ["", "true"])
def test_benchmarks_run_over_lengths(tmp_path: Path, ci: str) -> None:
    """Every length is a workload of the ladder's suite; without a GPU steps are only proven, in CI too, and no table is
    shown.
    """
    flags = "-p no:randomly --attnperf-device=cpu --attnperf-backend=hip.naive"
    done = run_script("run_benchmarks.sh", "9", "16", out=tmp_path, FLAGS=flags, NUM_HEADS="1", CI=ci)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "workloads.csv").read_text() == "s,d,h\n9,64,1\n16,64,1\n"
    cases = json_results.read(tmp_path / "results.json").cases
    assert [(case.key.workload, case.verdict) for case in cases] == [
        (f"prefill-b1-s{length}-h1-d64-f16", Verdict.RIGHT) for length in (9, 16)
    ]
    assert done.stdout.endswith("no table: see the message above\n")


def test_recipes_are_commands_that_exist(tmp_path: Path) -> None:
    """PRINT=1 prints a trace and a run per set of counters; what they profile is a command of ours."""
    done = run_script("rocprof_commands.sh", "hip.best", out=tmp_path, PRINT="1", SEQ_LEN="1024")
    lines = done.stdout.splitlines()
    assert [line.partition(" --output")[0] for line in lines] == [
        "rocprofv3 --kernel-trace --stats",
        "rocprofv3 --pmc SQ_WAVES GRBM_GUI_ACTIVE",
        "rocprofv3 --pmc FETCH_SIZE",
        "rocprofv3 --pmc LDSBankConflict",
    ]
    for line in lines:
        program, *words = line.partition(" -- ")[2].split()
        options = build_parser(["kernel run"]).parse_args(words)
        assert (program, options.backend) == (".venv/bin/attnperf", "hip.best")
        assert (options.s, options.d, options.h) == (1024, 64, 8)


def test_without_rocprofv3_it_says_so(tmp_path: Path) -> None:
    """A machine without ROCm gets one line and status 2."""
    done = run_script("rocprof_commands.sh", out=tmp_path, PATH="/usr/bin:/bin")
    assert done.returncode == 2
    assert done.stderr == (
        "rocprofv3 is not on the PATH: install ROCm 6.3 or later, or print the commands with PRINT=1\n"
    )


def test_analysis_reads_what_the_scripts_wrote(
    tmp_path: Path, analysis: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trace's kernels, the ladder's table, and one with the counters of the profiled step and workload only."""
    tool = tmp_path / "bin" / "rocprofv3"
    tool.parent.mkdir()
    tool.write_text(ROCPROFV3)
    tool.chmod(0o755)
    out = tmp_path / "results"
    path = f"{tool.parent}:{os.environ['PATH']}"
    assert run_script("rocprof_commands.sh", out=out, PATH=path, COUNTERS="SQ_WAVES").returncode == 0
    naive, flash = (
        CaseResult(
            CaseKey("hip_ladder", f"hip.{name}", WORKLOAD), "node", Verdict.SAME, "", median_us=20.0,
            config={"traffic_bytes": "60000000"}, launches=(Launch(f"attention_{name}"),),
        )
        for name in ("naive", "flash")
    )  # fmt: skip
    json_results.write(out / "results.json", replace(sample_run(), cases=(naive, flash)))
    assert analysis.main(out) == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if line.startswith("$ ")] == [
        f"$ attnperf profile {out}/{WORKLOAD}/hip.flash/trace",
        f"$ attnperf report {out}/results.json --by step",
        f"$ attnperf report {out}/results.json --by step --workload {WORKLOAD} --over hip.flash --backends hip.flash "
        f"--profile {out}/{WORKLOAD}/hip.flash/counters/SQ_WAVES/run_counter_collection.csv",
    ]
    assert "attention_flash" in said
    assert "SQ_WAVES" in said


def test_analysis_of_nothing_says_what_to_run(
    tmp_path: Path, analysis: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty folder is status 2 and one line."""
    assert analysis.main(tmp_path) == 2
    assert "holds no results: run run_benchmarks.sh or rocprof_commands.sh first" in capsys.readouterr().err
