"""The mixed batches that are gated, and where each set comes from.

Lines as `--attnperf-workload` takes them: `2q2k` two sequences of 2048 query tokens and as many keys, `8q1s1k` eight of
one query token and 1024 keys; h query heads, hk K/V heads, d head dimension, page keys per page, w window, cap soft
cap.
"""

from __future__ import annotations

from pytest_attnperf.workloads.mixed import Mixed

MIXED_TINY = [Mixed.parse_line("2q17,q9s40,5q1s70,h=4,hk=2,d=64,page=16,w=24,cap=30,f16,sinks")]
"""Prompts, a chunk and single tokens of lengths that no tile divides, with a window, a soft cap and sinks."""

MIXED_LLAMA = [
    Mixed.parse_line(f"{batch},h=32,hk=8,d=128,page=16,bf16")
    for batch in ("2q2k,8q1s1k", "64q1s4k", "1q4k,32q1s2k", "4q512s4k,16q1s8k")
]
"""Llama 3 8B's attention (arXiv:2407.21783, table 3) with pages of 16 keys, the least that engines use: new prompts
beside short conversations, a step without prompts, one long prompt beside many conversations, and the chunks of 512
that long prompts are split into (Sarathi-Serve, arXiv:2403.02310) beside long conversations."""

MIXED_FEATURES = [Mixed.parse_line("2q2k,8q1s4k,h=32,hk=8,d=128,page=32,w=1024,cap=50,bf16,kvf8e4m3,sinks")]
"""All at once, at a size that fills a GPU: Mistral 7B's heads, Gemma 2's soft cap, gpt-oss's sinks, 8-bit keys."""

MIXED = [*MIXED_TINY, *MIXED_LLAMA, *MIXED_FEATURES]
