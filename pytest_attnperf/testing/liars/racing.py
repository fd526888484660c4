"""Lies that occur only sometimes: the effects of a race, on unchanged inputs."""

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
)
