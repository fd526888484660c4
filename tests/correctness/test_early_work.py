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


def grouped(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """8-bit values in groups of 32, each with the scale and the offset of its smallest and largest."""
    low, high = tensor.amin(-1, keepdim=True), tensor.amax(-1, keepdim=True)
    scale = (high - low) / 255
    return ((tensor - low) / scale).round().to(torch.uint8), scale, low


HONEST: dict[str, Callable[[Any], Any]] = {
    "as they are": lambda given: given,
    "heads first": lambda given: tuple(t.transpose(1, 2).contiguous() for t in given[:3]),
    "packed": lambda given: (torch.cat(given[:3], 2), given[3]),
    "stacked and padded": lambda given: (given[0], torch.nn.functional.pad(torch.stack(given[1:3]), (0, 32))),
    "another dtype": lambda given: tuple(t.bfloat16() for t in given[:3]),
    "key heads repeated": lambda given: (given[0], *(t.repeat_interleave(2, 2) for t in given[1:3])),
    "quantised": lambda given: (given[0], *scaled(given[1]), *scaled(given[2])),
    "dequantised": lambda given: (given[0], given[1] * given[4], given[2] * given[4]),
    "of another precision": lambda given: tuple(t.half().float() for t in given[:3]),
    "scaled and shifted": lambda given: tuple((t * 0.1768 + 3.0).bfloat16() for t in given[:3]),
    "quantised in bf16": lambda given: (
        *(scaled(t)[0].bfloat16() for t in given[:3]),
        *(scaled(t)[1] for t in given[:3]),
    ),
    "with the scale's inverse": lambda given: (given[0], scaled(given[1])[0], 1 / scaled(given[1])[1]),
    "rounded to steps": lambda given: tuple((t * 20).round() / 20 for t in given[:3]),
    "rounded to fp8": lambda given: tuple(t.to(torch.float8_e4m3fn).bfloat16() for t in given[:3]),
    "in groups with offsets": lambda given: grouped(given[0]),
    "packed as integers": lambda given: (given[0].bfloat16().view(torch.int16), given[1], given[2]),
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
    "exp": lambda given: (given[0].double().exp(), given[1], given[2]),
    "exp in bf16": lambda given: (given[0].bfloat16().exp(), given[1], given[2]),
    "square": lambda given: (given[0], given[1].square(), given[2]),
    "silu": lambda given: (given[0], given[1], torch.nn.functional.silu(given[2])),
    "exp of one head": lambda given: (torch.cat([given[0][:, :, :1].exp(), given[0][:, :, 1:]], 2), *given[1:3]),
}


@pytest.mark.parametrize("convert", WORKING.values(), ids=WORKING)
def test_work_is_not(convert: Callable[[Any], Any]) -> None:
    """What spreads an element, or makes one of two inputs, is named as work that nobody times."""
    (found,) = problems(convert)
    assert found.startswith("work is done before the call: ")
    assert "`Prepared.convert` may move, pad, pack and cast elements only" in found


GRADIENT = torch.randn(2, 16, 4, 32, generator=GENERATOR)
BACKWARD_INPUTS = (Q, K, V, GRADIENT)


def own_forward(given: Any) -> tuple[torch.Tensor, ...]:
    """Scores and their log-sum-exp, which do not come out the same twice, in memory that is written in part."""
    q, k, v, dout = given
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k.repeat_interleave(2, 2))
    padded = torch.full((2, 4, 32), float(torch.randn(())))
    padded[..., :16] = scores.logsumexp(-1) * (1 + 1e-6 * torch.randn(2, 4, 16))
    return q, k, v, dout.transpose(1, 2).contiguous(), scores, padded


def delta(given: Any) -> tuple[torch.Tensor, ...]:
    """As the own forward pass, and the first step of the backward pass."""
    passed = own_forward(given)
    return *passed, (given[0] * given[3]).sum(-1)


def own_problems(convert: Callable[[Any], Any]) -> list[str]:
    """What is said of a backward pass that runs a forward pass of its own and converts so."""
    own = tuple(tensor.clone() for tensor in convert(BACKWARD_INPUTS))
    prepared = Prepared(lambda *_: None, own, convert, lambda raw: raw, declares=Declares(own_forward=True))
    return Decoys(prepared, "backward", lambda: None).convert(BACKWARD_INPUTS)


def test_no_forward_pass_knows_the_incoming_gradient() -> None:
    """A forward pass of the backend's own may leave what it wants, also where it is not the same twice; the incoming
    gradient is brought into a layout only, and meets no other input."""
    assert [found for _ in range(20) for found in own_problems(own_forward)] == []
    (found,) = own_problems(lambda given: (*given[:3], delta(given)[-1] * (1 + 1e-4 * torch.randn(2, 16, 4))))
    assert "depend on input 3 and on another input" in found
    (found,) = own_problems(delta)
    assert "depend on input 3 and on another input" in found
    (found,) = own_problems(lambda given: (*given[:3], given[3].cumsum(1)))
    assert "one element of input 3 reaches" in found
    (found,) = own_problems(lambda given: (*given[:3], given[3].tanh()))
    assert "are not proportional to input 3" in found


def test_a_layout_in_memory_of_its_own_is_looked_at_too() -> None:
    """What a backend converts into its own tensors is as it was loaded afterwards."""
    own = tuple(tensor.clone() for tensor in (Q, K, V))

    def into(work: Callable[[torch.Tensor], torch.Tensor]) -> list[str]:
        def convert(given: Any) -> Any:
            for kept, one in zip(own, given, strict=False):
                kept.copy_(work(one))
            return own

        convert(INPUTS)
        before = tuple(tensor.clone() for tensor in own)
        found = Decoys(Prepared(lambda *_: None, own, convert, lambda raw: raw), "prefill", lambda: None).convert(
            INPUTS
        )
        assert all(map(torch.equal, own, before))
        return found

    assert into(lambda one: one) == []
    assert into(lambda one: one.softmax(-1)) != []


def test_a_backward_pass_may_run_its_own_forward_pass_before() -> None:
    """Where it says so: libraries keep state of their own between the two. No other op family may."""
    softmax = WORKING["softmax"]
    assert own_problems(lambda given: (*softmax(given), given[3])) == []
    assert problems(softmax, "backward") != []
    assert problems(softmax, "prefill", own_forward=True) != []


def test_what_convert_keeps_is_of_other_inputs_by_the_time_of_a_call() -> None:
    """Before every check other inputs are converted, behind those that are loaded, also where there is no layout; how
    long that takes is then no matter."""
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
        seen.append(inputs[0])
        return inputs

    plain = Decoys(Prepared(lambda *_: None, INPUTS, as_given, lambda raw: raw), "prefill", lambda: None)
    for _ in range(3):
        plain.convert(INPUTS)
        assert not torch.equal(seen[-1], Q)
    assert (len(seen) - calls, plain.seconds) == (4, None)
