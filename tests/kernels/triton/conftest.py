"""Triton's kernels without a GPU: their results under the interpreter, and the judge of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.correctness.budget import problems as problems_of
from pytest_attnperf.correctness.metrics import compare
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.families import parse_workload

ROOT = Path(__file__).parents[3]
SEED = 1

Interpret = Callable[[str, Sequence[str]], dict[str, Any]]
Judge = Callable[..., tuple[str, ...]]


@pytest.fixture(scope="module")
def interpret(tmp_path_factory: pytest.TempPathFactory) -> Interpret:
    """`interpret(module, cases)` runs 'backend/workload id' cases of `module.BACKENDS` in one interpreting process.

    Gives by case: outputs, config (as recorded), replays, unchanged (the inputs), seconds.
    """
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")

    def run(module: str, cases: Sequence[str]) -> dict[str, Any]:
        saved = tmp_path_factory.mktemp("interpreted") / "outputs.pt"
        script = Path(__file__).with_name("run_interpreted.py")
        env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(script), module, str(saved), *cases]
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return dict(torch.load(saved))

    return run


@pytest.fixture(scope="session")
def judge() -> Judge:
    """`judge(id, outputs, tolerance)` -> what is wrong with outputs for the inputs of seed 1, as the gate says it."""
    references = References()

    def run(text: str, outputs: Outputs, tolerance: Tolerance | None = None, device: str = "cpu") -> tuple[str, ...]:
        workload = parse_workload(text)
        inputs: Tensors = workload.make_inputs(SEED, device, planted=True)
        expected = references.get(workload, inputs, seed=SEED, planted=True)
        truth = expected.reference
        if outputs.keys() != truth.keys():
            return (f"gives {sorted(outputs)}, expected {sorted(truth)}",)
        return problems_of(
            [
                compare(
                    "interpreted", name, outputs[name], truth[name], expected.yardsticks[name], tolerance or Tolerance()
                )
                for name in truth
            ]
        )

    return run
