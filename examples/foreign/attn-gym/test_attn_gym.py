"""What attn-gym's masks and changes of scores make FlexAttention compute, and how long it takes."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from foreign import DEVICE, HAS_GPU, needs_gpu, normal, sizes
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

pytest.importorskip("attn_gym", reason="attn-gym is not installed")

from attn_gym import masks, mods

BATCH, HEADS, LENGTH, WIDTH = sizes((1, 16, 4096, 128), (1, 4, 256, 32))
WINDOW, PREFIX, CAP, DILATION = LENGTH // 8, LENGTH // 4, 20, 3
ENDS = [0, LENGTH // 5, LENGTH // 2, LENGTH]


@cache
def attention():
    """Compiled, as users call it; without a GPU as it is, which computes all scores and has no backward."""
    return torch.compile(flex_attention, dynamic=False) if HAS_GPU else flex_attention


def positions():
    """Row and column numbers that broadcast to all scores."""
    number = torch.arange(LENGTH, device=DEVICE)
    return number[:, None], number


def plain(change=None, seen=None):
    """Attention by all of its scores, each changed first, those that are not seen without weight."""

    def reference(q, k, v):
        scores = (q @ k.transpose(-1, -2)).float() * WIDTH**-0.5
        if change is not None:
            scores = change(scores)
        if seen is not None:
            scores = scores.masked_fill(~seen(*positions()), float("-inf"))
        return scores.softmax(-1).to(v.dtype) @ v

    return reference


def gate(attnperf, name, score_mod=None, mask_mod=None, reference=None):
    """Prove FlexAttention with a package's function against all scores with ours."""
    block_mask = None
    if mask_mod is not None:
        block_mask = create_block_mask(mask_mod, None, None, LENGTH, LENGTH, device=DEVICE)
    attnperf.gate(
        f"attn_gym.{name}",
        lambda q, k, v: attention()(q, k, v, score_mod=score_mod, block_mask=block_mask),
        reference=reference,
        inputs=lambda: tuple(normal(BATCH, HEADS, LENGTH, WIDTH) for _ in "qkv"),
        backward=HAS_GPU,
    )


def test_causal(attnperf):
    gate(attnperf, "causal", mask_mod=masks.causal_mask, reference=plain(seen=lambda row, column: column <= row))


def test_alibi(attnperf):
    """Each head takes from a score what its key is away, at a rate of its own."""

    def change(scores):
        row, column = positions()
        rates = 2.0 ** (-8 * torch.arange(1, HEADS + 1, device=DEVICE) / HEADS)
        return scores + (column - row) * rates[:, None, None]

    reference = plain(change, lambda row, column: column <= row)
    gate(attnperf, "alibi", mods.generate_alibi_bias(HEADS), masks.causal_mask, reference)


APPROXIMATE = pytest.param(True, id="approximate", marks=needs_gpu("tanh.approx is an instruction of one"))


@pytest.mark.parametrize("approximate", [pytest.param(False, id="exact"), APPROXIMATE])
def test_softcap(attnperf, approximate):
    gate(
        attnperf,
        "softcap",
        score_mod=mods.generate_tanh_softcap(CAP, approx=approximate),
        reference=plain(lambda scores: CAP * torch.tanh(scores / CAP)),
    )


def test_sliding_window(attnperf):
    reference = plain(seen=lambda row, column: (column <= row) & (row - column <= WINDOW))
    gate(attnperf, "sliding_window", mask_mod=masks.generate_sliding_window(WINDOW), reference=reference)


def test_prefix(attnperf):
    """The first tokens see each other, too."""
    reference = plain(seen=lambda row, column: (column <= row) | (column < PREFIX))
    gate(attnperf, "prefix_lm", mask_mod=masks.generate_prefix_lm_mask(PREFIX), reference=reference)


def test_documents(attnperf):
    """Three packed documents, none of which sees another."""
    ends = torch.tensor(ENDS, device=DEVICE, dtype=torch.int32)

    def seen(row, column):
        starts = sum((row >= end) == (column >= end) for end in ENDS[1:-1])
        return (column <= row) & (starts == len(ENDS) - 2)

    mask = masks.generate_doc_mask_mod(masks.causal_mask, ends)
    gate(attnperf, "documents", mask_mod=mask, reference=plain(seen=seen))


def test_dilated_window(attnperf):
    """Every third key of a window to both sides."""

    def seen(row, column):
        away = (row - column).abs()
        return (away <= WINDOW) & (away % DILATION == 0)

    mask = masks.generate_dilated_sliding_window(WINDOW, DILATION)
    gate(attnperf, "dilated_sliding_window", mask_mod=mask, reference=plain(seen=seen))
