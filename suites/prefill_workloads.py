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

PREFILL_D256_LSE = [
    Prefill.parse_line(f"b=4,s={length},h=8,d=256,f16,causal,lse") for length in (512, 1024, 2048, 4096)
]
"""The report's four configurations as its CK and Triton ran them: both returned the log-sum-exp (`return_lse=True`)."""

PREFILL = [*PREFILL_D256, *PREFILL_NAIVE_HIP, *PREFILL_LLAMA, *PREFILL_RAGGED, *PREFILL_CROSS, *PREFILL_LSE]
PREFILL += PREFILL_D256_LSE

PREFILL_NIGHTLY: list[Prefill | str] = [
    *PREFILL_D256[1:3],
    PREFILL_D256[4],
    *PREFILL_NAIVE_HIP,
    PREFILL_LLAMA[0],
    PREFILL_LLAMA[2],
]
PREFILL_NIGHTLY += [*PREFILL_RAGGED[1:], *PREFILL_CROSS, *PREFILL_LSE, *PREFILL_D256_LSE]
PREFILL_NIGHTLY += [
    f"{backend}-{workload.id}"
    for backend in ("native.eager_fp32", "native.sdpa_math")
    for workload in (PREFILL_D256[3], PREFILL_LLAMA[1])
]
PREFILL_NIGHTLY += [f"native.compiled-{PREFILL_D256[3].id}"]
"""All but the sizes that tables are made of, and a ragged one that a CPU can take; of the unfused attentions that store
fp32, 13 to 20 ms a call there, small ones only."""

TORCHS = ("eager", "eager_fp32", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "sdpa_math", "flex", "compiled")
PREFILL_CPU = [f"native.{name}-{PREFILL_RAGGED[0].id}" for name in TORCHS]
"""The ragged size is meant for our own kernels; only nightly runs time torch's on it."""

PREFILL_HEAD_DIMS = [
    Prefill.parse_line(line)
    for line in (
        "b=4,s=2048,h=16,d=40,f16,causal",
        "b=4,s=2048,h=16,d=59,f16,causal",
        "b=4,s=2048,h=16,d=111,f16,causal",
        "b=4,s=2048,h=16,d=160,f16,causal",
        "b=1,s=4096,h=16,d=192,dv=128,bf16,causal",
    )
]
"""Head dimensions that are no power of two: those that flash-attention's tests run (tests/test_flash_attn.py), and
DeepSeek-V2's prefill, 128 + 64 rotary dimensions of q and k on 128 of v (arXiv:2405.04434), on 16 of its 128 heads."""

PREFILL_SCORES = [
    Prefill.parse_line(line)
    for line in (
        "b=1,s=33,kv=40,h=4,hk=2,d=40,f16,causal,alibi",
        "b=1,s=2048,h=32,d=128,bf16,causal,alibi",
        "b=4,s=1024,h=16,d=64,bf16,bias",
        "b=4,s=4096,h=4,hk=1,d=256,bf16,causal,w=512",
    )
]
"""Scores with more than a causal mask: a tiny ragged one, MPT-7B's ALiBi (its model card: 32 heads, d_model 4096),
T5-Large's relative position bias (arXiv:1910.10683, its config: 16 heads of 64), and Gemma 3 1B's sliding window on one
K/V head (arXiv:2503.19786, its config: 4 query heads of 256, window 512)."""

PREFILL_LARGE = [
    Prefill.parse_line(line)
    for line in (
        "b=4,s=4096,h=32,d=128,f16,causal",
        "b=4,s=4096,h=32,d=128,bf16,causal",
        "b=8,s=2048,h=32,hk=8,d=128,bf16,causal",
    )
]
"""Workloads on which libraries are compared in both half types; the dense twin of the varlen suite's `q=8x2048`."""

PREFILL_8_BIT = [
    Prefill.parse_line(f"b=1,s=4096,h=32,hk=8,d=128,causal,{dtype}")
    for dtype in ("f8e4m3", "f8e4m3fnuz", "i8", "i8,pv16", "i8,kv8")
]
"""Llama 3 8B's attention in 8 bits with one scale per tensor: FlashAttention-3's fp8, in the format of NVIDIA and of an
MI300X, and int8 with both products, the first product, or only K and V in 8 bits."""

PREFILL_OUT = [
    *(
        Prefill.parse_line(f"b=1,s=4096,h=32,hk=8,d=128,causal,{dtype}")
        for dtype in ("i8,out=f16", "i8,pv16,out=f16", "i8,kv8,out=f16", "i8,pv16,out=f32")
    ),
    Prefill.parse_line("b=1,s=33,kv=40,h=4,hk=2,d=40,causal,i8,pv16,out=f16"),
]
"""The three int8 modes of ROCm's flash-attention.py, dequantised to another dtype than bf16; and a tiny one."""

PREFILL_HEAD_DIM_512 = [Prefill.parse_line("b=1,s=64,h=2,d=512,f16,causal")]
"""Above 256, where the MI300X report has CK and Triton fail."""

PREFILL_FEATURES = [*PREFILL_HEAD_DIMS, *PREFILL_SCORES, *PREFILL_LARGE]
"""A separate suite, so that the records of `PREFILL` stay valid."""

PREFILL_FEATURES_NIGHTLY: list[Prefill | str] = [
    *PREFILL_HEAD_DIMS[:2],
    *PREFILL_HEAD_DIMS[3:],
    *PREFILL_SCORES[1:],
    *PREFILL_LARGE[1:],
]
PREFILL_FEATURES_NIGHTLY += [f"native.sdpa_flash-{PREFILL_HEAD_DIMS[2].id}"]
"""Of odd head dimensions our own kernel is enough: torch pads rows for its own in every call."""
PREFILL_FEATURES_CPU = PREFILL_SCORES[:1]
PREFILL_8_BIT_NIGHTLY = [PREFILL_8_BIT[1], *PREFILL_8_BIT[3:]]
"""All but one of each kind."""
