"""The backward workloads that are gated, and where each set comes from.

Lines as `--attnperf-workload` takes them: b batch, s queries, kv keys (s if absent), h query heads, hk K/V heads (h if
absent), d head dimension; of packed sequences q and kv are lengths. Causal masks are bottom-right aligned.
"""

from __future__ import annotations

from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.varlen_backward import VarlenBackward

BACKWARD_TINY = [Backward.parse_line("b=1,s=65,h=2,hk=1,d=64,bf16,causal")]
"""One past a tile, on grouped heads: small enough for a CPU."""

BACKWARD_FLASH2 = [
    Backward.parse_line(line) for line in ("b=2,s=4096,h=16,d=128,bf16,causal", "b=4,s=2048,h=32,d=64,f16")
]
"""FlashAttention-2's benchmark, half of its 16k tokens: a hidden dimension of 2048 in heads of 128 or 64
(arXiv:2307.08691, section 4.1)."""

BACKWARD_LLAMA = [Backward.parse_line("b=1,s=4096,h=32,hk=8,d=128,bf16,causal")]
"""Llama 3 8B's attention: 32 query heads on 8 K/V heads of 128 (arXiv:2407.21783, table 3)."""

BACKWARD = [*BACKWARD_TINY, *BACKWARD_FLASH2, *BACKWARD_LLAMA]

VARLEN_TINY = [VarlenBackward.parse_line("q=33_70,h=2,hk=1,d=64,f16,causal")]
"""Two sequences that no tile divides: small enough for a CPU."""

VARLEN_EQUAL = [VarlenBackward.parse_line("q=2x4096,h=16,d=128,bf16,causal")]
"""The dense workload of BACKWARD_FLASH2 as packed sequences: what packing costs by itself."""

VARLEN_RAGGED = [VarlenBackward.parse_line("q=63_1000_2049_4096,h=32,hk=8,d=128,bf16,causal")]
"""Llama 3 8B's attention over documents of very different lengths, as when they are packed for training."""

VARLEN_CROSS = [VarlenBackward.parse_line("q=4x512_2x1024,kv=4x2048_2x4096,h=16,d=64,f16,causal")]
"""More keys than queries in every sequence, as after a shared prefix: row i sees keys up to i + kv - q."""

VARLEN_BACKWARD = [*VARLEN_TINY, *VARLEN_EQUAL, *VARLEN_RAGGED, *VARLEN_CROSS]
