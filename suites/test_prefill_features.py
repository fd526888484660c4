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
    PREFILL_HEAD_DIM_512,
    PREFILL_OUT,
)

AITER = ["ck", "aiter.asm", "aiter.auto"]
NOT_AT_512 = ["native.flex", "native.compiled", "native.staged", "triton.staged", "hip.staged"]
"""Backends that Inductor compiles, and unfused attention stage by stage."""


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


@pytest.mark.attnperf(
    family="prefill",
    workloads=PREFILL_OUT,
    nightly=PREFILL_OUT[:4],
    cpu=PREFILL_OUT[4:],
    backends=["triton.flash", "triton.flash_persistent", "native.eager"],
)
def test_8_bit_out(attnperf, backend, workload):
    """8-bit inputs with a result of a chosen dtype, which aiter does not offer."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(family="prefill", workloads=PREFILL_HEAD_DIM_512, timed=False, tier="check", without=NOT_AT_512)
def test_head_dim_above_256(attnperf, backend, workload):
    """Who takes the head dimension is right; everybody else says why not. Nothing is timed."""
    attnperf.run(backend, workload)
