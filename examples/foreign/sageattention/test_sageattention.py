"""What SageAttention 1's attention with keys and queries in int8 computes, and how long it takes."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from foreign import needs_gpu, normal, sizes
from torch.nn import functional as F

from pytest_attnperf.records import Tolerance

pytest.importorskip("sageattention.core", reason="sageattention is not installed")

import sageattention

pytestmark = needs_gpu("sageattn refuses tensors that are not on one")
QUANTISED = Tolerance(
    multiplier=100.0,
    source="q and k are rounded to int8 per block (SageAttention, arXiv 2410.02367): on N(0, 1) the kernels of 1.0.6, "
    "interpreted, come to 42 to 60 times the rms error of fp16, single elements to 59 times its largest",
)
COUNTS_ABSENT_KEYS = pytest.mark.skip(
    reason="1.0.6 masks no keys where nothing is causal: those that fill up the last tile of 64 score 0, and count"
)
READS_BEHIND_ITS_SCALES = pytest.mark.skip(
    reason="1.0.6 causal, with a length that is no multiple of 128: reads a scale behind the last "
    "(attn_qk_int8_per_block_causal*.py loads K_scale_ptr up to (start_m + 1) * BLOCK_M), and gives NaN "
    "where the memory behind the scales holds it: on an H200 one row of one head of 2,050 x 32, in one run of two"
)
# A length that is no multiple of 64 has keys in its last tile that are not there.
WHOLE, RAGGED = sizes([(1, 32, 4096, 128), (2, 32, 1025, 64)], [(1, 2, 256, 128), (1, 2, 193, 64)])


def queries_keys_values(*shape, of_keys, planted):
    """Planted are values only: one large element of a key or query takes the precision of its whole block of 64 or 128,
    as int8 does.
    """
    q, k, v = (normal(*shape, dtype=torch.float16) for _ in "qkv")
    if planted:
        v.select(of_keys, 0).mul_(64)
        v.select(of_keys, -1).mul_(-64)
    return q, k, v


CASES = [
    pytest.param(False, *WHOLE, id="full-whole"),
    pytest.param(False, *RAGGED, id="full-ragged", marks=COUNTS_ABSENT_KEYS),
    pytest.param(True, *WHOLE, id="causal-whole"),
    pytest.param(True, *RAGGED, id="causal-ragged", marks=READS_BEHIND_ITS_SCALES),
]


@pytest.mark.parametrize(("causal", "batch", "heads", "length", "width"), CASES)
def test_attention(attnperf, causal, batch, heads, length, width):
    """Takes the mean of the keys from them, where they are."""
    attnperf.gate(
        "sage.attention",
        lambda q, k, v: sageattention.sageattn(q, k, v, is_causal=causal),
        reference=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        inputs=lambda planted: queries_keys_values(batch, heads, length, width, of_keys=2, planted=planted),
        in_place=("k",),
        tolerance=QUANTISED,
    )


@pytest.mark.parametrize(("causal", "batch", "heads", "length", "width"), CASES)
def test_attention_of_packed_sequences(attnperf, causal, batch, heads, length, width):
    """Sequences of one length, one after the other; the mean of all keys is taken from them."""
    ends = range(0, (batch + 1) * length, length)
    starts = torch.tensor(ends, dtype=torch.int32, device="cuda")

    def reference(q, k, v):
        parts = [[x[begin:end].transpose(0, 1) for x in (q, k, v)] for begin, end in pairwise(ends)]
        return torch.cat([F.scaled_dot_product_attention(*part, is_causal=causal) for part in parts], 1).transpose(0, 1)

    attnperf.gate(
        "sage.attention_varlen",
        lambda q, k, v: sageattention.sageattn_varlen(q, k, v, starts, starts, length, length, is_causal=causal),
        reference=reference,
        inputs=lambda planted: queries_keys_values(batch * length, heads, width, of_keys=0, planted=planted),
        in_place=("k",),
        host_sync=True,  # the sizes of its scales follow from `starts`
        tolerance=QUANTISED,
    )
