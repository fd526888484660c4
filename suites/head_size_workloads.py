"""Small workloads of head dimensions that are no power of two, for every family of attention, and where they are from.

40 and 80 are Stable Diffusion's (arXiv:2112.10752), 72 is SigLIP's (arXiv:2303.15343, 16 heads of 1152), 96 that of
Phi-3-mini (arXiv:2404.14219); at 72 and 104 users found wrong results (exllamav3 #316, flash-attention #2896), and 120
is the last multiple of 8 below 128. 59 and 111 are of flash-attention's tests (tests/test_flash_attn.py); 17, 33 and
127 are one past and one short of what tiles hold. Lines are as in the workloads of each family.
"""

from __future__ import annotations

from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.block import Block
from pytest_attnperf.workloads.decode import Decode
from pytest_attnperf.workloads.mixed import Mixed
from pytest_attnperf.workloads.mla import Mla
from pytest_attnperf.workloads.mla_block import MlaBlock
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.rope import Rope
from pytest_attnperf.workloads.varlen import Varlen
from pytest_attnperf.workloads.varlen_backward import VarlenBackward
from pytest_attnperf.workloads.weighted_values import WeightedValues

EVEN = (40, 72, 80, 96, 104, 120)
ODD = (17, 33, 59, 111, 127)
SIZES = (*EVEN, *ODD)
"""Those that rows of 16 bytes hold, which some backends need, and the others."""

PREFILL = [
    *(Prefill.parse_line(f"b=1,s=37,kv=70,h=2,d={size},bf16") for size in EVEN),
    *(Prefill.parse_line(f"b=1,s=37,kv=70,h=4,hk=2,d={size},f16,causal") for size in ODD),
]
"""The sizes above: even ones without groups, which torch's efficient attention needs; more keys than queries."""

VARLEN = [Varlen.parse_line(f"q=5_33,h=4,hk=2,d={size},bf16,causal") for size in SIZES]
"""The sizes above, on two lengths that no tile divides."""

MIXED = [Mixed.parse_line(f"q19,2q1s21,h=4,hk=2,d={size},page=16,f16") for size in SIZES]
"""The sizes above: a prompt, and single tokens over pages of 16 keys."""

DECODE = [Decode.parse_line(f"b=2,kv=70,h=4,hk=2,d={size},bf16") for size in SIZES]
"""The sizes above, over a contiguous cache."""

DECODE_PAGED = [Decode.parse_line(f"b=2,kv=70,h=6,hk=2,d={size},page=16,f16,ragged,lse") for size in SIZES]
"""The sizes above, over pages, with groups of three heads, lengths that differ, and the log-sum-exp."""

BACKWARD = [Backward.parse_line(f"b=1,s=37,h=4,hk=2,d={size},bf16,causal") for size in SIZES]
"""The sizes above, for gradients."""

VARLEN_BACKWARD = [VarlenBackward.parse_line(f"q=5_33,h=4,hk=2,d={size},f16,causal") for size in SIZES]
"""The sizes above, for gradients of packed sequences."""

QK_SCORES = [QkScores.parse_line(f"b=1,s=37,h=4,hk=2,d={size},f16") for size in SIZES]
"""The sizes above, which the scores are summed over."""

WEIGHTED_VALUES = [WeightedValues.parse_line(f"b=1,s=37,h=4,hk=2,d={size},bf16,causal") for size in SIZES]
"""The sizes above, which the result has as columns."""

ROPE = [Rope.parse_line(f"b=1,s=37,h=4,hk=2,d={size},bf16") for size in EVEN]
"""The even ones: elements are rotated in pairs."""

BLOCK = [Block.parse_line(f"s=9,p=5,h=2,hk=1,d={size},f16") for size in EVEN]
"""The even ones, because a layer rotates: a chunk of a prompt."""

BLOCK_DECODE = [Block.parse_line(f"s=1,p=33,h=4,hk=2,d={size},f16") for size in EVEN]
"""The even ones: one new token."""

MLA = [Mla.parse_line(f"b=1,s=5,kv=19,h=2,d={size},r=16,c=32,bf16,causal") for size in SIZES]
"""The sizes above, of heads without their rotated part."""

MLA_BLOCK = [MlaBlock.parse_line(f"s=3,p=9,e=64,h=2,d={size},r=16,c=32,f16") for size in SIZES]
"""The sizes above, of heads without their rotated part, in a layer."""
