"""What conch's Triton ports of vLLM's inference kernels compute, and how long they take."""

from __future__ import annotations

import pytest
import torch
from foreign import DEVICE, DTYPE, TRITON, needs_gpu, normal, sizes, uniform
from torch.nn import functional as F

from pytest_attnperf.records import Tolerance

pytest.importorskip("conch.ops", reason="conch-triton-kernels is not installed")

from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul
from conch.ops.activation.silu_and_mul import silu_and_mul
from conch.ops.attention.paged_attention import paged_attention
from conch.ops.attention.varlen_attention import varlen_attention
from conch.ops.embedding.rotary_embedding import rotary_embedding
from conch.ops.normalization.gemma_rms_norm import gemma_rms_norm
from conch.ops.normalization.rms_norm import fused_add_rms_norm, rms_norm
from conch.ops.quantization.fp8 import scaled_fp8_quant
from conch.ops.quantization.int8 import scaled_int8_quant
from conch.ops.vllm.copy_blocks import copy_blocks
from conch.ops.vllm.reshape_and_cache import reshape_and_cache

pytestmark = TRITON
EPS = 1e-6
ROWS = sizes([(8192, 4096), (8192, 1000)], [(32, 256), (17, 100)])
GATED = sizes([(4096, 11008), (4096, 1000)], [(16, 512), (9, 100)])
PAGE = 16
# Divided by this, numbers of at most 24 bits stay exact, so that a quantised value can be asked for to the bit.
STEP = 1 / 32


def root_mean_square(x, w):
    return (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPS) * w.float()).to(x.dtype)


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_rms_norm(attnperf, rows, columns):
    attnperf.gate(
        "conch.rms_norm",
        lambda x, w: rms_norm(x, w, EPS),
        reference=root_mean_square,
        inputs=lambda: (normal(rows, columns), uniform(columns)),
    )


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_fused_add_rms_norm(attnperf, rows, columns):
    """Leaves the norm in x and the sum in the residual."""
    attnperf.gate(
        "conch.fused_add_rms_norm",
        lambda x, residual, w: fused_add_rms_norm(x, residual, w, EPS),
        reference=lambda x, residual, w: (root_mean_square(x + residual, w), x + residual),
        inputs=lambda: (normal(rows, columns), normal(rows, columns), uniform(columns)),
        in_place=("x", "residual"),
    )


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_gemma_rms_norm(attnperf, rows, columns):
    """Scales by 1 + w, and without a residual overwrites x."""
    attnperf.gate(
        "conch.gemma_rms_norm",
        lambda x, w: gemma_rms_norm(x, w, EPS),
        reference=lambda x, w: root_mean_square(x, 1 + w.float()),
        inputs=lambda: (normal(rows, columns), uniform(columns)),
        in_place=("x",),
    )


@pytest.mark.parametrize(
    ("kernel", "activation", "dtype"),
    [
        pytest.param(silu_and_mul, F.silu, DTYPE, id="silu"),
        # Its libdevice.tanh takes fp32 and fp64 only.
        pytest.param(gelu_tanh_and_mul, lambda a: F.gelu(a, approximate="tanh"), torch.float32, id="gelu_tanh"),
    ],
)
@pytest.mark.parametrize(("rows", "columns"), GATED)
def test_gated_activation(attnperf, kernel, activation, dtype, rows, columns):
    attnperf.gate(
        f"conch.{kernel.__name__}",
        kernel,
        reference=lambda x: activation(x[:, :columns]) * x[:, columns:],
        inputs=lambda: normal(rows, 2 * columns, dtype=dtype),
    )


