"""Attention prefill: every backend on every workload."""

import pytest

from suites.prefill_workloads import PREFILL

BACKENDS = [
    "native.eager",
    "native.eager_fp32",
    "native.sdpa_flash",
    "native.sdpa_efficient",
    "native.sdpa_cudnn",
    "native.sdpa_math",
    "native.flex",
    "native.compiled",
    "triton.flash",
    "triton.flash_persistent",
    "ck",
    "aiter.asm",
    "aiter.auto",
    "aiter.triton",
    "aiter.triton_dao",
]
"""All but the one that reads V transposed, which has a suite of its own."""


@pytest.mark.attnperf(family="prefill", workloads=PREFILL, backends=BACKENDS)
def test_prefill(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)
