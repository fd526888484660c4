"""Judges `triton.staged` in an interpreting process (see `run_interpreted`): a case is a workload id, or the name of a
function below."""

from __future__ import annotations

from typing import Any

import torch

from kernels.triton.staged.backend import BACKENDS
from kernels.triton.staged.causal_mask import causal_mask
from kernels.triton.staged.qk_scores import qk_scores
from kernels.triton.staged.row_softmax import row_softmax
from kernels.triton.staged.weighted_values import weighted_values
from pytest_attnperf.backends import Pipeline
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import References
from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.weighted_values import WeightedValues

FAMILIES: dict[str, Any] = {
    "prefill": Prefill,
    "qk_scores": QkScores,
    "causal_mask": CausalMask,
    "row_softmax": RowSoftmax,
    "weighted_values": WeightedValues,
}
SEEDS = (1, 2)
ONE_WARP = {"num_warps": 1, "num_stages": 1}
PRODUCT = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, **ONE_WARP}
INFINITY = float("inf")


def judged(text: str, device: str = "cpu") -> dict[str, Any]:
    """Problems of every seed, the configuration, whether it replays, and the stages' names."""
    (backend,) = BACKENDS
    workload = FAMILIES[text.split("-")[0]].parse(text)
    prepared = backend.prepare(workload, workload.make_inputs(1, device, planted=True))
    judge = Judge(prepared, workload, references=References(), tolerance=backend.tolerance, device=device)
    reports = [judge.check_call(f"seed {seed}", prepared.run, seed=seed, planted=True) for seed in SEEDS]
    call = prepared.call
    return {
        "problems": [problem for report in reports for problem in report.problems],
        "outputs": sorted({figures.output for report in reports for figures in report.figures}),
        "config": prepared.config,
        "pinned": sorted(backend.replay_config(prepared.config).pinned_choices),
        "stages": [stage.name for stage in call.stages] if isinstance(call, Pipeline) else [],
    }


def mask_of_nan() -> bool:
    """Whether a mask over NaN writes -inf where keys are hidden, and leaves the NaN of the others."""
    scores = torch.full((1, 2, 40, 33), float("nan"))
    causal_mask(scores, config={"BLOCK_M": 16, "BLOCK_N": 16, **ONE_WARP})
    hidden = _hidden(40, 33)
    return bool((scores[..., hidden] == -INFINITY).all()) and bool(scores[..., ~hidden].isnan().all())


def unseen_is_unread() -> bool:
    """Whether NaN, in scores and values that lie past all that a block of rows sees, changes nothing."""
    scores = torch.randn(1, 1, 32, 96).masked_fill_(_hidden(32, 96), -INFINITY)
    lasting = scores.clone()
    scores[..., :8, 80:] = float("nan")  # row 7 sees keys up to 71, and 80 is the next multiple of 16
    for width in (32, 128):
        rows = {"BLOCK_R": 8, "BLOCK_C": width, **ONE_WARP}
        of_nan, of_all = (
            row_softmax(held, dtype=torch.float16, causal=True, with_lse=False, config=rows)[0]
            for held in (scores, lasting)
        )
        if not torch.equal(of_nan, of_all):
            return False
    v = torch.randn(1, 96, 1, 32).half()
    narrow = {**PRODUCT, "BLOCK_M": 16, "BLOCK_K": 16}
    whole = weighted_values(of_all, v, causal=True, config=narrow)
    v[:, 80:] = float("nan")  # row 15, the last of the first block, sees keys up to 79
    return torch.equal(weighted_values(of_all, v, causal=True, config=narrow)[:, :16], whole[:, :16])


def views_of_a_projection() -> bool:
    """Whether q, k and v within the first 33 of 40 rows of one tensor (B, S, H + 2 Hk, D) give the bits of copies."""
    joined = torch.randn(2, 40, 4, 24).half()[:, :33]
    q, k, v = joined[:, :, :2], joined[:, :, 2:3], joined[:, :, 3:]
    scores = qk_scores(q, k, config=PRODUCT)
    weights = torch.softmax(scores, dim=-1).half()
    out = weighted_values(weights, v, causal=False, config=PRODUCT)
    again = qk_scores(q.contiguous(), k.contiguous(), config=PRODUCT)
    return torch.equal(scores, again) and torch.equal(
        out, weighted_values(weights, v.contiguous(), causal=False, config=PRODUCT)
    )


def _hidden(seq_q: int, seq_kv: int) -> torch.Tensor:
    return torch.arange(seq_kv)[None, :] > torch.arange(seq_q)[:, None] + (seq_kv - seq_q)


EXPERIMENTS = {each.__name__: each for each in (mask_of_nan, unseen_is_unread, views_of_a_projection)}


def found(case: str) -> Any:
    """What is found of a case."""
    torch.manual_seed(1)
    return EXPERIMENTS[case]() if case in EXPERIMENTS else judged(case)
