"""What fla-core's layers around its attentions compute, and how long they take."""

from __future__ import annotations

import pytest
import torch
from foreign import DEVICE, DTYPE, TRITON, classes, normal, sizes, uniform
from torch.nn import functional as F

pytest.importorskip("einops", reason="fla-core needs einops, which is not installed")
pytest.importorskip("fla", reason="fla-core is not installed")

from fla.modules.activations import swiglu
from fla.modules.causal_conv1d import causal_conv1d
from fla.modules.fused_cross_entropy.ops import cross_entropy_loss
from fla.modules.fused_linear_cross_entropy.ops import fused_linear_cross_entropy_loss
from fla.modules.norm.fused_norm_gate import rms_norm_gated
from fla.modules.norm.l2norm import l2norm
from fla.modules.rotary.ops import rotary_embedding
from fla.modules.token_shift import token_shift

pytestmark = TRITON
EPS = 1e-6
ROWS = sizes([(8192, 2048), (8192, 1000)], [(32, 256), (17, 100)])
TOKENS = sizes([(4, 2048, 2048), (4, 1000, 1000)], [(2, 40, 64), (2, 17, 50)])


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_gated_rms_norm(attnperf, rows, columns):
    def reference(x, gate, w):
        norm = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPS) * w.float()
        return (norm * F.silu(gate.float())).to(x.dtype)

    attnperf.gate(
        "fla.rms_norm_gated",
        lambda x, gate, w: rms_norm_gated(x, gate, w, None, eps=EPS),
        reference=reference,
        inputs=lambda: (normal(rows, columns), normal(rows, columns), uniform(columns)),
        backward=True,
    )


@pytest.mark.parametrize(("rows", "columns"), sizes([(65536, 128), (65536, 100)], [(40, 64), (17, 50)]))
def test_l2_norm(attnperf, rows, columns):
    attnperf.gate(
        "fla.l2norm",
        lambda x: l2norm(x, EPS),
        reference=lambda x: (x.float() * torch.rsqrt(x.float().square().sum(-1, keepdim=True) + EPS)).to(x.dtype),
        inputs=lambda: normal(rows, columns),
        backward=True,
    )


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_swiglu(attnperf, rows, columns):
    attnperf.gate(
        "fla.swiglu",
        swiglu,
        reference=lambda x, y: (F.silu(x.float()) * y.float()).to(x.dtype),
        inputs=lambda: (normal(rows, columns), normal(rows, columns)),
        backward=True,
    )


@pytest.mark.parametrize(
    ("batch", "length", "heads", "width"), sizes([(4, 2048, 16, 128), (4, 1000, 16, 64)], [(2, 9, 2, 32)])
)
def test_rotary_embedding(attnperf, batch, length, heads, width):
    rates = 10000 ** (-torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(length), rates)
    cos, sin = angles.cos().to(DEVICE, DTYPE), angles.sin().to(DEVICE, DTYPE)

    def reference(x):
        first, second = x.chunk(2, -1)
        c, s = cos[:, None], sin[:, None]
        return torch.cat([first * c - second * s, second * c + first * s], -1).to(x.dtype)

    attnperf.gate(
        "fla.rotary_embedding",
        lambda x: rotary_embedding(x, cos, sin),
        reference=reference,
        inputs=lambda: normal(batch, length, heads, width),
        backward=True,
    )


@pytest.mark.parametrize(("batch", "length", "width"), TOKENS)
def test_causal_convolution(attnperf, batch, length, width):
    """Of each channel with its own four taps, and SiLU."""

    def reference(x, w):
        padded = F.pad(x.float().transpose(1, 2), (w.shape[-1] - 1, 0))
        return F.silu(F.conv1d(padded, w.float()[:, None], groups=width)).transpose(1, 2).to(x.dtype)

    attnperf.gate(
        "fla.causal_conv1d",
        lambda x, w: causal_conv1d(x, w, activation="silu")[0],
        reference=reference,
        inputs=lambda: (normal(batch, length, width), normal(width, 4)),
        backward=True,
    )


@pytest.mark.parametrize(("batch", "length", "width"), TOKENS)
def test_token_shift(attnperf, batch, length, width):
    """What each token's predecessor has more than it."""
    attnperf.gate(
        "fla.token_shift",
        token_shift,
        reference=lambda x: F.pad(x, (0, 0, 1, -1)) - x,
        inputs=lambda: normal(batch, length, width),
        backward=True,
    )


@pytest.mark.parametrize(("rows", "count"), sizes([(2048, 32000), (2048, 1000)], [(16, 512), (9, 100)]))
def test_cross_entropy(attnperf, rows, count):
    """One loss of each row, in fp32 whatever the logits are in."""
    attnperf.gate(
        "fla.cross_entropy_loss",
        lambda logits, target: cross_entropy_loss(logits, target)[0],
        reference=lambda logits, target: F.cross_entropy(logits.float(), target, reduction="none"),
        inputs=lambda: (normal(rows, count), classes(rows, count)),
        backward=True,
    )


@pytest.mark.parametrize(("rows", "width", "count"), sizes([(2048, 1024, 32000)], [(16, 32, 100)]))
def test_fused_linear_cross_entropy(attnperf, rows, width, count):
    attnperf.gate(
        "fla.fused_linear_cross_entropy_loss",
        fused_linear_cross_entropy_loss,
        reference=lambda x, target, w: F.cross_entropy((x @ w.T).float(), target),
        inputs=lambda: (normal(rows, width), classes(rows, count), normal(count, width, scale=width**-0.5)),
        backward=True,
    )
