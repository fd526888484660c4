"""Memory bandwidth: every backend on every workload."""

import pytest

from suites.bandwidth_workloads import BANDWIDTH


@pytest.mark.attnperf(family="bandwidth", workloads=BANDWIDTH, nightly=BANDWIDTH[1:], cpu=BANDWIDTH[:1])
def test_bandwidth(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
