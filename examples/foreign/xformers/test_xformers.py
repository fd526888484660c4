"""What xformers' Triton kernels compute, none of which needs its compiled extension, and how long they take."""

from __future__ import annotations

import pytest
import torch
from foreign import DEVICE, needs_gpu, normal, sizes, uniform

pytest.importorskip("xformers.ops", reason="xformers is not installed")

from xformers import ops
from xformers.ops import fmha
from xformers.ops.rmsnorm import rms_norm, rms_norm_add

pytestmark = needs_gpu("it refuses other tensors, or loads a libdevice of its own, which cannot be interpreted")
EPS = 1e-6
ROWS = sizes([(8192, 4096), (8192, 1000)], [(32, 256), (17, 100)])


def root_mean_square(x, w):
    return (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPS) * w.float()).to(x.dtype)


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_rms_norm(attnperf, rows, columns):
    attnperf.gate(
        "xformers.rms_norm",
        lambda x, w: rms_norm(x, w, EPS),
        reference=root_mean_square,
        inputs=lambda: (normal(rows, columns), uniform(columns)),
    )


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_rms_norm_of_a_sum(attnperf, rows, columns):
    """Leaves the sum in x."""

    def added(x, y, w):
        return rms_norm_add(x, y, w, EPS), x

    attnperf.gate(
        "xformers.rms_norm_add",
        added,
        reference=lambda x, y, w: (root_mean_square(x + y, w), x + y),
        inputs=lambda: (normal(rows, columns), normal(rows, columns), uniform(columns)),
        in_place=("x",),
    )


@pytest.mark.parametrize(("batch", "room", "heads", "width"), sizes([(64, 1024, 32, 128)], [(3, 20, 4, 32)]))
def test_rope_into_a_padded_cache(attnperf, batch, room, heads, width):
    """Rotates query and key of each sequence's next token, and writes key and value to their place in the cache."""
    lengths = [1 + (number * 997) % room for number in range(batch)]
    bias = fmha.attn_bias.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(
        q_seqlen=[1] * batch, kv_padding=room, kv_seqlen=lengths, device=torch.device(DEVICE)
    )
    position = torch.tensor(lengths, device=DEVICE) - 1
    place = position + torch.arange(0, batch * room, room, device=DEVICE)
    rates = 10000 ** (-torch.arange(0, width, 2, device=DEVICE, dtype=torch.float64) / width)
    turns = torch.polar(torch.ones((), device=DEVICE, dtype=torch.float64), torch.outer(position, rates))[:, None]

    def rotated(x):
        pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)

    def written(q, k, v, keys, values):
        return ops.rope_padded(q, k, v, keys, values, bias), keys, values

    def reference(q, k, v, keys, values):
        return rotated(q), keys.index_copy(1, place, rotated(k)), values.index_copy(1, place, v)

    attnperf.gate(
        "xformers.rope_padded",
        written,
        reference=reference,
        inputs=lambda: (
            normal(1, batch, heads, width),
            *(normal(1, batch, heads // 4, width) for _ in "kv"),
            *(normal(1, batch * room, heads // 4, width) for _ in "kv"),
        ),
        in_place=("keys", "values"),
    )


@pytest.mark.parametrize(("rows", "picked", "columns"), sizes([(8192, 4096, 4096)], [(20, 7, 32)]))
def test_index_select_cat(attnperf, rows, picked, columns):
    attnperf.gate(
        "xformers.index_select_cat",
        lambda x, index: ops.index_select_cat([x], [index]),
        reference=lambda x, index: x[index].flatten(),
        inputs=lambda: (normal(rows, columns), torch.randperm(rows, device=DEVICE)[:picked]),
        backward=True,
    )


@pytest.mark.parametrize(("rows", "picked", "length", "width"), sizes([(64, 40, 512, 1024)], [(5, 3, 4, 32)]))
def test_scaled_index_add(attnperf, rows, picked, length, width):
    """Adds to x, where it is."""
    attnperf.gate(
        "xformers.scaled_index_add",
        lambda x, index, more, scaling: ops.scaled_index_add(x, index, more, scaling, alpha=0.5),
        reference=lambda x, index, more, scaling: x.index_add(0, index, more * scaling, alpha=0.5),
        inputs=lambda: (
            normal(rows, length, width),
            torch.randperm(rows, device=DEVICE)[:picked],
            normal(picked, length, width),
            uniform(width),
        ),
        in_place=("x",),
    )


@pytest.mark.parametrize(
    ("batch", "length", "heads", "width"), sizes([(8, 8192, 8, 128), (3, 1000, 8, 64)], [(2, 50, 2, 32)])
)
def test_decoding_attention(attnperf, batch, length, heads, width):
    """One query of each sequence; the keys are split among programs."""

    def attention(q, k, v):
        """Not by `ops.memory_efficient_attention_forward`, which asks for the compiled extension before it chooses."""
        return fmha.triton_splitk.FwOp.apply(fmha.Inputs(q, k, v), needs_gradient=False)[0]

    def plain(q, k, v):
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * width**-0.5
        return torch.einsum("bhqk,bkhd->bqhd", scores.float().softmax(-1).to(q.dtype), v)

    attnperf.gate(
        "xformers.triton_splitk",
        attention,
        reference=plain,
        inputs=lambda: (normal(batch, 1, heads, width), *(normal(batch, length, heads, width) for _ in "kv")),
        cache_state="cold",
    )
