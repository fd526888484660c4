"""What fla-core's linear attentions compute, and how long they take."""

from __future__ import annotations

import pytest
import torch
from foreign import DEVICE, DTYPE, TRITON, needs_gpu, normal, sizes, uniform
from torch.nn import functional as F

from pytest_attnperf.records import Tolerance

pytest.importorskip("einops", reason="fla-core needs einops, which is not installed")
pytest.importorskip("fla", reason="fla-core is not installed")

from fla import ops
from fla.utils import IS_NVIDIA_HOPPER, TRITON_ABOVE_3_4_0, TRITON_ABOVE_3_7_1

pytestmark = TRITON
EPS = 1e-6
HALF = sizes(torch.bfloat16, torch.float16)  # the delta rule in chunks takes no fp32, and bf16 cannot be interpreted
IN_CHUNKS = needs_gpu(
    "Triton's interpreter counts a kernel's loops in Python's int, of which these ask a tensor's .to()"
)
HAS_GATED_BACKWARD = not IS_NVIDIA_HOPPER or not TRITON_ABOVE_3_4_0 or TRITON_ABOVE_3_7_1
GATED_BACKWARD = pytest.mark.skipif(
    not HAS_GATED_BACKWARD,
    reason="fla refuses the backward pass of gated kernels in chunks on Hopper with Triton 3.4 to 3.7.0, which "
    "computes it wrongly (ops/common/chunk_o.py of 0.6.0)",
)
ROUNDED_BETWEEN = Tolerance(
    multiplier=5.0,
    source="the kernels round between their products, the reference only its result: fla's own tests accept 0.8 % of "
    "the rms (tests/ops/test_delta.py), five times what one rounding to bf16 costs",
)
# Batch, length, heads, width; one length that fills its last chunk of 64 only in part. Batches are large and lengths
# short because the reference goes token by token.
SHAPES = sizes([(16, 256, 8, 64), (8, 250, 8, 128)], [(1, 70, 2, 32)])


def heads(batch, length, count, width, names="qkv", dtype=DTYPE):
    return tuple(normal(batch, length, count, width, dtype=dtype) for _ in names)


def gates(*shape):
    """Logarithms of decays from about 0.8 to 1, in the dtype of the rest: a gradient in fp32 would be held to fp32."""
    return F.logsigmoid(normal(*shape)) / 16


def recurrent(q, k, v, gate=None, beta=None, unit=False):
    """One token after the other: the state decays by exp(gate), takes in k v, and is read by q.

    With `beta` it takes in, of v, only what it does not yet answer to k (the delta rule); with `unit`, q and k have
    length 1 before.
    """
    dtype, q, k, v = q.dtype, q.float(), k.float(), v.float()
    if unit:
        q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPS) for x in (q, k))
    state, outputs = q.new_zeros(*q[:, 0].shape, v.shape[-1]), []
    for token in range(q.shape[1]):
        if gate is not None:
            state = state * gate[:, token].float().exp()[..., None]
        new = v[:, token]
        if beta is not None:
            new = beta[:, token].float()[..., None] * (new - torch.einsum("bhk,bhkv->bhv", k[:, token], state))
        state = state + k[:, token, ..., None] * new[..., None, :]
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, token], state))
    return (torch.stack(outputs, 1) * q.shape[-1] ** -0.5).to(dtype)


