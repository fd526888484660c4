"""Judges layers over Triton's latent attention in an interpreting process (see `run_interpreted`): a case is an id."""

from __future__ import annotations

from typing import Any

from kernels.layer.mla_layers import mla_layers_over
from kernels.triton.mla.backend import BACKENDS
from pytest_attnperf.backends import Pipeline, replay_choice
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import References
from pytest_attnperf.workloads.mla_block import MlaBlock

SEED = 2
LAYER = next(layer for layer in mla_layers_over(BACKENDS) if layer.name == "layer.triton.mla")


def found(case: str) -> dict[str, Any]:
    """What is wrong with one call, its stages and configuration, and the latter when its blocks of keys are pinned."""
    block = MlaBlock.parse(case)
    inputs = block.make_inputs(1, "cpu", planted=False)
    prepared = LAYER.prepare(block, inputs)
    judge = Judge(prepared, block, references=References(), tolerance=LAYER.tolerance, device="cpu")
    said = judge.check_call("one call", prepared.run, seed=SEED, planted=True).problems
    stored = {key: "16" if key.endswith("BLOCK_N") else value for key, value in prepared.config.items()}
    call = prepared.call
    assert isinstance(call, Pipeline)
    return {
        "problems": list(said),
        "stages": [stage.name for stage in call.stages],
        "config": prepared.config,
        "stored": stored,
        "replayed": replay_choice(LAYER, stored).prepare(block, inputs).config,
    }
