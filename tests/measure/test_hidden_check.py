"""One block of each process is judged, and runs like all others."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from pytest_attnperf.measure.hidden_check import INSIDE
from pytest_attnperf.measure.proving import TimedWrongError
from pytest_attnperf.measure.seeds import Seeds, timed_seed
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo, NotProvenRightError, Tolerance
from pytest_attnperf.testing.liars.liar import OneWorkload
from pytest_attnperf.workloads.prefill import Prefill

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test")
SMALL = Prefill(1, 16, 2, 32, causal=True)
Kernel = Callable[..., Callable[..., torch.Tensor]]


def attention(*_: Any) -> Callable[..., torch.Tensor]:
    """torch's own."""

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        heads_first = (tensor.transpose(1, 2) for tensor in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)

    return call


@contextmanager
def checked(kernel: Kernel) -> Iterator[TorchSubject]:
    """A case of SMALL that has passed its check."""
    seeds = Seeds(timed_seed(SMALL), 7, 8)
    backend = OneWorkload("test.one", SMALL, kernel, tolerance=Tolerance(4.0, "the test's own"))
    subject = TorchSubject(backend, SMALL, CPU, seeds)
    subject.prepare()
    report = subject.check()
    assert report.right, report.problems
    yield subject


def timed(subject: TorchSubject, how: str) -> None:
    """Time it alone, or in turns with another."""
    if how == "blocks":
        subject.blocks(7, 200.0, 1e9)
        return
    subject.turns(200.0)
    for _ in range(4):
        subject.turn(0)


@pytest.mark.parametrize("how", ["blocks", "turns"])
def test_what_gives_an_old_result_in_a_block_is_incorrect(how: str) -> None:
    """A call that sees that Python's collector is paused, as it is in blocks only, is not timed."""

    def kernel(*_: Any) -> Callable[..., torch.Tensor]:
        honest, kept = attention(), list[torch.Tensor]()

        def call(*qkv: torch.Tensor) -> torch.Tensor:
            if gc.isenabled() or not kept:
                kept[:] = [honest(*qkv)]
            return kept[0].clone()

        return call

    with checked(kernel) as subject:
        with pytest.raises(TimedWrongError) as raised:
            timed(subject, how)
        assert raised.value.report.problems[0].startswith(f"{INSIDE}: 'out' is off by")
        with pytest.raises(NotProvenRightError):
            subject.blocks(7, 200.0, 1e9)


@pytest.mark.parametrize("how", ["blocks", "turns"])
def test_the_judged_block_is_made_as_all_others_are(how: str) -> None:
    """Same callers at the same lines, same state of the collector; and its check is part of the report's cost."""
    seen: dict[tuple[Any, ...], int] = {}
    inputs: set[float] = set()

    def kernel(*_: Any) -> Callable[..., torch.Tensor]:
        honest = attention()

        def call(*qkv: torch.Tensor) -> torch.Tensor:
            frames, frame = [], sys._getframe()
            while frame is not None:
                frames.append((frame.f_code.co_name, frame.f_lineno))
                frame = frame.f_back  # type: ignore[assignment]
            names = [name for name, _ in frames]
            if "sample" in names:
                place = (gc.isenabled(), *frames[: names.index("sample") + 3])
                seen[place] = seen.get(place, 0) + 1
                inputs.add(float(qkv[0].float().sum()))
            return honest(*qkv)

        return call

    with checked(kernel) as subject:
        before = subject._prover.cost.seconds
        timed(subject, how)
        assert len(inputs) == 2
        assert len(seen) == 4  # blocks that are measured and not, and the last call of each
        assert subject._prover.cost.seconds > before
        assert all(map(torch.equal, subject._ready.tensors, SMALL.make_inputs(timed_seed(SMALL), "cpu", planted=False)))
        assert subject.finish().check.right
