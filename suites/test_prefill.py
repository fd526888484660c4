"""Attention prefill: every backend on every workload."""

import pytest

from suites.prefill_workloads import PREFILL, PREFILL_CPU, PREFILL_NIGHTLY

WITHOUT = ["hip", "triton.flash_trans_v", "native.staged", "triton.staged"]
"""Backends with suites of their own: the HIP ladder, the one that reads V transposed, and unfused attention."""


@pytest.mark.attnperf(family="prefill", workloads=PREFILL, nightly=PREFILL_NIGHTLY, cpu=PREFILL_CPU, without=WITHOUT)
def test_prefill(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
