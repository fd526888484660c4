"""Attention prefill: every backend on every workload."""

import pytest

from suites.prefill_workloads import PREFILL


@pytest.mark.attnperf(family="prefill", workloads=PREFILL)
def test_prefill(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
