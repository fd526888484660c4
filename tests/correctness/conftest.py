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
from pytest_attnperf.testing.liars.honest import attend
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


@pytest.fixture(scope="session")
def honest() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """The honest kernel, with its ways to be wrong."""
    return attend
