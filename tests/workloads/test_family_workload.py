from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar

if TYPE_CHECKING:
    from pytest_attnperf.backends import Outputs, Tensors


@dataclass(frozen=True)
class Toy(FamilyWorkload):
    """A family with every kind of field."""

    grammar = Grammar(
        family="toy",
        numbers={"b": "batch", "n": "size", "m": "other", "w": "window"},
        required=("n",),
        flags=("cold",),
        dtypes=("f16", "bf16"),
        choices={"layout": ("nn", "nt")},
        same={"other": "size"},
        zeros=("window",),
        unsaid=("window", "cold"),
    )

    batch: int
    size: int
    other: int = 0
    window: int = 0
    dtype: str = "f16"
    layout: str = "nn"
    cold: bool = False

    flops = 0.0
    bytes_min = 0.0

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """None."""
        return ()

    def reference(self, inputs: Tensors) -> Outputs:
        """None."""
        return {}

    plain = reference


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("n=4", "toy-b1-n4-f16"),
        ("m=4,n=4,w=0,nn", "toy-b1-n4-f16"),
        ("cold,nt,bf16,w=3,m=5,n=4,b=2", "toy-b2-n4-m5-w3-bf16-nt-cold"),
    ],
)
def test_an_id_says_what_is_not_implied_and_parses_back(line: str, text: str) -> None:
    """Words for what a field stands for when it is left out are not in the id, however the line was written."""
    workload = Toy.parse_line(line)
    assert workload.id == text
    assert Toy.parse(text) == workload
    assert hash(Toy.parse(text)) == hash(workload)


def test_an_id_has_one_form() -> None:
    """An id with its words in another order is refused, with the one to write."""
    with pytest.raises(
        WorkloadError, match="toy workload id 'toy-n4-b1-f16' is not in its canonical form; write 'toy-b1-n4"
    ):
        Toy.parse("toy-n4-b1-f16")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("size", 0, "toy workload: size must be a positive integer, got 0"),
        ("other", -1, "toy workload: other must be a positive integer, got -1"),
        ("dtype", "f32", "toy workload: dtype 'f32' is not one of f16, bf16"),
    ],
)
def test_a_field_that_cannot_be_is_named(field: str, value: object, message: str) -> None:
    """Sizes that are not positive and dtypes that the family does not have are refused; a window of 0 is not."""
    with pytest.raises(WorkloadError, match=message):
        Toy(**{"batch": 1, "size": 4, field: value})


def test_a_definition_says_what_is_on() -> None:
    """Fields that go unsaid are in the definition only where they are on; all others always are."""
    always = {"family": "toy", "batch": 1, "size": 4, "other": 4, "dtype": "f16", "layout": "nn"}
    assert Toy(1, 4).definition() == always
    assert Toy(1, 4, window=2, cold=True).definition() == {**always, "window": 2, "cold": True}


def test_a_field_says_that_calls_are_timed_cold() -> None:
    """The cache state is the field's where a family has one."""
    assert [Toy(1, 4, cold=cold).cache_state for cold in (False, True)] == ["hot", "cold"]
