"""The latent-attention workloads that are gated, and where each set comes from.

Lines as `--attnperf-workload` takes them: b batch, s queries, kv keys (s if absent), h heads, d and dv dimensions of a
head without rotation (dv is d if absent), r the rotated ones, c the latent ones. Causal masks are bottom-right aligned.
"""

from __future__ import annotations

from pytest_attnperf.workloads.mla import Mla

MLA_SMALL = [Mla.parse_line("b=1,s=17,kv=40,h=2,d=16,dv=24,r=16,c=32,f16,causal,lse")]
"""Small enough for any CPU: ragged lengths, a value dimension of its own, and the log-sum-exp."""

MLA_PERF_KERNELS = [Mla.parse_line("b=2,s=128,h=16,d=64,r=32,c=256,f16,causal")]
"""The shape that the MLA of ROCm/triton's perf-kernels was run with (python/perf-kernels/README.md)."""

MLA_DEEPSEEK = [
    Mla.parse_line(line)
    for line in (
        "b=1,s=2048,h=16,d=128,r=64,c=512,bf16,causal",
        "b=32,s=1,kv=4096,h=16,d=128,r=64,c=512,bf16",
        "b=32,s=1,kv=4096,h=128,d=128,r=64,c=512,bf16",
    )
]
"""DeepSeek-V2's dimensions (arXiv:2405.04434, section 3.1.2): 16 heads as in V2-Lite (or 128 over 8 GPUs) and 128, a
prompt and one step of decoding."""

MLA = [*MLA_SMALL, *MLA_PERF_KERNELS, *MLA_DEEPSEEK]
