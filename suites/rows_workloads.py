"""The workloads over rows that are gated, and where each set comes from.

Lines as `--attnperf-workload` takes them: r rows, c columns. All are timed cold. The first of each list is small enough
for a CPU and for Triton's interpreter.
"""

from __future__ import annotations

from pytest_attnperf.workloads.layernorm import LayerNorm
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.softmax import Softmax

SOFTMAX = [
    Softmax.parse_line(line)
    for line in (
        "r=256,c=1000,f32",
        "r=262144,c=256,f32",
        "r=131072,c=1024,f16",
        "r=32768,c=8192,f16",
        "r=2048,c=128256,bf16",
    )
]
"""ImageNet's 1,000 classes; 256 experts that DeepSeek-V3 routes to (arXiv:2412.19437, section 4.2); scores of 1,024 and
8,192 keys, 512 MiB of the latter; and Llama 3's vocabulary of 128,256 (its config.json), longer than one tile."""

RMSNORM = [
    RmsNorm.parse_line(line)
    for line in (
        "r=256,c=1000,f32,residual",
        "r=1048576,c=128,bf16",
        "r=32768,c=4096,bf16,residual",
        "r=32768,c=8192,bf16",
        "r=16384,c=16384,bf16,residual",
    )
]
"""Not a whole tile; queries of 32,768 tokens normalised in heads of 128, as Qwen 3 does (arXiv:2505.09388); and the
model dimensions of Llama 3 8B, 70B and 405B (arXiv:2407.21783, table 3)."""

LAYERNORM = [
    LayerNorm.parse_line(line)
    for line in (
        "r=256,c=1000,f32,residual",
        "r=131072,c=768,f16",
        "r=32768,c=4096,bf16,residual",
        "r=16384,c=12288,f16,residual",
        "r=1024,c=262144,bf16",
    )
]
"""Not a whole tile; GPT-2's 768; GPT-J's 4,096; GPT-3's 12,288 (arXiv:2005.14165, table 2.1); and rows that no program
holds at once."""
