"""RMSNorm over rows: every backend on every workload."""

import pytest

from suites.rows_workloads import RMSNORM

NIGHTLY = [RMSNORM[1], *RMSNORM[3:], *(f"gluon.rmsnorm-{workload.id}" for workload in RMSNORM)]
"""No time of gluon.rmsnorm is stored yet, so that other runs would have nothing to compare it with."""


@pytest.mark.attnperf(family="rmsnorm", workloads=RMSNORM, nightly=NIGHTLY)
def test_rmsnorm(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
