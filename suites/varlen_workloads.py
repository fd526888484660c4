"""The workloads of packed sequences that are gated, and where each set comes from.

Lines as `--attnperf-workload` takes them: q the queries of every sequence, kv its keys (q if absent), `8x512_63` being
eight sequences of 512 and one of 63; h query heads, hk K/V heads (h if absent), d head dimension, w window. Causal
masks are bottom-right aligned in every sequence. Inputs are drawn from the seed of the run.
"""

from __future__ import annotations

from pytest_attnperf.workloads.varlen import Varlen

VARLEN_EQUAL = [Varlen.parse_line("q=8x2048,h=32,hk=8,d=128,bf16,causal")]
"""Llama 3 8B's attention (arXiv:2407.21783, table 3) on equal lengths: what packing costs against the dense twin."""

VARLEN_RAGGED = [
    Varlen.parse_line(line)
    for line in (
        "q=5_63_130,h=4,hk=2,d=64,f16,causal,lse",
        "q=63_1000_2049_17_3000_512_1_1500,h=32,hk=8,d=128,bf16,causal",
    )
]
"""Lengths no tile divides: a tiny batch, and prompts as a server mixes them, on Llama 3 8B's heads."""

VARLEN_SCORES = [
    Varlen.parse_line(line)
    for line in (
        "q=1_127_640_2000,kv=1500_127_3000_4000,h=32,hk=8,d=128,w=1024,f16,causal",
        "q=7_64_40,kv=33_64_130,h=4,d=40,f16,causal,alibi",
    )
]
"""More keys than queries under a sliding window, as when prompts are prefilled in chunks; ALiBi on a tiny batch."""

VARLEN_BIASED = [
    Varlen.parse_line(line)
    for line in (
        "q=63_1000_2049_512,h=16,d=64,bf16,bias",
        "q=7_40,kv=33_40,h=2,d=40,f16,causal,bias",
    )
]
"""T5-Large's relative position bias (arXiv:1910.10683, its config: 16 heads of 64), one matrix for all sequences, and a
tiny one."""

VARLEN_8_BIT = [
    Varlen.parse_line(f"q=63_1000_2049_17_3000_512_1_1500,h=32,hk=8,d=128,causal,{dtype}")
    for dtype in ("f8e4m3", "f8e4m3fnuz", "i8", "i8,pv16,out=f16", "i8,kv8,out=f16")
]
"""Llama 3 8B's prompts in 8 bits: fp8, and the three int8 modes of ROCm's flash-attention.py, two with a result that is
not bf16."""

VARLEN_8_BIT_SMALL = [Varlen.parse_line("q=7_40,kv=33_40,h=2,d=40,causal,i8,pv16,out=f16")]
"""A tiny one of mixed precision, which a CPU runs."""

VARLEN_FEATURES = [*VARLEN_BIASED, *VARLEN_8_BIT, *VARLEN_8_BIT_SMALL]
"""A separate test, because only our kernels and the loop take them."""

VARLEN = [*VARLEN_EQUAL, *VARLEN_RAGGED, *VARLEN_SCORES]
