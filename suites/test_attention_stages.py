"""The stages of unfused attention, each judged and timed by itself, beside whole attention that is staged or fused.

`attnperf report --by stage .attnperf/results.json` adds them up and compares the sum with the fused kernels.
"""

import pytest

from suites.attention_stages_workloads import CAUSAL_MASKS, QK_SCORES, ROW_SOFTMAXES, STAGED, WEIGHTED_VALUES

STAGES = ["native.staged", "triton.staged", "hip.staged"]
FUSED = ["native.sdpa_flash", "triton.flash", "hip.best"]


@pytest.mark.attnperf(family="qk_scores", workloads=QK_SCORES, nightly=QK_SCORES[1:2], cpu=QK_SCORES[:1])
def test_qk_scores(attnperf, backend, workload):
    """Scores are right and, when timed, no slower than their baseline."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(family="causal_mask", workloads=CAUSAL_MASKS, nightly=CAUSAL_MASKS[1:2], cpu=CAUSAL_MASKS[:1])
def test_causal_mask(attnperf, backend, workload):
    """The mask hides what it must and nothing else and, when timed, is no slower than its baseline."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(family="row_softmax", workloads=ROW_SOFTMAXES, nightly=ROW_SOFTMAXES[1:2], cpu=ROW_SOFTMAXES[:1])
def test_row_softmax(attnperf, backend, workload):
    """Weights are right and, when timed, no slower than their baseline."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(
    family="weighted_values", workloads=WEIGHTED_VALUES, nightly=WEIGHTED_VALUES[1:2], cpu=WEIGHTED_VALUES[:1]
)
def test_weighted_values(attnperf, backend, workload):
    """The product with the values is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(
    family="prefill",
    workloads=STAGED,
    nightly=STAGED[1:],
    cpu=STAGED[:1],
    backends=[*STAGES, *FUSED],
    breakdown=True,
)
def test_attention(attnperf, backend, workload):
    """Attention made of the stages, and in one kernel, is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
