"""Attention prefill: every backend on every workload."""

import pytest

from suites.prefill_workloads import PREFILL, PREFILL_CPU, PREFILL_NIGHTLY

TRANS_V = ["triton.flash_trans_v", "triton.flash_trans_v_perf_kernels", "triton.flash_trans_v_autotuned"]
WITHOUT = ["hip", *TRANS_V, "native.staged", "triton.staged"]
"""Backends with suites of their own: the HIP ladder, those that read V transposed, and unfused attention."""

NIGHTLY = [*PREFILL_NIGHTLY, *(f"gluon.flash-{workload.id}" for workload in PREFILL)]
"""No time of gluon.flash is stored yet, so that other runs would have nothing to compare it with."""


@pytest.mark.attnperf(family="prefill", workloads=PREFILL, nightly=NIGHTLY, cpu=PREFILL_CPU, without=WITHOUT)
def test_prefill(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
