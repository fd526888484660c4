"""Attention over packed sequences: every backend on every workload."""

import pytest

from suites.varlen_workloads import VARLEN


@pytest.mark.attnperf(
    family="varlen",
    workloads=VARLEN,
    nightly=[*VARLEN[2:4], f"native.eager_varlen-{VARLEN[0].id}"],
    cpu=[*VARLEN[4:], f"native.eager_varlen-{VARLEN[1].id}"],
)
def test_varlen(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
