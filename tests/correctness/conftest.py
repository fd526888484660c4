"""Attention backends made of a function, and the judge's word on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Outputs, Prepared
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import CheckReport, Tolerance
from pytest_attnperf.workloads.base import Workload

Judged = Callable[..., list[CheckReport]]


def take_outputs(raw: Any) -> Outputs:
    """A tensor is 'out'; (out, lse) are both; a dict names its own."""
    if isinstance(raw, dict):
        return raw
    return {"out": raw[0], "lse": raw[1]} if isinstance(raw, tuple) else {"out": raw}


def prepare(workload: Workload, call: Callable[..., Any], **changed: Any) -> Prepared:
    """A backend whose layout is the canonical one; `changed` replaces fields."""
    inputs = workload.make_inputs(0, "cpu", planted=False)
    fields: dict[str, Any] = {
        "call": call,
        "tensors": tuple(tensor.clone() for tensor in inputs),
        "convert": lambda tensors: tensors,
        "outputs": take_outputs,
    }
    return Prepared(**{**fields, **changed})


@pytest.fixture(scope="session")
def references() -> References:
    """Shared by a whole test run, as by a worker's backends."""
    return References()


@pytest.fixture
def judged(references: References) -> Judged:
    """`judged(workload, call)`: reports of the timed inputs, then of planted inputs of two more seeds."""

    def judge(workload: Workload, call: Callable[..., Any], **changed: Any) -> list[CheckReport]:
        prepared = prepare(workload, call, **changed)
        one = Judge(prepared, workload, references=references, tolerance=Tolerance(), device="cpu")
        return [
            one.check_call(check, prepared.run, seed=seed, planted=planted)
            for check, seed, planted in (
                ("timed inputs", 11, False),
                ("planted inputs", 12, True),
                ("last call", 13, True),
            )
        ]

    return judge


@pytest.fixture
def make_judge(references: References) -> Callable[..., tuple[Judge, Prepared]]:
    """`make_judge(workload, call)`: the judge and what it judges."""

    def make(workload: Workload, call: Callable[..., Any], **changed: Any) -> tuple[Judge, Prepared]:
        prepared = prepare(workload, call, **changed)
        return Judge(prepared, workload, references=references, tolerance=Tolerance(), device="cpu"), prepared

    return make


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    diagonal: int | None = None,
    scale: float | None = None,
    hide_last_keys: int = 0,
    key_head: Callable[[int, int], int] = lambda head, group: head // group,
) -> tuple[torch.Tensor, torch.Tensor]:
    """An honest kernel: scores and softmax in fp32, weights and result in the input type; (out, lse).

    The arguments are the ways to be wrong:
    diagonal          row i sees key j iff j <= i + diagonal; Skv - Sq unless given
    scale             1 / sqrt(D) unless given
    hide_last_keys    this many keys at the end are not seen
    key_head          which key head a query head reads, of (head, group)
    """
    (_, rows, heads, head_dim), keys = q.shape, k.shape[1]
    chosen = [key_head(head, heads // k.shape[2]) for head in range(heads)]
    scores = torch.einsum("bihd,bjhd->bhij", q.float(), k[:, :, chosen].float())
    scores = scores * (head_dim**-0.5 if scale is None else scale)
    seen = torch.arange(keys)[None, :] < keys - hide_last_keys
    if causal:
        shift = keys - rows if diagonal is None else diagonal
        seen = seen & (torch.arange(keys)[None, :] <= torch.arange(rows)[:, None] + shift)
    scores = scores.masked_fill(~seen, float("-inf"))
    weights = torch.softmax(scores, -1).to(q.dtype)
    out = torch.einsum("bhij,bjhd->bihd", weights.float(), v[:, :, chosen].float())
    return out.to(q.dtype), torch.logsumexp(scores, -1)


@pytest.fixture(scope="session")
def honest() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """The honest kernel, with its ways to be wrong."""
    return attend
