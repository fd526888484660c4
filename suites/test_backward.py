"""The backward pass of attention, dense and packed: every backend on every workload."""

import pytest

from suites.backward_workloads import BACKWARD, VARLEN_BACKWARD

NEW = [f"{backend}-{one.id}" for backend in ("gluon.flash_backward", "native.cudnn_backward") for one in BACKWARD]
NEW_VARLEN = [f"gluon.flash_backward-{one.id}" for one in VARLEN_BACKWARD]
"""No time of these is stored yet, so that runs other than nightly ones would have nothing to compare it with."""


@pytest.mark.attnperf(
    family="backward",
    workloads=BACKWARD,
    nightly=[*BACKWARD[1:3], f"native.eager_backward-{BACKWARD[3].id}", *NEW],
    cpu=[f"native.eager_backward-{BACKWARD[0].id}"],
    without=["triton.flash_backward_trans_v"],
)
def test_backward(attnperf, backend, workload):
    """The gradients are right and, when timed, no slower than their baseline."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(
    family="varlen_backward",
    workloads=VARLEN_BACKWARD,
    nightly=[*VARLEN_BACKWARD[2:], f"native.eager_varlen_backward-{VARLEN_BACKWARD[1].id}", *NEW_VARLEN],
    cpu=VARLEN_BACKWARD[:1],
)
def test_varlen_backward(attnperf, backend, workload):
    """The gradients of packed sequences are right and, when timed, no slower than their baseline."""
    attnperf.run(backend, workload)
