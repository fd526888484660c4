"""Head dimensions that are no power of two: every backend of every family of attention is right, or says why not.

Nothing is timed. Runs other than nightly ones take one size with each backend, and all sizes together.
"""

import pytest

from suites import head_size_workloads as sizes

COMPILED = ["native.flex", "native.compiled"]
"""Backends that Inductor compiles again for each size, which takes seconds."""

PREFILL_LAYERS = ["layer.plain", "layer.native.sdpa_flash", "layer.triton.flash", "layer.gluon.flash", "layer.hip.best"]
DECODE_LAYERS = ["layer.plain", "layer.native.sdpa_decode", "layer.triton.flash_decode", "layer.hip.decode"]


def proven(family, workloads, **chosen):
    """Returns a marker for cases that are proven and never timed, one workload with each backend."""
    return pytest.mark.attnperf(family=family, workloads=workloads, timed=False, tier="check", each=1, **chosen)


@proven("prefill", sizes.PREFILL, without=COMPILED)
def test_prefill(attnperf, backend, workload):
    """Attention, dense."""
    attnperf.run(backend, workload)


@proven("varlen", sizes.VARLEN)
def test_varlen(attnperf, backend, workload):
    """Attention over packed sequences."""
    attnperf.run(backend, workload)


@proven("mixed", sizes.MIXED)
def test_mixed(attnperf, backend, workload):
    """Prompts and single tokens over a paged cache."""
    attnperf.run(backend, workload)


@proven("decode", sizes.DECODE)
def test_decode(attnperf, backend, workload):
    """Single tokens over a contiguous cache."""
    attnperf.run(backend, workload)


@proven("decode", sizes.DECODE_PAGED)
def test_decode_paged(attnperf, backend, workload):
    """Single tokens over a cache in pages, with lengths that differ."""
    attnperf.run(backend, workload)


@proven("backward", sizes.BACKWARD)
def test_backward(attnperf, backend, workload):
    """Gradients, dense."""
    attnperf.run(backend, workload)


@proven("varlen_backward", sizes.VARLEN_BACKWARD)
def test_varlen_backward(attnperf, backend, workload):
    """Gradients of packed sequences."""
    attnperf.run(backend, workload)


@proven("qk_scores", sizes.QK_SCORES)
def test_qk_scores(attnperf, backend, workload):
    """The first product of unfused attention."""
    attnperf.run(backend, workload)


@proven("weighted_values", sizes.WEIGHTED_VALUES)
def test_weighted_values(attnperf, backend, workload):
    """The second product of unfused attention."""
    attnperf.run(backend, workload)


@proven("rope", sizes.ROPE)
def test_rope(attnperf, backend, workload):
    """The rotation, whose sizes are even."""
    attnperf.run(backend, workload)


@proven("block", sizes.BLOCK, backends=PREFILL_LAYERS)
def test_block(attnperf, backend, workload):
    """A layer over a prompt's chunk."""
    attnperf.run(backend, workload)


@proven("block", sizes.BLOCK_DECODE, backends=DECODE_LAYERS)
def test_block_decode(attnperf, backend, workload):
    """A layer over one new token."""
    attnperf.run(backend, workload)


@proven("mla", sizes.MLA)
def test_mla(attnperf, backend, workload):
    """Latent attention, whose heads without rotation may have any size."""
    attnperf.run(backend, workload)


@proven("mla_block", sizes.MLA_BLOCK)
def test_mla_block(attnperf, backend, workload):
    """A layer of latent attention."""
    attnperf.run(backend, workload)
