"""The workloads of the HIP ladder, and where they come from."""

from __future__ import annotations

from pytest_attnperf.workloads.prefill import Prefill

HIP_SEED = [Prefill.parse_line("b=1,s=512,h=8,d=64,f16,causal")]
"""HIP attention deep dive: the size of its table of naive, LDS and flash kernels, under a causal mask."""

HIP_LARGE = [Prefill.parse_line("b=4,s=4096,h=32,d=128,f16,causal")]
"""A size that fills any GPU, at which the steps are compared with the libraries' kernels."""

HIP_SHAPES = [
    Prefill.parse_line(line)
    for line in (
        "b=4,s=2048,h=8,d=256,f16,causal",
        "b=1,s=2049,h=32,hk=8,d=128,bf16,causal,lse",
        "b=1,s=512,kv=2048,h=16,hk=4,d=96,f16,causal",
        "b=2,s=1000,h=8,d=64,bf16",
    )
]
"""Hard cases for the steps: the largest head dimension, grouped heads, log-sum-exp, more keys than queries, lengths
that no tile divides, no mask."""

HIP_SMALL = [
    Prefill.parse_line(line)
    for line in (
        "b=1,s=63,h=4,hk=2,d=40,bf16,causal,lse",
        "b=1,s=40,kv=100,h=2,d=64,f16",
    )
]
"""Small enough for the emulator."""

HIP_LADDER = [*HIP_SMALL, *HIP_SEED, *HIP_LARGE, *HIP_SHAPES]
