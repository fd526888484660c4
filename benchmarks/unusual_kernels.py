"""Honest kernels that look unlike others: what they return, how they lie in memory, how they round and what they write.

Each computes what its reference says by another way. `unusual_honest.py` counts how often the judge accuses one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

BF16, F16, F8 = torch.bfloat16, torch.float16, torch.float8_e4m3fn


@dataclass(frozen=True)
class Unusual:
    """One honest kernel, as `attnperf.gate` takes it.

    inputs     seed -> tensors; torch is seeded before
    in_place   names of the inputs that a call overwrites
    """

    name: str
    kernel: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Callable[[int], tuple[torch.Tensor, ...]]
    in_place: tuple[str, ...] = ()


@dataclass(frozen=True)
class Both:
    """A result with two parts."""

    out: torch.Tensor
    lse: torch.Tensor


def drawn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[int], tuple[torch.Tensor, ...]]:
    """Tensors from N(0, 1)."""
    return lambda seed: tuple(torch.randn(shape).to(dtype) for shape in shapes)


def with_rows(count: int, *shapes: tuple[int, ...], below: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    """Tensors from N(0, 1), and so many different indices below a limit."""
    return lambda seed: (*(torch.randn(shape) for shape in shapes), torch.randperm(below)[:count])


def in_blocks(x: torch.Tensor, width: int = 32) -> torch.Tensor:
    """An online softmax."""
    largest, total = torch.full_like(x[:, :1], -torch.inf), torch.zeros_like(x[:, :1])
    for block in x.split(width, 1):
        now = torch.maximum(largest, block.amax(1, keepdim=True))
        total = total * (largest - now).exp() + (block - now).exp().sum(1, keepdim=True)
        largest = now
    return (x - largest).exp() / total


def append(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """New rows of a cache, in place."""
    cache[:, 40:44] = new
    return cache[:, 40:44]


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 by rows, and the step of each."""
    step = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / step).clamp(-127, 127).to(torch.int8), step


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Pairs of halves."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """In the inputs' own type."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return torch.softmax(scores if bias is None else scores + bias, -1) @ v


def window(rows: int, width: int) -> torch.Tensor:
    """0 where a row sees a key, -inf elsewhere."""
    age = torch.arange(rows)[:, None] - torch.arange(rows)[None]
    return torch.zeros(rows, rows).masked_fill((age < 0) | (age >= width), -torch.inf)


def alibi(rows: int) -> torch.Tensor:
    """A slope for each of four heads."""
    return -(torch.arange(rows)[:, None] - torch.arange(rows)[None]).abs() * 2.0 ** -torch.arange(1, 5)[:, None, None]


