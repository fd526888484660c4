"""Lies that depend on being timed: a call that detects timing returns an old result."""

from __future__ import annotations

import gc
import sys
import time
from typing import TYPE_CHECKING

from pytest_attnperf.testing.liars.honest import prepare_attention
from pytest_attnperf.testing.liars.liar import make_liar
from pytest_attnperf.testing.liars.timing import LONG
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.testing.liars.liar import Kernel

SQUARE = Prefill(2, 48, 4, 32, kv_heads=2, causal=True)
HURRIED_SECONDS = 300e-6
CALLERS = ("_calls_us", "measure")


def _old_result_if(timed: Callable[[], bool]) -> Kernel:
    """Returns a kernel whose call returns a copy of its last result, without computing, where `timed()` is True."""

    def prepare_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
        honest, kept = prepare_attention(workload, inputs), list["torch.Tensor"]()

        def call(*qkv: torch.Tensor) -> torch.Tensor:
            if not timed() or not kept:
                kept[:] = [honest(*qkv)]
            return kept[0].clone()

        return call

    return prepare_kernel


def _is_called_by(*names: str) -> bool:
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name in names:
            return True
    return False


def _knows_the_rotation(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns a call that keeps its last result for as long as the sums of its inputs stay, and returns it whatever
    they are where it is timed on inputs that change."""
    honest, kept = prepare_attention(workload, inputs), dict[tuple[float, ...], "torch.Tensor"]()

    def call(*qkv: torch.Tensor) -> torch.Tensor:
        key = tuple(float(tensor.sum()) for tensor in qkv)
        if key not in kept and not (kept and _is_called_by("turn_and_run")):
            kept.clear()
            kept[key] = honest(*qkv)
        return next(iter(kept.values())).clone()

    return call


def _idle_in_a_hurry(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns a call that returns its last result again, without computing, if it starts less than 300 us after the end
    of the call before it."""
    honest, kept, ended = prepare_attention(workload, inputs), list["torch.Tensor"](), [0.0]

    def call(*qkv: torch.Tensor) -> torch.Tensor:
        if time.perf_counter() - ended[0] > HURRIED_SECONDS:
            kept[:] = [honest(*qkv)]
        out = kept[0].clone()
        ended[0] = time.perf_counter()
        return out

    return call


WATCHING = (
    make_liar(
        "knows_the_timer",
        "A call that finds a timer among its callers gives its last result again.",
        SQUARE,
        _old_result_if(lambda: _is_called_by(*CALLERS)),
        "inside a timed block",
        twin=_old_result_if(lambda: False),
        needs_cpu=True,
        needs_timing=True,
    ),
    make_liar(
        "knows_the_rotation",
        "A result is kept while inputs stay what they were; where they change before every call, the last is given.",
        LONG,
        _knows_the_rotation,
        "inside a timed block: .* whoever makes it",
        needs_cpu=True,
        needs_timing=True,
    ),
    make_liar(
        "watches_the_collector",
        "A call that finds Python's collector paused gives its last result again.",
        SQUARE,
        _old_result_if(lambda: not gc.isenabled()),
        "inside a timed block",
        twin=_old_result_if(lambda: False),
        needs_cpu=True,
        needs_timing=True,
    ),
    make_liar(
        "idle_in_a_hurry",
        "A call less than 300 us after the one before gives its last result again.",
        SQUARE,
        _idle_in_a_hurry,
        r"right after another|is off by",
        twin=_old_result_if(lambda: False),
        needs_cpu=True,
    ),
)
