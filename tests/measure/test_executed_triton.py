from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import TritonSource
from pytest_attnperf.measure.executed_triton import bind_arguments, list_differences, make_source


@dataclass(frozen=True)
class Parameter:
    """What Triton knows of an argument."""

    name: str
    is_constexpr: bool = False
    do_not_specialize: bool = False
    do_not_specialize_on_alignment: bool = False
    default: Any = inspect.Parameter.empty

    @property
    def has_default(self) -> bool:
        """Whether it may be left out."""
        return self.default is not inspect.Parameter.empty


def kernel(x_ptr: Any, lse_ptr: Any, count: Any, stride: Any, scale: Any, BLOCK: Any = 64) -> None:
    """A kernel's arguments."""


FUNCTION: Any = SimpleNamespace(
    fn=kernel,
    __name__="kernel",
    arg_names=list(inspect.signature(kernel).parameters),
    signature=inspect.signature(kernel),
    params=[
        Parameter("x_ptr"),
        Parameter("lse_ptr"),
        Parameter("count"),
        Parameter("stride"),
        Parameter("scale"),
        Parameter("BLOCK", is_constexpr=True, default=64),
    ],
)
X = torch.zeros(4, 32, dtype=torch.bfloat16)
GIVEN = TritonSource(
    __name__,
    "kernel",
    {"x_ptr": "*bf16", "lse_ptr": "*fp32", "count": "i32", "stride": "i32", "scale": "fp32"},
    {"BLOCK": 128},
    ("x_ptr", "count"),
    {"num_warps": 4},
)
"""A build that knows nothing of `stride`, and takes a pointer that a launch may leave out."""


def launched(x: Any = X, lse: Any = None, count: Any = 32, stride: Any = 1, scale: Any = 0.5, **more: Any) -> Any:
    """The bound launch, with the build's constants and options."""
    return bind_arguments(FUNCTION, (x, lse, count, stride), {"scale": scale, "BLOCK": 128, "num_warps": 4, **more})


def test_a_launch_becomes_what_triton_compiles_for_it() -> None:
    """None and 1 are constants, pointers carry their type, and 16 divides what it divides."""
    source = make_source(FUNCTION, launched())
    assert source.signature == {"x_ptr": "*bf16", "count": "i32", "scale": "fp32"}
    assert source.constants == {"lse_ptr": None, "stride": 1, "BLOCK": 128}
    assert source.divisible_by_16 == ["x_ptr", "count"]
    assert source.options == {"num_warps": 4}
    assert (source.module, source.function) == (__name__, "kernel")


@pytest.mark.parametrize(
    ("x", "divisible"), [(X, True), (X[1:], True), (X.flatten()[8:], True), (X.flatten()[4:], False), (X[:, 1:], False)]
)
def test_addresses_are_divisible_as_in_the_interpreter(x: torch.Tensor, divisible: bool) -> None:
    """By the distance from the beginning of the memory, which is aligned there."""
    assert ("x_ptr" in make_source(FUNCTION, launched(x)).divisible_by_16) == divisible


@pytest.mark.parametrize(
    ("value", "kind"), [(2**31, "i64"), (-(2**31), "i32"), (2**63, "u64"), (True, "i1"), (3, "i32"), (0, "i32")]
)
def test_numbers_have_the_narrowest_type(value: int, kind: str) -> None:
    """As Triton chooses it."""
    assert make_source(FUNCTION, launched(count=value)).signature["count"] == kind


def test_what_cannot_be_passed_is_refused() -> None:
    """A text is named with its argument."""
    with pytest.raises(UsageError, match="kernel: count is a str, which the interpreter of machine code cannot pass"):
        make_source(FUNCTION, launched(count="32"))


def test_an_object_serves_every_value_that_it_takes() -> None:
    """A stride of 1 and a pointer that is left out need no other object, nor does a pointer that is given."""
    for lse in (None, torch.zeros(16)):
        for stride in (1, 5, 16):
            assert list_differences(GIVEN, FUNCTION, launched(lse=lse, stride=stride)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"BLOCK": 64}, "BLOCK: 64 launched, 128 built"),
        ({"count": 33}, "count: 33 launched, divisible by 16 built"),
        ({"count": 2**35}, "count: 34359738368 launched, i32 built"),
        ({"x": X.half()}, "x_ptr: float16 (4, 32) launched, *bf16 built"),
        ({"x": X[:, 1:]}, "x_ptr: bfloat16 (4, 31) launched, divisible by 16 built"),
        ({"num_warps": 8}, "num_warps: 8 launched, 4 built"),
        ({"num_stages": 3}, "num_stages: 3 launched, None built"),
        ({"scale": 2}, "scale: 2 launched, fp32 built"),
    ],
)
def test_each_difference_is_named(changes: dict[str, Any], said: str) -> None:
    """With the value of the launch and that of the build."""
    assert list_differences(GIVEN, FUNCTION, launched(**changes)) == [said]


def test_constants_that_the_build_fixed() -> None:
    """A build without the pointer, or for a stride of 1, is not launched with one, or with another."""
    signature = {name: kind for name, kind in GIVEN.signature.items() if name not in ("lse_ptr", "stride")}
    narrow = replace(GIVEN, signature=signature, constants={"BLOCK": 128, "lse_ptr": None, "stride": 1})
    assert list_differences(narrow, FUNCTION, launched()) == []
    assert list_differences(narrow, FUNCTION, launched(lse=torch.zeros(16), stride=5)) == [
        "lse_ptr: float32 (16,) launched, None built",
        "stride: 5 launched, 1 built",
    ]
