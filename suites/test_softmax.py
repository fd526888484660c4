"""Softmax over rows: every backend on every workload."""

import pytest

from suites.rows_workloads import SOFTMAX

NIGHTLY = [SOFTMAX[1], *SOFTMAX[3:], *(f"gluon.softmax-{workload.id}" for workload in SOFTMAX)]
"""No time of gluon.softmax is stored yet, so that other runs would have nothing to compare it with."""


@pytest.mark.attnperf(family="softmax", workloads=SOFTMAX, nightly=NIGHTLY)
def test_softmax(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
