"""Attention decode: every backend on every workload."""

import pytest

from suites.decode_workloads import DECODE, DECODE_LLAMA, DECODE_NIGHTLY, DECODE_SMALL

EAGER_NIGHTLY = [f"native.eager_decode-{DECODE_LLAMA[0].id}"]
EAGER_CPU = [f"native.eager_decode-{DECODE_SMALL[1].id}"]
"""Cases that are slow in torch: dozens of operators on a gigabyte, and on each of hundreds of copies."""


@pytest.mark.attnperf(
    family="decode",
    workloads=DECODE,
    nightly=[*DECODE_NIGHTLY, *EAGER_NIGHTLY],
    cpu=[DECODE_SMALL[0], *EAGER_CPU],
)
def test_decode(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
