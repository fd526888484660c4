"""The judge of layers: problems of one call on planted inputs, as the gate says them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.backends import Backend, Outputs, Tensors
from pytest_attnperf.correctness.budget import list_problems
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.metrics import compare_output
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.block import Block

PREPARED_SEED, JUDGED_SEED = 1, 2
REFERENCES = References()

Problems = tuple[str, ...]


@pytest.fixture(scope="session")
def judged() -> Callable[..., Problems]:
    """`judged(layer, block, device)`: prepared on the inputs of one seed, judged on those of another."""

    def run(layer: Backend, block: Block, device: str = "cpu") -> Problems:
        prepared = layer.prepare(block, block.make_inputs(PREPARED_SEED, device, planted=False))
        judge = Judge(prepared, block, references=REFERENCES, tolerance=layer.tolerance, device=device)
        return judge.check_call("one call", prepared.run, seed=JUDGED_SEED, planted=True).problems

    return run


@pytest.fixture(scope="session")
def judged_outputs() -> Callable[[Block, Tensors, Outputs], Problems]:
    """`judged_outputs(block, planted inputs of JUDGED_SEED, outputs)`: what is wrong with them."""

    def run(block: Block, inputs: Tensors, outputs: Outputs) -> Problems:
        expected = REFERENCES.compute_expected(block, inputs, seed=JUDGED_SEED, planted=True)
        truth, yardsticks = expected.reference, expected.yardsticks
        return list_problems(
            [compare_output("one", n, outputs[n], truth[n], yardsticks[n], Tolerance()) for n in truth]
        )

    return run
