from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from pytest_attnperf.correctness import poison
from pytest_attnperf.workloads.returned import named_outputs

ONE, TWO = torch.ones(2, 3), torch.zeros(4)


@dataclass
class Result:
    """A kernel's result with fields of its own."""

    out: torch.Tensor
    lse: torch.Tensor | None = None


Named = namedtuple("Named", "out state")


class ReturnsViews(torch.autograd.Function):
    """Returns two views of one tensor, as kernels with fused outputs do."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        """2 x, in halves."""
        both = x * 2
        return both[:2], both[2:]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Of both halves."""
        return 2 * torch.cat(gradients)


@pytest.mark.parametrize(
    ("returned", "names"),
    [
        (ONE, ["out"]),
        ((ONE, None, TWO), ["out0", "out2"]),
        ({"dq": ONE, "state": (ONE, TWO), "none": None}, ["dq", "state0", "state1"]),
        ({"state": {"k": ONE}}, ["state.k"]),
        (Result(ONE), ["out"]),
        (Result(ONE, TWO), ["out", "lse"]),
        (Named(ONE, TWO), ["out", "state"]),
        ((2.5, ONE), ["out0", "out1"]),
        (3, ["out"]),
        (None, []),
    ],
)
def test_results_are_named_whatever_holds_them(returned: Any, names: list[str]) -> None:
    """Tensors, sequences, dicts, dataclasses, named tuples, numbers and None, nested."""
    found = named_outputs(returned)
    assert list(found) == names
    assert all(type(tensor) is torch.Tensor for tensor in found.values())


def test_numbers_become_tensors() -> None:
    """A Python number is a tensor of its own kind: a bool is no integer."""
    found = named_outputs((2.5, 3, True))
    assert [(tensor.item(), tensor.dtype) for tensor in found.values()] == [
        (2.5, torch.float32),
        (3, torch.int64),
        (True, torch.bool),
    ]


def test_what_is_no_result_is_given_as_it_is() -> None:
    """A generator or a string is not turned into anything: the judge refuses it by name."""
    assert named_outputs("text") == {"out": "text"}


def test_views_of_an_autograd_function_can_be_written_and_read() -> None:
    """torch refuses to read such a view once its memory was written to; without its graph it is ordinary memory."""
    x = torch.randn(4, requires_grad=True)
    raw = ReturnsViews.apply(x)
    for tensor in poison.tensors_in(raw):
        poison.fill(tensor)
    with pytest.raises(RuntimeError, match="is a view and its base"):
        raw[0].clone()
    assert all(bool(tensor.clone().isnan().all()) for tensor in poison.tensors_in(raw))
    assert all(bool(tensor.isnan().all()) for tensor in named_outputs(raw).values())


def test_a_parameter_is_a_result() -> None:
    """A kernel may return a parameter that it has written; it is read as the tensor that it is."""
    (found,) = named_outputs(torch.nn.Parameter(ONE.clone())).values()
    assert type(found) is torch.Tensor
    assert not found.requires_grad
