"""Bringing inputs into a layout may rearrange them, never compute with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Declares, Prepared
from pytest_attnperf.correctness.early_work import Decoys

GENERATOR = torch.Generator().manual_seed(1)
Q, K, V = (torch.randn(2, 16, heads, 32, generator=GENERATOR) for heads in (4, 2, 2))
TABLE = torch.arange(32, dtype=torch.int32).reshape(2, 16)
SCALE = torch.tensor([0.25])
INPUTS = (Q, K, V, TABLE, SCALE)


def problems(convert: Callable[[Any], Any], family: str = "prefill", **declared: bool) -> list[str]:
    """What is said of a backend that converts so."""
    own = tuple(tensor.clone() for tensor in convert(INPUTS))
    prepared = Prepared(lambda *_: None, own, convert, lambda raw: raw, declares=Declares(**declared))  # type: ignore[arg-type]
    return Decoys(prepared, family, lambda: None).convert(INPUTS)


def scaled(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """8-bit values and the scale that the largest of them gives."""
    scale = tensor.abs().max() / 127
    return (tensor / scale).round().to(torch.int8), scale.reshape(1)


HONEST: dict[str, Callable[[Any], Any]] = {
    "as they are": lambda given: given,
    "heads first": lambda given: tuple(t.transpose(1, 2).contiguous() for t in given[:3]),
    "packed": lambda given: (torch.cat(given[:3], 2), given[3]),
    "stacked and padded": lambda given: (given[0], torch.nn.functional.pad(torch.stack(given[1:3]), (0, 32))),
    "another dtype": lambda given: tuple(t.bfloat16() for t in given[:3]),
    "key heads repeated": lambda given: (given[0], *(t.repeat_interleave(2, 2) for t in given[1:3])),
    "quantised": lambda given: (given[0], *scaled(given[1]), *scaled(given[2])),
    "dequantised": lambda given: (given[0], given[1] * given[4], given[2] * given[4]),
    "pages found": lambda given: (*given[:3], (given[3] * 16).flatten()),
}


@pytest.mark.parametrize("convert", HONEST.values(), ids=HONEST)
def test_layouts_are_allowed(convert: Callable[[Any], Any]) -> None:
    """Elements may move, be repeated, padded, cast, and scaled by the largest of their tensor."""
    assert problems(convert) == []


WORKING: dict[str, Callable[[Any], Any]] = {
    "scores": lambda given: (torch.einsum("bqhd,bkhd->bqhk", given[0], given[1].repeat_interleave(2, 2)), given[2]),
    "softmax": lambda given: (given[0].softmax(-1), given[1], given[2]),
    "norm": lambda given: (given[0], torch.nn.functional.rms_norm(given[1], (32,)), given[2]),
    "prefix sum": lambda given: (given[0], given[1], given[2].cumsum(1)),
    "product of elements": lambda given: (given[0], given[1] * given[2]),
}


@pytest.mark.parametrize("convert", WORKING.values(), ids=WORKING)
def test_work_is_not(convert: Callable[[Any], Any]) -> None:
    """What spreads an element, or makes one of two inputs, is named as work that nobody times."""
    (found,) = problems(convert)
    assert found.startswith("work is done before the call: ")
    assert "`Prepared.convert` may move, pad, pack and cast elements only" in found


def test_a_backward_pass_may_run_its_own_forward_pass_before() -> None:
    """Where it says so: libraries keep state of their own between the two. No other op family may."""
    softmax = WORKING["softmax"]
    assert problems(softmax, "backward", own_forward=True) == []
    assert problems(softmax, "backward") != []
    assert problems(softmax, "prefill", own_forward=True) != []


def test_what_convert_keeps_is_of_other_inputs_by_the_time_of_a_call() -> None:
    """Before every check other inputs are converted, behind those that are loaded; a backend without a layout is left
    alone."""
    seen: list[torch.Tensor] = []

    def convert(inputs: Any) -> Any:
        seen.append(inputs[0].clone())
        return tuple(tensor.clone() for tensor in inputs)

    decoys = Decoys(Prepared(lambda *_: None, INPUTS, convert, lambda raw: raw), "prefill", lambda: None)
    for _ in range(2):
        decoys.convert(INPUTS)
        assert not torch.equal(seen[-1], Q)
    assert decoys.seconds is not None
    calls = len(seen)

    def as_given(inputs: Any) -> Any:
        seen.append(Q)
        return inputs

    plain = Decoys(Prepared(lambda *_: None, INPUTS, as_given, lambda raw: raw), "prefill", lambda: None)
    for _ in range(3):
        plain.convert(INPUTS)
    assert (len(seen) - calls, plain.seconds) == (1, None)
