"""Attention decode: every backend on every workload."""

import pytest

from suites.decode_workloads import DECODE, DECODE_NIGHTLY


@pytest.mark.attnperf(family="decode", workloads=DECODE, nightly=DECODE_NIGHTLY)
def test_decode(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
