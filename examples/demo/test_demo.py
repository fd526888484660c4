"""What this plugin does, on a machine without a GPU and within 90 s: `make attnperf` runs it where there is none.

Native kernels come first and are timed by the CPU's clock. Triton's interpreter and the HIP emulator run the GPU's
kernels as they are, which proves them and times nothing, on smaller workloads; meanwhile kernels are compiled for a GPU
that is not here (`test_code_objects.py`). The suites proper, with every kernel and configuration, stand in `suites/`.
"""

import pytest


def demo(family, workload, backends):
    """One table of the demonstration."""
    return pytest.mark.attnperf(family=family, workloads=[workload], backends=backends)


@demo("prefill", "prefill-b1-s128-h8-d64-f16-causal", ["native.sdpa_flash"])
def test_timed_prefill(attnperf, backend, workload):
    """Attention over a prompt."""
    attnperf.run(backend, workload)


@demo("gemm", "gemm-m127-n257-k256-f32", ["native.matmul"])
def test_timed_gemm(attnperf, backend, workload):
    """Matrix multiplication."""
    attnperf.run(backend, workload)


@demo("block", "block-b1-s64-h4-d64-f32", ["layer.native.sdpa_flash"])
def test_timed_layer(attnperf, backend, workload):
    """A whole attention layer."""
    attnperf.run(backend, workload)


@demo("prefill", "prefill-b1-s80-h2-hk1-d64-f16-causal", ["triton.flash", "hip.flash", "hip.best"])
def test_prefill(attnperf, backend, workload):
    """Attention over a prompt."""
    attnperf.run(backend, workload)


@demo("decode", "decode-b1-kv70-h4-hk2-d64-f16", ["triton.flash_decode", "hip.decode"])
def test_decode(attnperf, backend, workload):
    """One new token over a cache of keys and values."""
    attnperf.run(backend, workload)


@demo("mla", "mla-b1-s17-kv40-h2-d16-dv24-r16-c32-f16-causal-lse", ["triton.mla"])
def test_mla(attnperf, backend, workload):
    """Multi-head latent attention."""
    attnperf.run(backend, workload)


@demo("backward", "backward-b1-s65-h2-hk1-d64-bf16-causal", ["triton.flash_backward"])
def test_backward(attnperf, backend, workload):
    """Gradients of attention."""
    attnperf.run(backend, workload)


@demo("gemm", "gemm-m63-n65-k129-f16", ["triton.gemm"])
def test_gemm(attnperf, backend, workload):
    """Matrix multiplication."""
    attnperf.run(backend, workload)


@demo("softmax", "softmax-r33-c1000-f32", ["triton.softmax"])
def test_softmax(attnperf, backend, workload):
    """Rows that no tile divides."""
    attnperf.run(backend, workload)


@demo("block", "block-b1-s32-h4-d32-f16", ["layer.hip.best"])
def test_layer(attnperf, backend, workload):
    """A whole attention layer."""
    attnperf.run(backend, workload)
