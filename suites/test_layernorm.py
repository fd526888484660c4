"""LayerNorm over rows: every backend on every workload."""

import pytest

from suites.rows_workloads import LAYERNORM


@pytest.mark.attnperf(family="layernorm", workloads=LAYERNORM, nightly=[LAYERNORM[1], *LAYERNORM[3:]])
def test_layernorm(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
