"""RMSNorm over rows: every backend on every workload."""

import pytest

from suites.rows_workloads import RMSNORM


@pytest.mark.attnperf(family="rmsnorm", workloads=RMSNORM, nightly=[RMSNORM[1], *RMSNORM[3:]])
def test_rmsnorm(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
