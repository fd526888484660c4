"""Sizes at which unfused attention is timed stage by stage, and held against fused kernels.

Lines of the family `prefill`; the workloads of the stages are made from them.
"""

from __future__ import annotations

from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.weighted_values import WeightedValues

STAGED_SMALL = [Prefill.parse_line("b=1,s=80,h=4,hk=2,d=64,f16,causal")]
"""Ragged and on grouped heads: small enough for the emulator and for Triton's interpreter."""

STAGED_LARGE = [
    Prefill.parse_line(line) for line in ("b=1,s=512,h=8,d=64,f16,causal", "b=1,s=2048,h=32,hk=8,d=128,bf16,causal")
]
"""HIP attention deep dive's size, and half a prompt of Llama 3 8B."""

STAGED = [*STAGED_SMALL, *STAGED_LARGE]

QK_SCORES = [
    QkScores(
        batch=p.batch,
        seq_q=p.seq_q,
        heads=p.heads,
        kv_heads=p.kv_heads,
        head_dim=p.head_dim,
        dtype=p.dtype,
    )
    for p in STAGED
]
CAUSAL_MASKS = [CausalMask(batch=p.batch, seq_q=p.seq_q, heads=p.heads) for p in STAGED]
ROW_SOFTMAXES = [
    RowSoftmax(batch=p.batch, seq_q=p.seq_q, heads=p.heads, dtype=p.dtype, causal=p.causal) for p in STAGED
]
WEIGHTED_VALUES = [
    WeightedValues(
        batch=p.batch,
        seq_q=p.seq_q,
        heads=p.heads,
        kv_heads=p.kv_heads,
        head_dim=p.head_dim,
        dtype=p.dtype,
        causal=p.causal,
    )
    for p in STAGED
]
"""The four stages of each."""
