"""LayerNorm over rows: every backend on every workload."""

import pytest

from suites.rows_workloads import LAYERNORM

NIGHTLY = [LAYERNORM[1], *LAYERNORM[3:], *(f"gluon.layernorm-{workload.id}" for workload in LAYERNORM)]
"""No time of gluon.layernorm is stored yet, so that other runs would have nothing to compare it with."""


@pytest.mark.attnperf(family="layernorm", workloads=LAYERNORM, nightly=NIGHTLY)
def test_layernorm(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