@pytest.mark.parametrize("kernel", [pytest.param("chunk_linear_attn", marks=IN_CHUNKS), "fused_recurrent_linear_attn"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_linear_attention(attnperf, kernel, shape):
    attnperf.gate(
        f"fla.{kernel}",
        lambda q, k, v: getattr(ops, kernel)(q, k, v, normalize=False)[0],
        reference=recurrent,
        inputs=lambda: heads(*shape),
        backward=True,
        tolerance=ROUNDED_BETWEEN,
    )


@pytest.mark.parametrize("kernel", [pytest.param("chunk_retention", marks=IN_CHUNKS), "parallel_retention"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_retention(attnperf, kernel, shape):
    """Each head decays at a rate of its own."""
    decay = (1 - 2.0 ** (-5 - torch.arange(shape[2], device=DEVICE, dtype=torch.float64))).log()[None, None, :, None]
    attnperf.gate(
        f"fla.{kernel}",
        lambda q, k, v: getattr(ops, kernel)(q, k, v)[0],
        reference=lambda q, k, v: recurrent(q, k, v, decay.expand(*q.shape[:3], 1).to(q.float().dtype)),
        inputs=lambda: heads(*shape),
        backward=True,
        tolerance=ROUNDED_BETWEEN,
    )


@pytest.mark.parametrize("kernel", [pytest.param("chunk_gla", marks=IN_CHUNKS), "fused_recurrent_gla"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gated_linear_attention(attnperf, kernel, shape):
    """Each channel of the keys decays by a gate of its own."""
    attnperf.gate(
        f"fla.{kernel}",
        lambda q, k, v, gate: getattr(ops, kernel)(q, k, v, gate)[0],
        reference=recurrent,
        inputs=lambda: (*heads(*shape), gates(*shape)),
        backward=True,
        tolerance=ROUNDED_BETWEEN,
    )


@IN_CHUNKS
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_simple_gated_linear_attention(attnperf, shape):
    """Each head decays by one gate."""
    attnperf.gate(
        "fla.chunk_simple_gla",
        lambda q, k, v, gate: ops.chunk_simple_gla(q, k, v, gate)[0],
        reference=lambda q, k, v, gate: recurrent(q, k, v, gate[..., None]),
        inputs=lambda: (*heads(*shape), gates(*shape[:3])),
        backward=HAS_GATED_BACKWARD,
        tolerance=ROUNDED_BETWEEN,
    )


@pytest.mark.parametrize("kernel", [pytest.param("chunk_delta_rule", marks=IN_CHUNKS), "fused_recurrent_delta_rule"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_delta_rule(attnperf, kernel, shape):
    attnperf.gate(
        f"fla.{kernel}",
        lambda q, k, v, beta: getattr(ops, kernel)(q, k, v, beta, use_qk_l2norm_in_kernel=True)[0],
        reference=lambda q, k, v, beta: recurrent(q, k, v, beta=beta, unit=True),
        inputs=lambda: (*heads(*shape, dtype=HALF), uniform(*shape[:3], dtype=HALF)),
        backward=True,
        tolerance=ROUNDED_BETWEEN,
    )


@IN_CHUNKS
@pytest.mark.parametrize(
    "times", ["forward", *(pytest.param(times, marks=GATED_BACKWARD) for times in ("backward", "both"))]
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gated_delta_rule(attnperf, shape, times):
    attnperf.gate(
        "fla.chunk_gated_delta_rule",
        lambda q, k, v, gate, beta: ops.chunk_gated_delta_rule(q, k, v, gate, beta, use_qk_l2norm_in_kernel=True)[0],
        reference=lambda q, k, v, gate, beta: recurrent(q, k, v, gate[..., None], beta, unit=True),
        inputs=lambda: (*heads(*shape), gates(*shape[:3]), uniform(*shape[:3])),
        backward=HAS_GATED_BACKWARD,
        tolerance=ROUNDED_BETWEEN,
        times=times,
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gated_delta_rule_token_by_token(attnperf, shape):
    """The kernel of decoding; it has no backward."""
    attnperf.gate(
        "fla.fused_recurrent_gated_delta_rule",
        lambda q, k, v, gate, beta: ops.fused_recurrent_gated_delta_rule(
            q, k, v, gate, beta=beta, use_qk_l2norm_in_kernel=True
        )[0],
        reference=lambda q, k, v, gate, beta: recurrent(q, k, v, gate[..., None], beta, unit=True),
        inputs=lambda: (*heads(*shape), gates(*shape[:3]), uniform(*shape[:3])),
        tolerance=ROUNDED_BETWEEN,
    )


@IN_CHUNKS
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kimi_delta_attention(attnperf, shape):
    """The delta rule with a gate for each channel of the keys."""
    attnperf.gate(
        "fla.chunk_kda",
        lambda q, k, v, gate, beta: ops.chunk_kda(q, k, v, gate, beta, use_qk_l2norm_in_kernel=True)[0],
        reference=lambda q, k, v, gate, beta: recurrent(q, k, v, gate, beta, unit=True),
        inputs=lambda: (*heads(*shape), gates(*shape), uniform(*shape[:3])),
        backward=True,
        tolerance=ROUNDED_BETWEEN,
    )


def plain_attention(q, k, v, gate=None):
    """Causal; with `gate`, each score has lost what its keys' successors forget."""
    groups = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(groups, 2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k).float() * q.shape[-1] ** -0.5
    if gate is not None:
        past = gate.float().cumsum(1).transpose(1, 2)
        scores = scores + past[..., :, None] - past[..., None, :]
    hidden = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
    return torch.einsum("bhqk,bkhd->bqhd", scores.masked_fill(hidden, float("-inf")).softmax(-1).to(v.dtype), v)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention(attnperf, shape):
    batch, length, count, width = shape
    attnperf.gate(
        "fla.parallel_attn",
        ops.parallel_attn,
        reference=plain_attention,
        inputs=lambda: (*heads(*shape, "q"), *heads(batch, length, count // 2, width, "kv")),
        backward=True,
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forgetting_attention(attnperf, shape):
    attnperf.gate(
        "fla.parallel_forgetting_attn",
        ops.parallel_forgetting_attn,
        reference=plain_attention,
        inputs=lambda: (*heads(*shape), gates(*shape[:3])),
        backward=True,
    )
