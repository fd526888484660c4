"""Softmax over rows: every backend on every workload."""

import pytest

from suites.rows_workloads import SOFTMAX


@pytest.mark.attnperf(family="softmax", workloads=SOFTMAX, nightly=[SOFTMAX[1], *SOFTMAX[3:]])
def test_softmax(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
