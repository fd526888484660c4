"""The decode workloads that are gated, and where each set comes from.

Lines as `--attnperf-workload` takes them: b sequences, q tokens of each (1 if absent), kv keys, h query heads, hk K/V
heads, d head dimension, page keys per page (contiguous if absent), w window, cap soft cap. All are cold.
"""

from __future__ import annotations

from pytest_attnperf.workloads.decode import Decode

DECODE_SMALL = [
    Decode.parse_line(line)
    for line in (
        "b=4,kv=200,h=4,hk=2,d=64,f16",
        "b=5,q=2,kv=300,h=8,hk=4,d=64,page=16,w=140,bf16,kvi8,sinks,ragged,lse",
    )
]
"""Small enough for CPUs and large enough to be timed cold: plain, and every feature but the cap; lengths that no tile
and no page divides."""

DECODE_LLAMA = [
    Decode.parse_line(line)
    for line in (
        "b=64,kv=4096,h=32,hk=8,d=128,f16",
        "b=1,kv=131072,h=32,hk=8,d=128,page=64,bf16",
        "b=64,kv=4096,h=32,hk=8,d=128,page=16,f16",
    )
]
"""Llama 3 8B's attention (arXiv:2407.21783, table 3): a full batch, one sequence as long as Llama 3.1 takes, and the
batch over a cache in pages, which is all that aiter's assembly and HIP kernels take."""

DECODE_GPT_OSS = [Decode.parse_line("b=32,kv=8192,h=64,hk=8,d=64,page=16,w=128,bf16,sinks,ragged")]
"""A sliding layer of gpt-oss: 64 heads of 64 on 8, sinks, windows of 128 tokens (arXiv:2508.10925, section 2)."""

DECODE_FEATURES = [Decode.parse_line("b=16,q=4,kv=8192,h=32,hk=8,d=128,page=16,cap=30,bf16,kvf8e4m3,sinks,ragged")]
"""Four speculated tokens over an fp8 cache in pages, with Gemma 2's kind of cap (arXiv:2408.00118) and sinks."""

DECODE = [*DECODE_SMALL, *DECODE_LLAMA, *DECODE_GPT_OSS, *DECODE_FEATURES]
DECODE_NIGHTLY = [DECODE_LLAMA[2], *DECODE_GPT_OSS, *DECODE_FEATURES]