def wide_attention(*qkv: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """In fp32, rounded once."""
    return attention(*(tensor.float() for tensor in qkv), bias=bias).to(qkv[0].dtype)


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """fp32 statistics in one pass, as E[x^2] - E[x]^2 around the first column."""
    wide = x.float()
    shifted = wide - wide[:, :1]
    mean, square = shifted.mean(-1, keepdim=True), shifted.square().mean(-1, keepdim=True)
    return ((shifted - mean) * torch.rsqrt(square - mean.square() + 1e-5) * w.float() + b.float()).to(x.dtype)


def group_norm(x: torch.Tensor) -> torch.Tensor:
    """Four groups, by hand."""
    grouped = x.view(x.shape[0], 4, -1)
    mean = grouped.mean(-1, keepdim=True)
    return ((grouped - mean) / (grouped.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()).view(x.shape)


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """fp32 inside."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)


def depthwise(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A causal convolution of each channel, tap by tap."""
    padded = F.pad(x, (3, 0))
    taps = [padded[..., tap : tap + x.shape[-1]] * w[:, tap : tap + 1] for tap in range(4)]
    return taps[0] + taps[1] + taps[2] + taps[3]


def as_unfolded(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A convolution as one product."""
    columns = x.unfold(-1, 3, 1).permute(0, 2, 1, 3).flatten(2)
    return (columns @ w.flatten(1).t()).transpose(1, 2)


def squared(x: torch.Tensor) -> torch.Tensor:
    """(x + i x.roll(1))^2, as real parts and imaginary ones."""
    numbers = torch.complex(x, x.roll(1))
    return torch.view_as_real(numbers * numbers)


def rotary_plain(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """The halves of x by name."""
    a, b, cos, sin = x[..., :16], x[..., 16:], angle.cos(), angle.sin()
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def quantised_plain(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """By a division of 127."""
    largest = x.abs().amax(-1, keepdim=True)
    return (x * (127 / largest)).round().to(torch.int8), largest / 127


def gelu(x: torch.Tensor) -> torch.Tensor:
    """By tanh."""
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def dropped(x: torch.Tensor) -> torch.Tensor:
    """Dropout by a generator of its own, that is seeded in every call."""
    keep = torch.rand(x.shape, generator=torch.Generator(x.device).manual_seed(7)) < 0.8
    return torch.where(keep, x / 0.8, torch.zeros_like(x))


def in_slices(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product whose slices along K are added in f16."""
    total = a[..., :16] @ b[..., :16, :]
    for start in range(16, a.shape[-1], 16):
        total = total + a[..., start : start + 16] @ b[..., start : start + 16, :]
    return total


def bags(table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Sums of four rows each."""
    return table[rows.view(-1, 4)].sum(1)


def scattered(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Rows at other places of zeros."""
    return torch.zeros(64, x.shape[1], dtype=x.dtype).index_copy(0, rows, x)


def labels(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of 50 classes, and the right one of each row."""
    return torch.randn(32, 50), torch.randint(0, 50, (32,))


X, SQUARE = drawn((24, 96)), drawn((32, 32), (32, 32))
QKV = drawn(*((1, 4, 48, 32),) * 3, dtype=BF16)

UNUSUAL = (
    Unusual(
        "expanded",
        lambda x: x.sum(-1, keepdim=True).expand(24, 96),
        lambda x: x.sum(-1, keepdim=True).expand(24, 96),
        X,
    ),
    Unusual("parameter", lambda x: torch.nn.Parameter(x * 2), lambda x: x + x, X),
    Unusual("transposed", lambda x: (x.t() * 3).t(), lambda x: x * 3, X),
    Unusual("every second column", lambda x: (x * 3)[:, ::2], lambda x: x[:, ::2] * 3, X),
    Unusual("windows that overlap", lambda x: (x * 2).unfold(1, 16, 4), lambda x: (x * 2).unfold(1, 16, 4), X),
    Unusual("scalar", lambda x: x.square().mean(1).mean(), lambda x: x.square().mean(), X),
    Unusual("argmax", lambda x: torch.sort(x, -1, descending=True).indices[:, 0], lambda x: x.argmax(-1), X),
    Unusual("mask", lambda x: ~(x <= 0), lambda x: x > 0, X),
    Unusual("complex inside", squared, lambda x: torch.stack((x**2 - x.roll(1) ** 2, 2 * x * x.roll(1)), -1), X),
    Unusual("dict", lambda x: {"a": x * 2, "b": x.sum(0)}, lambda x: {"a": x + x, "b": x.sum(0)}, X),
    Unusual(
        "dataclass",
        lambda x: Both(in_blocks(x), x.logsumexp(-1)),
        lambda x: Both(torch.softmax(x, -1), x.logsumexp(-1)),
        X,
    ),
    Unusual("overwrites", lambda x: x.mul_(2), lambda x: x * 2, X, in_place=("x",)),
    Unusual("append", append, append, drawn((8, 128, 16), (8, 4, 16)), in_place=("cache",)),
    Unusual(
        "gather",
        lambda table, rows: torch.index_select(table, 0, rows),
        lambda table, rows: table[rows],
        with_rows(16, (512, 32), below=512),
    ),
    Unusual(
        "scatter",
        scattered,
        lambda x, rows: torch.zeros(64, 32, dtype=x.dtype).index_add(0, rows, x),
        with_rows(16, (16, 32), below=64),
    ),
    Unusual(
        "embedding bag",
        lambda table, rows: F.embedding_bag(rows.view(-1, 4), table, mode="sum"),
        bags,
        with_rows(64, (256, 32), below=256),
    ),
    Unusual("cumsum", lambda x: torch.tril(torch.ones(96, 96)).matmul(x.t()).t(), lambda x: x.cumsum(-1), X),
    Unusual("sort", lambda x: -torch.sort(-x, -1, descending=True).values, lambda x: x.sort(-1).values, X),
    Unusual("topk", lambda x: x.sort(-1, descending=True).values[:, :5], lambda x: x.topk(5).values, X),
    Unusual(
        "dropout",
        dropped,
        lambda x: x * (torch.rand(24, 96, generator=torch.Generator(x.device).manual_seed(7)) < 0.8) / 0.8,
        X,
    ),
    Unusual("softmax in blocks", in_blocks, lambda x: torch.softmax(x, -1), drawn((16, 1000))),
    Unusual(
        "softmax by its logarithm",
        lambda x: (x - x.logsumexp(-1, keepdim=True)).exp(),
        lambda x: torch.softmax(x, -1),
        drawn((16, 1000)),
    ),
    Unusual(
        "log-sum-exp",
        lambda x: x.amax(-1) + (x - x.amax(-1, keepdim=True)).exp().sum(-1).log(),
        lambda x: x.logsumexp(-1),
        X,
    ),
    Unusual(
        "cross entropy",
        lambda x, y: F.nll_loss(F.log_softmax(x, -1), y, reduction="none"),
        lambda x, y: F.cross_entropy(x, y, reduction="none"),
        labels,
    ),
    Unusual(
        "layer norm",
        layer_norm,
        lambda x, w, b: F.layer_norm(x.float(), (96,), w.float(), b.float()).to(x.dtype),
        drawn((24, 96), (96,), (96,), dtype=BF16),
    ),
    Unusual("group norm", group_norm, lambda x: F.group_norm(x, 4), drawn((4, 16, 20))),
    Unusual(
        "RMS norm",
        rms_norm,
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w,
        drawn((24, 96), (96,), dtype=BF16),
    ),
    Unusual("GELU", gelu, lambda x: F.gelu(x, approximate="tanh"), drawn((24, 96), dtype=F16)),
    Unusual("rotary", lambda x, a: rotary(x, a.cos(), a.sin()), rotary_plain, drawn((4, 24, 32), (24, 16))),
    Unusual("int8", quantised, quantised_plain, X),
    Unusual("fp8", lambda x: x.to(F8), lambda x: x.to(F8), X),
    Unusual("linear", lambda x, w, b: torch.addmm(b, x, w.t()), F.linear, drawn((24, 96), (48, 96), (48,))),
    Unusual("einsum", lambda a, b: torch.einsum("ik,kj->ij", a, b), lambda a, b: a @ b, SQUARE),
    Unusual("product in f16", in_slices, lambda a, b: a @ b, drawn((2, 24, 64), (2, 64, 24), dtype=F16)),
    Unusual("convolution", as_unfolded, lambda x, w: F.conv1d(x, w), drawn((2, 8, 40), (12, 8, 3))),
    Unusual(
        "depthwise convolution",
        depthwise,
        lambda x, w: F.conv1d(F.pad(x, (3, 0)), w[:, None], groups=8),
        drawn((2, 8, 40), (8, 4)),
    ),
    Unusual(
        "sliding window",
        lambda q, k, v: wide_attention(q, k, v, bias=window(48, 16)),
        lambda q, k, v: attention(q, k, v, window(48, 16).to(q.dtype)),
        QKV,
    ),
    Unusual(
        "ALiBi",
        lambda q, k, v: wide_attention(q, k, v, bias=alibi(48)),
        lambda q, k, v: attention(q, k, v, alibi(48).to(q.dtype)),
        QKV,
    ),
)
"""All of them, on a CPU."""
