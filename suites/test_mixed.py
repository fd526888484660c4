"""A step of a serving engine, prompts and single tokens over a paged cache: every backend on every workload."""

import pytest

from suites.mixed_workloads import MIXED


@pytest.mark.attnperf(family="mixed", workloads=MIXED, nightly=MIXED[2:], cpu=[f"native.eager_mixed-{MIXED[0].id}"])
def test_mixed(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
