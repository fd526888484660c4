"""Kernels compiled for a GPU that need not be here: the demonstration's share of `suites/test_code_objects.py`."""

import pytest

COMPILED = [
    *("triton.prefill_forward", "triton.prefill_persistent", "triton.varlen_forward", "triton.mixed", "triton.mla"),
    *("triton.decode", "triton.decode_reduce", "triton.backward_dkv", "triton.backward_dq"),
    *("triton.gemm", "triton.gemm_stream_k", "triton.softmax", "triton.rmsnorm", "triton.layernorm", "triton.rope"),
    *("triton.bandwidth", "hip.naive", "hip.lds_tiles", "hip.flash", "hip.vectorised", "hip.matrix", "hip.prefetch"),
    *("hip.best", "hip.decode_split", "hip.row_softmax", "hip.rope"),
]
"""The kernel that does most of an operation; those beside it are compiled by `suites/test_code_objects.py`."""


EXECUTED = {"triton.prefill_forward", "triton.gemm", "hip.best", "hip.rope"}
"""Executed, too, by an interpreter of machine code, on small problems; --attnperf-execute executes all."""


@pytest.mark.attnperf_code(kernels=COMPILED)
def test_code_object(code_object, kernel_build):
    """It does not spill, keeps its matrix instructions and stores, and fits as many waves as before."""
    code_object.gate(kernel_build, execute=kernel_build.kernel in EXECUTED)
