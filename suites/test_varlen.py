"""Attention over packed sequences: every backend on every workload."""

import pytest

from suites.varlen_workloads import VARLEN, VARLEN_8_BIT, VARLEN_8_BIT_SMALL, VARLEN_BIASED, VARLEN_FEATURES

PERSISTENT = "triton.flash_varlen_persistent"


@pytest.mark.attnperf(
    family="varlen",
    workloads=VARLEN,
    nightly=[*VARLEN[2:4], f"native.eager_varlen-{VARLEN[0].id}", f"{PERSISTENT}-{VARLEN[0].id}"],
    cpu=[*VARLEN[4:], f"native.eager_varlen-{VARLEN[1].id}", f"{PERSISTENT}-{VARLEN[1].id}"],
)
def test_varlen(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(
    family="varlen",
    workloads=VARLEN_FEATURES,
    nightly=[*VARLEN_BIASED[:1], *VARLEN_8_BIT],
    cpu=[*VARLEN_BIASED[1:], *VARLEN_8_BIT_SMALL],
    backends=["triton.flash_varlen", PERSISTENT, "native.eager_varlen"],
)
def test_features(attnperf, backend, workload):
    """The same with a bias, and in 8 bits with a result of a chosen dtype."""
    attnperf.run(backend, workload)
