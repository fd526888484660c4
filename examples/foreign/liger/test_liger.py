"""What liger-kernel's norms, activations, rope and embedding compute, forward and backward, and how long they take."""

from __future__ import annotations

import pytest
import torch
from foreign import DEVICE, TRITON, classes, needs_gpu, normal, sizes, uniform
from torch.nn import functional as F

from pytest_attnperf.records import Tolerance

pytest.importorskip("liger_kernel", reason="liger-kernel is not installed")

from liger_kernel.ops import LigerEmbeddingFunction
from liger_kernel.transformers import functional as liger

pytestmark = TRITON
EPS = 1e-6
ROWS = sizes([(8192, 4096), (8192, 1000)], [(32, 256), (17, 100)])
GATED = sizes([(4096, 11008), (4096, 1000)], [(16, 512), (9, 100)])


def root_mean_square(x, w):
    """Llama's: normalised in fp32, rounded, then scaled."""
    return w * (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPS)).to(x.dtype)


@pytest.mark.parametrize("times", ["forward", "backward", "both"])
@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_rms_norm(attnperf, rows, columns, times):
    attnperf.gate(
        "liger.rms_norm",
        lambda x, w: liger.liger_rms_norm(x, w, EPS, in_place=False),
        reference=root_mean_square,
        inputs=lambda: (normal(rows, columns), uniform(columns)),
        backward=True,
        times=times,
    )


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_rms_norm_over_its_gradient(attnperf, rows, columns):
    """As Liger's users call it: backward writes dx over the incoming gradient."""
    attnperf.gate(
        "liger.rms_norm_in_place",
        lambda x, w: liger.liger_rms_norm(x, w, EPS, in_place=True),
        reference=root_mean_square,
        inputs=lambda: (normal(rows, columns), uniform(columns)),
        backward=True,
        in_place=("grad_out",),
    )


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_fused_add_rms_norm(attnperf, rows, columns):
    attnperf.gate(
        "liger.fused_add_rms_norm",
        lambda x, residual, w: liger.liger_fused_add_rms_norm(x, residual, w, EPS, in_place=False),
        reference=lambda x, residual, w: (root_mean_square(x + residual, w), x + residual),
        inputs=lambda: (normal(rows, columns), normal(rows, columns), uniform(columns)),
        backward=True,
    )


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_layer_norm(attnperf, rows, columns):
    attnperf.gate(
        "liger.layer_norm",
        lambda x, w, b: liger.liger_layer_norm(x, w, b, EPS),
        reference=lambda x, w, b: F.layer_norm(x, (columns,), w, b, EPS),
        inputs=lambda: (normal(rows, columns), uniform(columns), normal(columns)),
        backward=True,
    )


@pytest.mark.parametrize(("batch", "channels", "groups", "size"), sizes([(32, 256, 32, 4096)], [(2, 8, 4, 100)]))
def test_group_norm(attnperf, batch, channels, groups, size):
    attnperf.gate(
        "liger.group_norm",
        lambda x, w, b: liger.liger_group_norm(x, w, b, channels, groups, EPS),
        reference=lambda x, w, b: F.group_norm(x, groups, w, b, EPS),
        inputs=lambda: (
            normal(batch, channels, size, dtype=torch.float32),
            uniform(channels, dtype=torch.float32),
            normal(channels, dtype=torch.float32),
        ),
        backward=True,
    )


@needs_gpu("backward asks how many multiprocessors it has")
@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_dynamic_tanh(attnperf, rows, columns):
    attnperf.gate(
        "liger.dyt",
        liger.liger_dyt,
        reference=lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
        inputs=lambda: (normal(rows, columns), uniform(1), uniform(columns), normal(columns)),
        backward=True,
    )


@pytest.mark.parametrize(
    ("gate", "reference"), [("swiglu", F.silu), ("geglu", lambda a: F.gelu(a, approximate="tanh"))]
)
@pytest.mark.parametrize(("rows", "columns"), GATED)
def test_gated_activation(attnperf, gate, reference, rows, columns):
    """Backward writes da and db over a and b."""
    attnperf.gate(
        f"liger.{gate}",
        getattr(liger, f"liger_{gate}"),
        reference=lambda a, b: reference(a) * b,
        inputs=lambda: (normal(rows, columns), normal(rows, columns)),
        backward=True,
        in_place=("a", "b"),
    )


@pytest.mark.parametrize(("rows", "columns"), GATED)
def test_relu_squared(attnperf, rows, columns):
    attnperf.gate(
        "liger.relu_squared",
        liger.liger_relu_squared,
        reference=lambda x: F.relu(x).square(),
        inputs=lambda: normal(rows, columns),
        backward=True,
    )


SUMMED_IN_BF16 = Tolerance(
    multiplier=6.0,
    source="its gradient is summed in the type of the input, tl.sum(dy * y) of bf16 (ops/softmax.py of 0.8.5): on an "
    "H200 2.8 times the error of torch's, which sums in fp32, at one element of 33,554,432",
)


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_softmax(attnperf, rows, columns):
    attnperf.gate(
        "liger.softmax",
        liger.liger_softmax,
        reference=lambda x: torch.softmax(x, -1),
        inputs=lambda: normal(rows, columns),
        backward=True,
        tolerance=SUMMED_IN_BF16,
    )


def plain_sparsemax(x):
    """The Euclidean projection onto the simplex: a threshold is found in the sorted row."""
    ordered = x.sort(-1, descending=True).values
    excess = ordered.cumsum(-1) - 1
    count = torch.arange(1, x.shape[-1] + 1, device=x.device)
    support = (ordered * count > excess).sum(-1, keepdim=True)
    return F.relu(x - excess.gather(-1, support - 1) / support)


@pytest.mark.parametrize(("rows", "columns"), sizes([(8192, 1024), (8192, 1000)], [(8, 64), (5, 50)]))
def test_sparsemax(attnperf, rows, columns):
    attnperf.gate(
        "liger.sparsemax",
        liger.liger_sparsemax,
        reference=plain_sparsemax,
        inputs=lambda: normal(rows, columns, dtype=torch.float32),
        backward=True,
    )


@pytest.mark.parametrize(("heads", "length", "width"), sizes([(32, 4096, 128), (32, 1000, 64)], [(2, 9, 32)]))
def test_rope(attnperf, heads, length, width):
    """Rotates q and k where they are, when they are views of what the projections wrote, and their gradients back."""
    angles = torch.outer(torch.arange(length), 10000 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)[None]
    cos, sin = angles.cos().to(DEVICE), angles.sin().to(DEVICE)

    def rotated(x):
        first, second = x.chunk(2, -1)
        return (x * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)

    attnperf.gate(
        "liger.rope",
        lambda q, k: liger.liger_rope(q, k, cos, sin),
        reference=lambda q, k: (rotated(q), rotated(k)),
        inputs=lambda: tuple(normal(1, length, count, width).transpose(1, 2) for count in (heads, heads // 2)),
        backward=True,
        in_place=("q", "k", "grad_out0", "grad_out1"),
    )


@pytest.mark.parametrize(("count", "width", "tokens"), sizes([(32000, 1024, 8192)], [(50, 32, 20)]))
def test_embedding(attnperf, count, width, tokens):
    attnperf.gate(
        "liger.embedding",
        LigerEmbeddingFunction.apply,
        reference=lambda table, token: F.embedding(token, table),
        inputs=lambda: (normal(count, width, dtype=torch.float32), classes(tokens, count)),
        backward=True,
    )
