"""The attention layers that are proven and gated, and where each set comes from.

Lines as `--attnperf-workload` takes them: b sequences, s new tokens of each, p tokens before them (0 if absent), room
positions of the cache (p + s if absent), e hidden size (h d if absent), h query heads, hk K/V heads (h if absent), d
head dimension; `hostref` computes the reference on the CPU; the last word changes the size of the values.
"""

from __future__ import annotations

from pytest_attnperf.workloads.block import Block

SMALL, GROUPED = "h=2,hk=1,d=64,e=128", "h=4,hk=2,d=64,e=128"
"""Heads and hidden sizes of the integration tests, small enough for an emulator and for Triton's interpreter: the
baseline's hidden size, heads that every backend takes, of which two share keys, in one group and in two."""

OWN = "h=4,d=32,e=128"
"""The shape of the published report whose seven tests these are."""


def _blocks(*lines: str) -> list[Block]:
    return [Block.parse_line(line) for line in lines]


ONE_TOKEN = _blocks(f"s=1,{SMALL},f16", f"b=2,s=1,{GROUPED},bf16,bias", f"s=1,{OWN},f16")
ONE_TOKEN_DECODE = _blocks(f"s=1,p=63,{SMALL},f16", f"b=2,s=1,p=64,room=80,{GROUPED},bf16,bias")
"""One token of an empty and of a filled cache, on both sides of a tile's edge; with room behind it."""

SEVERAL_TOKENS = _blocks(
    f"s=16,{SMALL},f16", f"b=2,s=16,p=48,{SMALL},bf16", f"s=16,{OWN},f16,bias,out_bias", f"s=16,{SMALL},f16,l=2"
)
SEVERAL_TOKENS_DECODE = _blocks(f"s=4,p=61,{SMALL},f16")
"""Sixteen tokens of a prompt and of its next chunk, with every bias, through two layers; and four speculated ones."""

CAUSAL = _blocks(f"s=129,{SMALL},f16", f"b=2,s=33,p=31,{GROUPED},f16", f"s=32,{OWN},f16")
CAUSAL_DECODE = _blocks(f"b=3,s=1,p=128,{GROUPED},f16", f"s=3,p=126,{SMALL},f16")
"""Lengths one past and one short of tiles, where a mask that is off by one shows."""

HOST = _blocks(f"s=48,{GROUPED},f16,hostref", f"s=20,p=40,{SMALL},bf16,hostref", f"s=32,{OWN},f16,hostref")
HOST_DECODE = _blocks(f"b=2,s=1,p=95,{GROUPED},f16,hostref", f"s=1,p=50,{SMALL},bf16,hostref")
"""Inputs drawn, and the truth computed in fp64, on the CPU."""

LENGTHS = _blocks(
    *(f"s={length},{SMALL},f16" for length in range(1, 33)), *(f"s={length},{OWN},f16" for length in (1, 17, 32))
)
LENGTHS_DECODE = _blocks(*(f"s=1,p={length - 1},{SMALL},f16" for length in range(2, 33)))
"""Every length from 1 to 32, as a prompt and as the newest of so many tokens."""

REGIMES = ("large", "tiny", "huge", "equal", "overflow")
STABILITY = _blocks(
    *(f"s=40,{SMALL},f16,{regime}" for regime in REGIMES), f"s=40,{SMALL},bf16,large", f"s=32,{OWN},f16,large"
)
STABILITY_DECODE = _blocks(*(f"s=1,p=39,{SMALL},f16,{regime}" for regime in REGIMES))
"""Large logits, tiny and huge values, equal scores, and values near the largest that fp16 holds."""

BASELINE = _blocks(f"s=32,{OWN},f16")
"""A published report's baseline, 418 ms for 32 tokens in 4 heads of 32 on a hidden size of 128. A decode step of that
size is timed cold, for which it is too small on a CPU with a large cache."""

STACKS = _blocks(f"s=32,{OWN},l=4,f16", "s=4096,e=4096,h=32,hk=8,d=128,l=4,bf16")
"""Four layers one after the other, of the baseline's size and of Llama 3 8B's: peak memory is that of one layer."""

PREFILL_MODELS = _blocks(
    "s=4096,e=4096,h=32,hk=8,d=128,bf16",
    "s=4096,e=8192,h=8,hk=1,d=128,bf16",
    "s=4096,e=3584,h=28,hk=4,d=128,bf16,bias",
)
DECODE_MODELS = _blocks(
    "s=1,p=4095,e=4096,h=32,hk=8,d=128,bf16",
    "b=16,s=1,p=4095,e=4096,h=32,hk=8,d=128,bf16",
    "b=16,s=1,p=4095,e=8192,h=8,hk=1,d=128,bf16",
    "b=16,s=1,p=4095,e=3584,h=28,hk=4,d=128,bf16,bias",
)
"""Layers of Llama 3 8B, of Llama 3 70B on one of 8 tensor-parallel ranks (arXiv:2407.21783, table 3), and of Qwen2.5
7B (arXiv:2412.15115): a prompt of 4,096 tokens, and a step at the end of one."""
