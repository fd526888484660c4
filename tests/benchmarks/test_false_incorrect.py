"""benchmarks/false_incorrect.py: how often honest backends are called wrong, and what the count proves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "false_incorrect.py"
WORKLOADS = ("prefill-b1-s40-h2-d16-f16-causal", "prefill-b1-s40-h2-d16-f32")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The program on a CPU."""
    command = [sys.executable, str(PROGRAM), "--device=cpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_every_backend_is_judged_on_every_seed() -> None:
    """A line per backend and workload, no honest result called wrong, and the bound that so few seeds allow."""
    done = run("--seeds=6", "--workload", *WORKLOADS, "--backend=native.eager,native.sdpa_flash")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("prefill-")]
    assert [row[:4] for row in rows] == [
        [workload, backend, "6", "0"] for workload in WORKLOADS for backend in ("native.eager", "native.sdpa_flash")
    ]
    assert {row[4] for row in rows} == {"39.30%"}  # 1 - 0.05^(1/6)
    assert "0 of 24 decisions INCORRECT" in done.stdout


def test_trials_decide_in_place_of_calls() -> None:
    """A seed is one run of all trials that are named."""
    done = run("--seeds=2", "--workload", WORKLOADS[1], "--backend=native.eager", "--trials=guards,layouts")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of 2 decisions INCORRECT" in done.stdout


def test_nothing_judged_is_no_success() -> None:
    """A backend that does not run here decides nothing, and the program fails."""
    done = run("--seeds=2", "--workload", WORKLOADS[0], "--backend=native.sdpa_cudnn")
    assert done.returncode == 1
    assert "0 of 0 decisions" in done.stdout


@pytest.mark.parametrize(
    ("alarms", "decisions", "bound"), [(0, 1000, 0.00299), (2, 2000, 0.00314), (0, 3000, 0.000998)]
)
def test_the_bound_is_that_of_clopper_and_pearson(alarms: int, decisions: int, bound: float) -> None:
    """0 in 1,000 rules out 0.30 %, 2 in 2,000 rule out 0.31 %, 0 in 3,000 rules out 0.1 %."""
    sys.path.insert(0, str(PROGRAM.parent))
    try:
        from false_incorrect import upper_bound  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(PROGRAM.parent))
    assert upper_bound(alarms, decisions) == pytest.approx(bound, rel=0.01)
