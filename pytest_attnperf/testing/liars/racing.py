"""Lies that occur only sometimes: the effects of a race, and of what else is in the batch, on unchanged inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_attnperf.testing.liars.honest import attend
from pytest_attnperf.testing.liars.liar import make_liar
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pytest_attnperf.backends import Tensors

SMALL = Prefill(1, 48, 2, 32, dtype="f32")
BATCH = Prefill(4, 24, 2, 24, seq_kv=40)
SOME = 20
"""One call out of this many is wrong."""


def _wrong_now_and_then(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns attention whose last row is 0 in one of every SOME calls, as if a block had not been waited for."""
    calls = 0

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        out, _ = attend(q, k, v, causal=workload.causal)
        if calls % SOME == SOME - 1:
            out[:, -1] = 0
        return out

    return call


def _never_the_same_order(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns attention that sums the keys in another order in every call, like atomics: right, with other bits."""
    import torch

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        order = torch.randperm(k.shape[1], device=k.device)
        return attend(q, k[:, order], v[:, order], causal=workload.causal)[0]

    return call


def _attend_in_splits(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, splits: int) -> torch.Tensor:
    """Returns attention whose keys are cut into `splits` parts, each rounded to the dtype before all are joined. Sums
    are in fp64, so that no order of them shows after the rounding."""
    import torch

    scores = torch.einsum("bshd,bthd->bhst", q.double(), k.double()) * q.shape[-1] ** -0.5
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    parts = zip(weights.chunk(splits, -1), v.double().chunk(splits, 1), strict=True)
    sums = [torch.einsum("bhst,bthd->bshd", own, values).to(q.dtype).double() for own, values in parts]
    out = torch.stack(sums).sum(0) / weights.sum(-1).transpose(1, 2)[..., None]
    return out.to(q.dtype)


def _splits_by_batch(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns attention that splits the keys of a small batch, as kernels do that fill a GPU."""
    return lambda q, k, v: _attend_in_splits(q, k, v, 4 if len(q) < 2 else 2)


def _splits_by_place(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns attention that splits the keys of every other sequence of a batch in another way."""
    import torch

    def call(*qkv: torch.Tensor) -> torch.Tensor:
        each = enumerate(zip(*(tensor.unsqueeze(1) for tensor in qkv), strict=True))
        return torch.cat([_attend_in_splits(q, k, v, 4 if place % 2 else 2) for place, (q, k, v) in each])

    return call


def _splits_in_two(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    return lambda q, k, v: _attend_in_splits(q, k, v, 2)


RACING = (
    make_liar(
        "wrong_now_and_then",
        "One call of 20 leaves a row unwritten.",
        SMALL,
        _wrong_now_and_then,
        r"\d+ of \d+ calls on the same inputs are wrong",
        twin=_never_the_same_order,
        needs_cpu=True,  # Python counts
    ),
    make_liar(
        "splits_by_batch",
        "It declares that results do not depend on the batch, and splits the keys of a single sequence in another way.",
        BATCH,
        _splits_by_batch,
        r"invariance, alone: .* other bits, by up to \d+ ulp",
        twin=_splits_in_two,
        invariant=True,
    ),
    make_liar(
        "splits_by_place",
        "It declares that results do not depend on the batch, and splits the keys of every other sequence differently.",
        BATCH,
        _splits_by_place,
        r"invariance, reversed: .* other bits, by up to \d+ ulp",
        twin=_splits_in_two,
        invariant=True,
    ),
)
