"""Attention prefill beyond plain shapes: odd head dimensions, ALiBi, biases, windows, 8 bits.

Only what these are compared with is run: our kernel, and the fastest of torch's that take them.
"""

import pytest

from suites.prefill_workloads import (
    PREFILL_8_BIT,
    PREFILL_8_BIT_NIGHTLY,
    PREFILL_FEATURES,
    PREFILL_FEATURES_CPU,
    PREFILL_FEATURES_NIGHTLY,
)

AITER = ["ck", "aiter.asm", "aiter.auto"]


@pytest.mark.attnperf(
    family="prefill",
    workloads=PREFILL_FEATURES,
    nightly=PREFILL_FEATURES_NIGHTLY,
    cpu=PREFILL_FEATURES_CPU,
    backends=["triton.flash", "native.sdpa_flash", "native.sdpa_cudnn"],
)
def test_features(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(
    family="prefill",
    workloads=PREFILL_8_BIT,
    nightly=PREFILL_8_BIT_NIGHTLY,
    backends=["triton.flash", "native.eager", *AITER],
)
def test_8_bit(attnperf, backend, workload):
    """The same in 8 bits, of which torch's fused attention takes none."""
    attnperf.run(backend, workload)
