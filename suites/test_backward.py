"""The backward pass of attention, dense and packed: every backend on every workload."""

import pytest

from suites.backward_workloads import BACKWARD, VARLEN_BACKWARD


@pytest.mark.attnperf(
    family="backward",
    workloads=BACKWARD,
    nightly=[*BACKWARD[1:3], f"native.eager_backward-{BACKWARD[3].id}"],
    cpu=[f"native.eager_backward-{BACKWARD[0].id}"],
    without=["triton.flash_backward_trans_v"],
)
def test_backward(attnperf, backend, workload):
    """The gradients are right and, when timed, no slower than their baseline."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(
    family="varlen_backward",
    workloads=VARLEN_BACKWARD,
    nightly=[*VARLEN_BACKWARD[2:], f"native.eager_varlen_backward-{VARLEN_BACKWARD[1].id}"],
    cpu=VARLEN_BACKWARD[:1],
)
def test_varlen_backward(attnperf, backend, workload):
    """The gradients of packed sequences are right and, when timed, no slower than their baseline."""
    attnperf.run(backend, workload)
