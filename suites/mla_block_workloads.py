"""The layers of latent attention that are proven and gated, and where each set comes from.

Lines as `--attnperf-workload` takes them: b sequences, s new tokens of each, p tokens before them (0 if absent), room
positions of the caches (p + s if absent), e hidden size, h heads, q the latents of queries (0 if absent: none), c those
of keys and values, d and dv dimensions of a head without rotation (dv is d if absent), r the rotated ones; `fp8w` has
weights in f8e4m3, `mask` a mask as an input, `expanded` caches of keys and values of heads.
"""

from __future__ import annotations

from pytest_attnperf.workloads.mla_block import MlaBlock

SMALL = "e=256,h=4,q=144,d=32,r=16,c=64"
"""Sizes of the tests of results, small enough for Triton's interpreter; weights have several blocks of a scale, and
the last ones are cut."""


def _blocks(*lines: str) -> list[MlaBlock]:
    return [MlaBlock.parse_line(line) for line in lines]


PROMPTS = _blocks(
    f"s=49,{SMALL},f16",
    f"b=2,s=20,p=21,{SMALL},dv=24,bf16,fp8w",
    "b=2,s=23,p=6,room=40,e=256,h=4,d=32,r=16,c=64,bf16",
)
DECODES = _blocks(
    f"s=1,p=47,{SMALL},f16,fp8w",
    f"b=2,s=3,p=37,{SMALL},dv=24,bf16",
    "b=3,s=1,p=33,room=40,e=256,h=4,d=32,r=16,c=64,f16",
)
"""A prompt, the next chunk of one, one token and a few speculated ones; with weights in fp8, with values of another
size than keys, with room behind the caches, and with queries projected from the token (as in DeepSeek-V2-Lite)."""

MASKED = _blocks(f"s=33,{SMALL},f16,mask", f"b=2,s=4,p=20,room=33,{SMALL},bf16,mask,fp8w")
"""Masks that are an input, over a prompt and over a filled cache."""

EXPANDED = _blocks(f"s=33,p=5,{SMALL},f16,expanded", f"b=2,s=1,p=30,room=40,{SMALL},dv=24,bf16,fp8w,mask,expanded")
"""Caches of keys and values of heads, as DeepSeek-V3's `attn_impl` 'naive' has them."""

RANK = "e=7168,h=16,q=1536,d=128,r=64,c=512,bf16"
DEEPSEEK_PREFILL = _blocks(f"s=2048,{RANK}", f"s=2048,{RANK},fp8w")
DEEPSEEK_DECODE = _blocks(f"b=32,s=1,p=4095,{RANK}", f"b=32,s=1,p=4095,{RANK},fp8w")
DEEPSEEK_EXPANDED = _blocks(f"b=4,s=1,p=4095,{RANK},expanded")
"""DeepSeek-V3's layer on one of 8 tensor-parallel ranks, 16 of its 128 heads (arXiv:2412.19437, section 4.2): a prompt
of 2,048 tokens and a step at the end of 4,096, with weights in bf16 and, as published, in fp8."""
