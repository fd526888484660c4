"""Lies about the origin of a result: an earlier call, the judge's own memory, or a check for the judge's poison."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from pytest_attnperf.correctness.references import Expected
from pytest_attnperf.testing.liars.honest import attend, prepare_attention
from pytest_attnperf.testing.liars.liar import OFF, make_liar
from pytest_attnperf.testing.liars.writing import into_buffer
from pytest_attnperf.workloads.precision import reference_dtype
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.testing.liars.liar import Kernel

SQUARE = Prefill(2, 48, 4, 32, kv_heads=2, causal=True)


def _cached_by(key: Callable[[torch.Tensor], Any]) -> Kernel:
    """Returns a kernel that computes attention once for each value of `key(q)`, and afterwards returns copies of that
    result."""

    def prepare_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
        honest, cache = prepare_attention(workload, inputs), dict[object, "torch.Tensor"]()

        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if key(q) not in cache:
                cache[key(q)] = honest(q, k, v)
            return cache[key(q)].clone()

        return call

    return prepare_kernel


def _right_for_one_seed(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns attention that is right for the timed inputs only, and returns their result for all others. It compares a
    checksum of q on the device, like a kernel."""
    import torch

    honest = prepare_attention(workload, inputs)
    known, checksum = honest(*inputs), inputs[0].float().sum()

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.where(q.float().sum() == checksum, honest(q, k, v), known)

    return call


def _detects_poison(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns attention that computes only if its output buffer holds NaN, as at first, and else returns the old
    content. It decides on the device."""
    import torch

    honest = prepare_attention(workload, inputs)
    buffer = torch.full_like(inputs[0], float("nan"))

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return buffer.copy_(torch.where(buffer.isnan().any(), honest(q, k, v), buffer))

    return call


def _wide_tensors(q: torch.Tensor) -> list[torch.Tensor]:
    """Returns every tensor among Python's objects that could be the judge's reference of q's result: same shape, wide
    dtype."""
    import torch

    wide = reference_dtype((q,))
    every = (found for found in gc.get_objects() if type(found) is torch.Tensor)
    return [found for found in every if found.dtype == wide and found.shape == q.shape]


def _returns_judges_memory(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns a call that returns, among the tensors of `_wide_tensors`, the one closest to the right result; the right
    result if there is none."""
    import torch

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out, _ = attend(q, k, v, causal=workload.causal)
        found = _wide_tensors(q)
        return min(found, key=lambda tensor: float((tensor - out).abs().nan_to_num(torch.inf).max()), default=out)

    return call


def _copies_reference(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns a call that computes the last row only, and returns a copy of a tensor of `_wide_tensors` with that row;
    zeros if there is none."""
    import torch

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        row, _ = attend(q[:, -1:], k, v, causal=workload.causal)
        right = [one for one in _wide_tensors(q) if torch.allclose(one[:, -1:].to(row.dtype), row, atol=1e-2)]
        return right[0].to(q.dtype) if right else torch.zeros_like(q)

    return call


def _asks_for_the_reference(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns a call that computes the last row only, finds the judge's own objects, makes each of their references
    readable, and returns a copy of the one with that row; the right result if there is none."""
    import torch

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        row, _ = attend(q[:, -1:], k, v, causal=workload.causal)
        for expected in [found for found in gc.get_objects() if isinstance(found, Expected)]:
            with expected.reveal() as readable:
                for one in readable.values():
                    if one.shape == q.shape and torch.allclose(one[:, -1:].to(row.dtype), row, atol=1e-2):
                        return one.to(q.dtype)
        return attend(q, k, v, causal=workload.causal)[0]

    return call


CACHING = (
    make_liar(
        "caches_by_pointer",
        "A result is kept by the address of its input, and returned for whatever lies there later.",
        SQUARE,
        _cached_by(lambda q: q.data_ptr()),
        OFF,
    ),
    make_liar(
        "caches_by_shape",
        "A result is kept by the shape of its input.",
        SQUARE,
        _cached_by(lambda q: q.shape),
        OFF,
    ),
    make_liar(
        "right_for_one_seed",
        "The timed inputs are recognised by a checksum; all others get the timed inputs' result.",
        SQUARE,
        _right_for_one_seed,
        OFF,
    ),
    make_liar(
        "detects_poison",
        "A result is computed only where the output buffer holds NaN, a sign that the result will be checked.",
        SQUARE,
        _detects_poison,
        OFF,
        twin=into_buffer,
    ),
    make_liar(
        "copies_reference",
        "The reference is found among Python's objects by one row that is computed, and copied.",
        SQUARE,
        _copies_reference,
        OFF,
    ),
    make_liar(
        "returns_judges_memory",
        "The reference is found among Python's objects and returned.",
        SQUARE,
        _returns_judges_memory,
        "judge's own memory",
    ),
    make_liar(
        "asks_for_the_reference",
        "The judge's own objects are found among Python's, and asked for the reference.",
        SQUARE,
        _asks_for_the_reference,
        "read the judge's reference",
    ),
)
