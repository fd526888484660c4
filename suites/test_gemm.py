"""Matrix multiplication: our kernel against the vendor's library, and other schedules against our kernel."""

import pytest

from suites.gemm_workloads import (
    GEMM,
    GEMM_FEW_ROWS,
    GEMM_FURTHER,
    GEMM_SQUARE,
    GEMM_TYPES,
    GEMM_TYPES_TINY,
    GEMM_WAVE_QUANTISED,
)

SCHEDULES = [
    *("triton.gemm_stream_k", "triton.gemm_data_parallel", "triton.gemm_multiply_reduce"),
    "gluon.gemm_cut",
]
"""Other schedules of our kernel, which have tests of their own."""

NIGHTLY = [*GEMM_SQUARE[3:], *(f"gluon.gemm-{workload.id}" for workload in GEMM)]
"""No time of gluon.gemm is stored yet, so that other runs would have nothing to compare it with."""

TYPES_NIGHTLY = [GEMM_TYPES[0], *GEMM_TYPES[2:], *(f"gluon.gemm-{workload.id}" for workload in GEMM_TYPES)]


@pytest.mark.attnperf(family="gemm", workloads=GEMM, nightly=NIGHTLY, without=SCHEDULES)
def test_gemm(attnperf, backend, workload):
    """The result is right and, when timed, no slower than its baseline."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(family="gemm", workloads=GEMM_FURTHER, backends=["triton.gemm"], tier="nightly")
def test_gemm_further(attnperf, backend, workload):
    """The same on further sizes, of our kernel alone."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(
    family="gemm",
    workloads=[*GEMM_TYPES, *GEMM_TYPES_TINY],
    nightly=TYPES_NIGHTLY,
    cpu=GEMM_TYPES_TINY,
    without=SCHEDULES,
)
def test_gemm_types(attnperf, backend, workload):
    """The same in further types of operands and results."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(
    family="gemm",
    workloads=GEMM_WAVE_QUANTISED,
    tier="nightly",
    backends=["triton.gemm_stream_k", "triton.gemm_data_parallel", "gluon.gemm_cut", "gluon.gemm"],
)
def test_stream_k(attnperf, backend, workload):
    """Stream-K or tiles cut along K, and whole tiles per program with the same tiles: only the schedule differs."""
    attnperf.run(backend, workload)


@pytest.mark.attnperf(
    family="gemm",
    workloads=GEMM_FEW_ROWS,
    tier="nightly",
    backends=["triton.gemm", "triton.gemm_multiply_reduce"],
)
def test_few_rows(attnperf, backend, workload):
    """Few rows, padded for matrix instructions, and multiplied without them."""
    attnperf.run(backend, workload)
