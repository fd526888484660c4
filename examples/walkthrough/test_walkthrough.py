"""Two backends on one shape; see session.sh for what is done to one of them."""

import pytest


@pytest.mark.attnperf(
    family="prefill",
    workloads=["prefill-b1-s512-h8-d64-f16"],
    backends=["native.eager_fp32", "native.sdpa_flash"],
)
def test_walkthrough(attnperf, backend, workload):
    attnperf.run(backend, workload)
