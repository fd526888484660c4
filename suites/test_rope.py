"""Rotary position embedding: every backend on every workload."""

import pytest

from suites.rows_workloads import ROPE


@pytest.mark.attnperf(family="rope", workloads=ROPE, nightly=ROPE[2:], cpu=ROPE[:1])
def test_rope(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
