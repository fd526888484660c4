from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from pytest_attnperf.correctness import poison
from pytest_attnperf.workloads.returned import name_outputs

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
    found = name_outputs(returned)
    assert list(found) == names
    assert all(type(tensor) is torch.Tensor for tensor in found.values())


class Lazy(dict[str, torch.Tensor]):
    """Gives something else than it holds."""

    def __getitem__(self, key: str) -> torch.Tensor:
        """Half of it."""
        return super().__getitem__(key) / 2

    def items(self) -> Any:
        """Likewise."""
        return {key: self[key] for key in self}.items()


class LazyRow(list[torch.Tensor]):
    """Gives other elements than it holds."""

    def __iter__(self) -> Any:
        """Half of each."""
        return iter([element / 2 for element in list.__iter__(self)])


@dataclass
class LazyResult:
    """A dataclass that computes in its access."""

    out: torch.Tensor

    def __getattribute__(self, name: str) -> Any:
        """Half of it."""
        found = object.__getattribute__(self, name)
        return found / 2 if name == "out" else found


class Computing(Mapping[str, torch.Tensor]):
    """A mapping that holds nothing and computes all."""

    def __getitem__(self, key: str) -> torch.Tensor:
        """Computed."""
        return ONE * 2

    def __iter__(self) -> Any:
        """One name."""
        return iter(["out"])

    def __len__(self) -> int:
        """One."""
        return 1


def test_parts_are_read_as_they_are_stored() -> None:
    """A subclass that computes where it is read gives what it holds; a mapping of another kind is no result."""
    assert torch.equal(name_outputs(Lazy(out=ONE))["out"], ONE)
    assert torch.equal(name_outputs(LazyRow([ONE]))["out0"], ONE)
    assert torch.equal(name_outputs(LazyResult(ONE))["out"], ONE)
    assert torch.equal(name_outputs(UserDict(out=ONE))["out"], ONE)
    assert type(name_outputs(Computing())["out"]) is Computing
    assert [list(poison.tensors_in(one)) for one in (Lazy(out=ONE), Computing())] == [[ONE], []]


def test_numbers_become_tensors() -> None:
    """A Python number is a tensor of its own kind: a bool is no integer."""
    found = name_outputs((2.5, 3, True))
    assert [(tensor.item(), tensor.dtype) for tensor in found.values()] == [
        (2.5, torch.float32),
        (3, torch.int64),
        (True, torch.bool),
    ]


def test_what_is_no_result_is_given_as_it_is() -> None:
    """A generator or a string is not turned into anything: the judge refuses it by name."""
    assert name_outputs("text") == {"out": "text"}


def test_views_of_an_autograd_function_can_be_written_and_read() -> None:
    """torch refuses to read such a view once its memory was written to; without its graph it is ordinary memory."""
    x = torch.randn(4, requires_grad=True)
    raw = ReturnsViews.apply(x)
    for tensor in poison.tensors_in(raw):
        poison.fill(tensor)
    with pytest.raises(RuntimeError, match="is a view and its base"):
        raw[0].clone()
    assert all(bool(tensor.clone().isnan().all()) for tensor in poison.tensors_in(raw))
    assert all(bool(tensor.isnan().all()) for tensor in name_outputs(raw).values())


def test_a_parameter_is_a_result() -> None:
    """A kernel may return a parameter that it has written; it is read as the tensor that it is."""
    (found,) = name_outputs(torch.nn.Parameter(ONE.clone())).values()
    assert type(found) is torch.Tensor
    assert not found.requires_grad
