from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kernels.aiter.backends import BACKENDS, MODULES, merge_by_name
from kernels.aiter.tuning import tunable_parts
from pytest_attnperf.backends import Backend, Registry
from pytest_attnperf.errors import UsageError


@dataclass(frozen=True)
class _Part(Backend):
    """Implements one family."""

    name: str = field(default="part", init=False)
    family: str = field(kw_only=True)

    @property
    def families(self) -> tuple[str, ...]:
        return (self.family,)

    def prepare(self, workload: Any, inputs: Any) -> Any:
        return None


def part(family: str) -> Backend:
    """A part for one family."""
    return _Part(family=family)


def test_parts_are_put_together_by_name() -> None:
    """One backend per name, in the order in which names come first, each with its families."""
    parts = [("ck", "prefill", part("prefill")), ("aiter.asm", "mla", part("mla")), ("ck", "decode", part("decode"))]
    made = merge_by_name(parts)
    assert [(one.name, sorted(one.families)) for one in made] == [("ck", ["decode", "prefill"]), ("aiter.asm", ["mla"])]


def test_two_parts_for_one_family_are_refused() -> None:
    """Which of them would run could not be told from the name."""
    with pytest.raises(UsageError, match=r"^backend 'ck' has two parts for family 'mla'; name one of them otherwise$"):
        merge_by_name([("ck", "mla", part("mla")), ("ck", "mla", part("mla"))])


def test_every_adapter_is_in() -> None:
    """Each part of each module, or its form that can be tuned, is what the backend of its name hands its family to."""
    registry = Registry()
    registry.add(*BACKENDS)
    for name, family, one in tunable_parts(part for module in MODULES for part in module.PARTS):
        assert cast("Any", registry.get(name)).get_part(family) == one


def test_none_is_offered_on_a_cpu() -> None:
    """aiter has nothing for a machine without an AMD GPU, so no CPU run takes its cases."""
    assert {one.cpu_flops_max for one in BACKENDS} == {0.0}
