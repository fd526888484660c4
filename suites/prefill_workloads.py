"""The prefill workloads that are gated, and where each set comes from.

Lines as `--attnperf-workload` takes them: b batch, s queries, kv keys (s if absent), h query heads, hk K/V heads (h if
absent), d head dimension. Causal masks are bottom-right aligned.
"""

from __future__ import annotations

from pytest_attnperf.workloads.prefill import Prefill

PREFILL_D256 = [
    Prefill.parse_line(line)
    for line in (
        "b=4,s=512,h=8,d=256,f16,causal",
        "b=4,s=1024,h=8,d=256,f16,causal",
        "b=4,s=2048,h=8,d=256,f16,causal",
        "b=4,s=4096,h=8,d=256,f16,causal",
        "b=4,s=1024,h=8,d=64,f16,causal",
    )
]
"""MI300X flash attention report (CK, Triton, native PyTorch), 2025-12-30: its four configurations, and its D=64 one."""

PREFILL_NAIVE_HIP = [Prefill.parse_line("b=1,s=512,h=8,d=64,f16")]
"""HIP attention deep dive: the shape of its comparison of naive, fused and library kernels."""

PREFILL_LLAMA = [
    Prefill.parse_line(line)
    for line in (
        "b=1,s=1024,h=32,hk=8,d=128,bf16,causal",
        "b=1,s=4096,h=32,hk=8,d=128,bf16,causal",
        "b=4,s=2048,h=32,hk=8,d=128,bf16,causal",
    )
]
"""Llama 3 8B's attention: 32 query heads on 8 K/V heads of 128 (arXiv:2407.21783, table 3)."""

PREFILL_RAGGED = [
    Prefill.parse_line(line)
    for line in (
        "b=2,s=63,h=4,d=64,f16,causal",
        "b=1,s=1000,h=4,d=128,bf16,causal",
        "b=1,s=2049,h=4,d=64,f16,causal",
    )
]
"""Lengths no tile divides: one short of a tile, between two, one past."""

PREFILL_CROSS = [
    Prefill.parse_line(line)
    for line in (
        "b=1,s=128,kv=512,h=4,d=64,f16,causal",
        "b=1,s=512,kv=2048,h=32,hk=8,d=128,bf16,causal",
    )
]
"""More keys than queries, as when a prompt is prefilled in chunks: row i sees keys up to i + kv - s."""

PREFILL_LSE = [Prefill.parse_line("b=1,s=257,h=4,hk=2,d=64,f16,causal,lse")]
"""The log-sum-exp that a backward pass or a split over keys needs, on grouped heads and one key past a tile."""

PREFILL = [*PREFILL_D256, *PREFILL_NAIVE_HIP, *PREFILL_LLAMA, *PREFILL_RAGGED, *PREFILL_CROSS, *PREFILL_LSE]
