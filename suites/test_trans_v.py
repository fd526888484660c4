"""Two layouts of V under one algorithm: (B, Skv, Hk, D), and transposed, where the sequence is contiguous."""

import pytest

from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.prefill import Prefill

TRANS_V = [
    Prefill.parse_line(line)
    for line in (
        "b=1,s=65,h=2,d=64,f16,causal",
        "b=4,s=2048,h=48,d=128,f16",
        "b=4,s=2048,h=48,d=128,f16,causal",
        "b=4,s=2048,h=48,d=128,bf16,causal,lse",
        "b=4,s=4096,h=16,d=64,f16",
        "b=4,s=4096,h=16,d=64,bf16,causal,lse",
    )
]
"""The shapes that ROCm/triton's perf-kernels/06-fused-attention-fwd-transV.py is checked and timed at (4 x 48 heads of
128, 16 heads at 4096), with both masks, both types, and with what the backward pass needs; and one for a CPU."""

TRANS_V_BACKWARD = [
    Backward.parse_line(line)
    for line in (
        "b=1,s=65,h=2,d=64,f16,causal",
        "b=4,s=2048,h=48,d=128,bf16,causal",
        "b=4,s=4096,h=16,d=64,f16",
    )
]
"""The same shapes for the backward pass of perf-kernels/06-fused-attention-transV.py: one for a CPU, and one of each
head dimension and mask."""


@pytest.mark.attnperf(
    family="prefill",
    workloads=TRANS_V,
    nightly=TRANS_V[2:],
    cpu=TRANS_V[:1],
    backends=["triton.flash", "triton.flash_trans_v"],
)
def test_trans_v(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(
    family="prefill",
    workloads=TRANS_V,
    nightly=TRANS_V[1:],
    cpu=TRANS_V[:1],
    backends=["triton.flash_trans_v_perf_kernels", "triton.flash_trans_v_autotuned"],
)
def test_other_configurations(attnperf, backend, workload):
    """The same as ROCm/triton published it for MI250, and as Triton's autotuner chooses: timed by nightly runs only."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(
    family="backward",
    workloads=TRANS_V_BACKWARD,
    nightly=TRANS_V_BACKWARD[1:],
    cpu=TRANS_V_BACKWARD[:1],
    backends=["triton.flash_backward_trans_v"],
)
def test_trans_v_backward(attnperf, backend, workload):
    """The gradients over transposed values are right and, when a nightly run times them, no slower than before."""
    attnperf.run(backend, workload)
