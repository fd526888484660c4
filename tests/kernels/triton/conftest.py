"""Triton's kernels without a GPU: the judge of their results under the interpreter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.correctness.budget import list_problems as problems_of
from pytest_attnperf.correctness.metrics import compare_output
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.families import parse_workload

SEED = 1

Judge = Callable[..., tuple[str, ...]]


@pytest.fixture(scope="session")
def judge() -> Judge:
    """`judge(id, outputs, tolerance)` -> what is wrong with outputs for the inputs of seed 1, as the gate says it."""
    references = References()

    def run(text: str, outputs: Outputs, tolerance: Tolerance | None = None, device: str = "cpu") -> tuple[str, ...]:
        workload = parse_workload(text)
        inputs: Tensors = workload.make_inputs(SEED, device, planted=True)
        expected = references.compute_expected(workload, inputs, seed=SEED, planted=True)
        truth = expected.reference
        if outputs.keys() != truth.keys():
            return (f"gives {sorted(outputs)}, expected {sorted(truth)}",)
        return problems_of(
            [
                compare_output(
                    "interpreted", name, outputs[name], truth[name], expected.yardsticks[name], tolerance or Tolerance()
                )
                for name in truth
            ]
        )

    return run
