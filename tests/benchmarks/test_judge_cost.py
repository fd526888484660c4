"""benchmarks/judge_cost.py: what proving costs, from the results of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pytest_attnperf.records import CaseKey, CheckReport, Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "judge_cost.py"


def test_seconds_are_added_by_part(tmp_path: Path) -> None:
    """The dearest part first, the sum below, and the dearest cases by name."""
    cases = tuple(
        CaseResult(
            CaseKey("prefill", "a", f"w{number}"),
            "nodeid",
            Verdict.SAME,
            "",
            checks=(CheckReport(seconds=2.0 + number, parts={"call": 0.75, "reference": 1.0 + number}),),
        )
        for number in range(2)
    )
    run = RunResult(RESULTS_SCHEMA, "0", "gate", "", "", "", None, None, cases, seconds=9.0)
    path = tmp_path / "results.json"
    json_results.write(path, run)
    done = subprocess.run([sys.executable, str(PROGRAM), str(path)], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[2:6] == [
        ["reference", "3.00", "60%"],
        ["call", "1.50", "30%"],
        ["other", "0.50", "10%"],
        ["judging", "5.00"],
    ]
    assert "of a run of 9.0 s over 2 cases" in done.stdout
    assert done.stdout.index("3.00 s  prefill/a/w1") < done.stdout.index("2.00 s  prefill/a/w0")
