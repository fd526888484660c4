"""Judges layers over Triton's kernels in an interpreting process (see `run_interpreted`): a case is 'layer/ID'.

'grown/ID' decodes the block's tokens one by one over `triton.flash_decode`.
"""

from __future__ import annotations

from typing import Any

from kernels.layer.growing import decode_token_by_token
from kernels.layer.layers import layers_over
from kernels.triton.decode.backend import BACKENDS as DECODE
from kernels.triton.prefill.backend import BACKENDS as PREFILL
from kernels.triton.staged.backend import BACKENDS as STAGED
from kernels.triton.trans_v.backend import BACKENDS as TRANS_V
from pytest_attnperf.backends import Pipeline, replay_choice
from pytest_attnperf.correctness.budget import list_problems
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.metrics import compare_output
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.block import Block

SEED = 2
REFERENCES = References()
LAYERS = {layer.name: layer for layer in layers_over((*PREFILL, *STAGED, *TRANS_V, *DECODE))}


def judged(name: str, block: Block) -> dict[str, Any]:
    """What is wrong with one call, its stages and configuration, and the latter when its blocks of keys are pinned."""
    layer = LAYERS[name]
    inputs = block.make_inputs(1, "cpu", planted=False)
    prepared = layer.prepare(block, inputs)
    judge = Judge(prepared, block, references=REFERENCES, tolerance=layer.tolerance, device="cpu")
    said = judge.check_call("one call", prepared.run, seed=SEED, planted=True).problems
    stored = {key: "64" if key.endswith("BLOCK_N") else value for key, value in prepared.config.items()}
    call = prepared.call
    assert isinstance(call, Pipeline)
    return {
        "problems": list(said),
        "stages": [stage.name for stage in call.stages],
        "config": prepared.config,
        "stored": stored,
        "replayed": replay_choice(layer, stored).prepare(block, inputs).config,
    }


def grown(block: Block) -> dict[str, Any]:
    """What is wrong with tokens that are decoded one by one."""

    def backend_for(step: Block) -> Any:
        return LAYERS["layer.triton.flash_decode" if step.is_decode else "layer.triton.flash"]

    inputs = block.make_inputs(SEED, "cpu", planted=True)
    outputs = decode_token_by_token(backend_for, block, inputs)
    expected = REFERENCES.compute_expected(block, inputs, seed=SEED, planted=True)
    figures = [
        compare_output("grown", name, outputs[name], truth, expected.yardsticks[name], Tolerance())
        for name, truth in expected.reference.items()
    ]
    return {"problems": list(list_problems(figures))}


def found(case: str) -> dict[str, Any]:
    """What is found of a case."""
    name, _, text = case.partition("/")
    block = Block.parse(text)
    return grown(block) if name == "grown" else judged(name, block)