@pytest.mark.parametrize(("tokens", "heads", "width"), sizes([(8192, 32, 128), (1000, 32, 64)], [(9, 4, 32)]))
def test_rotary_embedding(attnperf, tokens, heads, width):
    """Rotates queries and keys where they are."""

    def rotated(x, position, table):
        cos, sin = table[position][:, None].chunk(2, -1)
        first, second = x.view(tokens, -1, width).chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).flatten(1)

    attnperf.gate(
        "conch.rotary_embedding",
        lambda q, k, position, table: rotary_embedding(position, q, k, width, table),
        reference=lambda q, k, position, table: (rotated(q, position, table), rotated(k, position, table)),
        inputs=lambda: (
            normal(tokens, heads * width),
            normal(tokens, heads // 4 * width),
            torch.randint(tokens, (tokens,), device=DEVICE),
            normal(tokens, width),
        ),
        in_place=("q", "k"),
    )


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_int8_quantisation(attnperf, rows, columns):
    """Cuts off towards zero, where vLLM's kernel rounds."""
    attnperf.gate(
        "conch.scaled_int8_quant",
        lambda x, step: scaled_int8_quant(x, step)[0],
        reference=lambda x, step: (x / step).clamp(-128, 127).to(torch.int8),
        inputs=lambda: (normal(rows, columns), torch.full((1,), STEP, device=DEVICE)),
    )


@needs_gpu("Triton's interpreter cuts where a GPU rounds to fp8")
@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_fp8_quantisation(attnperf, rows, columns):
    attnperf.gate(
        "conch.scaled_fp8_quant",
        lambda x, step: scaled_fp8_quant(x, step)[0],
        reference=lambda x, step: (x / step).clamp(-448, 448).to(torch.float8_e4m3fn),
        inputs=lambda: (normal(rows, columns), torch.full((1,), STEP, device=DEVICE)),
    )


@pytest.mark.parametrize(("tokens", "heads", "width", "pages"), sizes([(8192, 8, 128, 1024)], [(20, 2, 32, 4)]))
def test_reshape_and_cache(attnperf, tokens, heads, width, pages):
    """Writes each token's key and value to its own slot of the cache, and returns nothing."""

    def reference(key, value, keys, values, slot):
        keys.view(-1, heads, width)[slot] = key
        values.view(-1, heads, width)[slot] = value

    attnperf.gate(
        "conch.reshape_and_cache",
        reshape_and_cache,
        reference=reference,
        inputs=lambda: (
            *(normal(tokens, heads, width) for _ in "kv"),
            *(normal(pages, PAGE, heads, width) for _ in "kv"),
            torch.randperm(pages * PAGE, device=DEVICE)[:tokens],
        ),
        in_place=("keys", "values"),
    )


@pytest.mark.parametrize(("pages", "elements", "pairs"), sizes([(1024, PAGE * 1024, 256)], [(8, 64, 3)]))
def test_copy_blocks(attnperf, pages, elements, pairs):
    """Copies pages of both caches to others, none of which is copied from."""

    def reference(keys, values, pair):
        for cache in (keys, values):
            cache[pair[:, 1]] = cache[pair[:, 0]]

    attnperf.gate(
        "conch.copy_blocks",
        lambda keys, values, pair: copy_blocks([keys], [values], pair),
        reference=reference,
        inputs=lambda: (
            *(normal(pages, elements) for _ in "kv"),
            torch.randperm(pages, device=DEVICE)[: 2 * pairs].view(pairs, 2),
        ),
        in_place=("keys", "values"),
        host_sync=True,
    )


def plain_paged(q, keys, values, table, length):
    """One query of each sequence, over the pages that its row of the table names."""
    groups = q.shape[1] // keys.shape[2]
    k, v = (cache[table].flatten(1, 2).repeat_interleave(groups, 2) for cache in (keys, values))
    scores = torch.einsum("bhd,bthd->bht", q, k) * q.shape[-1] ** -0.5
    seen = torch.arange(k.shape[1], device=q.device) < length[:, None]
    weights = scores.float().masked_fill(~seen[:, None], float("-inf")).softmax(-1)
    return torch.einsum("bht,bthd->bhd", weights.to(q.dtype), v)


def paged_inputs(batch, heads, width, pages, planted):
    """Queries, a cache with twice the pages that are used, scattered, and sequences that end within a page.

    Where a sequence ends only its length tells, so that this plants by itself: the last value of each, and queries
    whose scores exceed what exp can hold.
    """
    queries = normal(batch, heads, width)
    keys, values = (normal(2 * batch * pages, PAGE, heads // 4, width, scale=0.5) for _ in "kv")
    table = torch.randperm(2 * batch * pages, device=DEVICE)[: batch * pages].view(batch, pages)
    length = torch.randint(1, pages * PAGE, (batch,), device=DEVICE)
    if planted:
        queries[:, ::3] *= 64
        last = length - 1
        values[table[torch.arange(batch, device=DEVICE), last // PAGE], last % PAGE] *= 64
    return queries, keys, values, table.int(), length.int()


IN_BF16 = Tolerance(
    multiplier=6.0,
    source="maximum, sum, weights and result are carried from page to page in the type of the query "
    "(paged_attention.py of 1.3): on an H200 2.2 times the largest error of a plain computation that rounds them once",
)
PAGED = sizes([(32, 32, 128, 128), (7, 32, 64, 33)], [(2, 4, 32, 3)])


@pytest.mark.parametrize(("batch", "heads", "width", "pages"), PAGED)
def test_paged_attention(attnperf, batch, heads, width, pages):
    attnperf.gate(
        "conch.paged_attention",
        paged_attention,
        reference=plain_paged,
        inputs=lambda planted: paged_inputs(batch, heads, width, pages, planted),
        cache_state="cold",
        tolerance=IN_BF16,
    )


@pytest.mark.parametrize(("batch", "heads", "width", "pages"), PAGED)
def test_varlen_attention_of_single_queries(attnperf, batch, heads, width, pages):
    starts = torch.arange(batch + 1, device=DEVICE, dtype=torch.int32)
    attnperf.gate(
        "conch.varlen_attention",
        lambda q, k, v, table, length: varlen_attention(q, k, v, starts, 1, length, pages * PAGE, table, causal=True),
        reference=plain_paged,
        inputs=lambda planted: paged_inputs(batch, heads, width, pages, planted),
        cache_state="cold",
    )
