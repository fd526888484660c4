from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kernels.triton.prefill.backend import TritonFlash
from pytest_attnperf.backends import (
    Around,
    Backend,
    Declares,
    Pinnable,
    Prepared,
    Registry,
    Tensors,
    replay_choice,
)
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo, Tolerance
from pytest_attnperf.workloads.softmax import Softmax

CPU = DeviceInfo("cpu", "cpu-x86_64", "test")


class Fixed:
    """A backend without choices: only what `pinned` looks at."""


class Choosing(Fixed):
    """One that chooses."""

    def __init__(self, chosen: str = "own") -> None:
        self.chosen = chosen

    def replay_config(self, config: Mapping[str, str]) -> Any:
        """Take what is stored."""
        return Choosing(config["chosen"])


def test_a_backend_with_a_choice_replays_it() -> None:
    """What has `pinned` is asked for itself with the stored configuration."""
    own: Any = Choosing()
    replayed: Any = replay_choice(own, {"chosen": "stored"})
    assert (own.chosen, replayed.chosen) == ("own", "stored")


def test_a_backend_without_a_choice_stays_as_it_is() -> None:
    """What makes no choice is given back unchanged."""
    fixed: Any = Fixed()
    assert replay_choice(fixed, {"chosen": "stored"}) is fixed


@dataclass(frozen=True)
class Least(Backend[Softmax]):
    """All that a backend must have."""

    families = ("softmax",)

    def prepare(self, workload: Softmax, inputs: Tensors) -> Prepared:
        """The inputs as they are."""
        return Prepared(lambda x: x, inputs, lambda new: new, lambda raw: {"out": raw})


class NoFamilies(Least):
    """Says of no op family that it implements it."""

    families = ()


class OneName(Least):
    """A name where a tuple of names belongs."""

    families = "softmax"  # type: ignore[assignment]


class Unprepared(Backend[Softmax]):
    """Implements nothing."""

    families = ("softmax",)


@dataclass(frozen=True)
class Named(Least):
    """Describes its workload."""

    cpu_flops_max: float = 7.0

    def unsupported_reasons(self, workload: Softmax, device: DeviceInfo) -> list[str]:
        """Names both arguments."""
        return [f"{workload.id} on {device.kind}"]


def test_the_least_backend_takes_every_workload_of_its_family_on_gpus() -> None:
    """Families and `prepare` are enough: no limits but that nothing is run on a CPU, and twice the plain error."""
    backend = Least("mine")
    assert (backend.cpu_flops_max, backend.times_on_cpu, backend.tolerance) == (0.0, True, Tolerance())
    assert backend.unsupported_reasons(Softmax(1, 8), CPU) == []
    registry = Registry()
    registry.add(backend)
    assert registry.for_family("softmax") == [backend]


@pytest.mark.parametrize(
    ("kind", "lacks"),
    [
        (NoFamilies, r"has families = \(\): name the op families that it implements as a tuple, e\.g\. families = \("),
        (OneName, r"has families = 'softmax': name the op families"),
        (Unprepared, r"has no prepare\(self, workload, inputs\): give one that returns a Prepared"),
    ],
)
def test_what_a_backend_lacks_is_said_with_the_place_of_its_class(kind: type[Backend], lacks: str) -> None:
    """File and line of the class, what it has, and what to write there."""
    lines = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.startswith(f"class {kind.__name__}("))
    with pytest.raises(UsageError, match=rf"test_backends\.py:{line}: class {kind.__name__} {lacks}"):
        Registry().add(kind("mine"))


def test_what_is_no_backend_is_said_with_the_place_of_its_class() -> None:
    """An object of another kind is refused where it is registered, not where it is used."""
    other: Any = Fixed()
    with pytest.raises(UsageError, match=r"test_backends\.py:\d+: class Fixed is no Backend: derive it from"):
        Registry().add(other)


def test_a_class_in_place_of_an_instance_is_refused() -> None:
    """Its own file and line are named, and what to write."""
    other: Any = Least
    said = r"test_backends\.py:\d+: class Least is registered as a class: register an instance with a name, e\.g\. Le"
    with pytest.raises(UsageError, match=said):
        Registry().add(other)


@pytest.mark.parametrize("name", ["kernels", "operators", "never"])
def test_a_text_in_place_of_a_tuple_declares_nothing(name: str) -> None:
    """Each of its letters would be a pattern, and match anything."""
    given: Any = {name: "aten::mul"}
    with pytest.raises(UsageError, match=rf"Declares\({name}='aten::mul'\): give a tuple .* {name}=\('aten::mul',\)"):
        Declares(**given)


def test_a_backend_of_an_unknown_family_is_refused() -> None:
    """No test asks for a family that nobody registered: its backend would be silently left out."""
    registry = Registry()
    registry.add(Least("mine"))
    registry.require_families({"softmax", "gemm"})
    with pytest.raises(UsageError, match=r"test_backends\.py:\d+: mine is of family 'softmax', .*; known: soft, gemm$"):
        registry.require_families({"soft", "gemm"})


def test_a_name_is_registered_once_and_takes_no_hyphen() -> None:
    """A test id joins backend and workload by a hyphen."""
    registry = Registry()
    registry.add(Least("mine"))
    with pytest.raises(UsageError, match="backend name 'mi-ne' is malformed"):
        registry.add(Least("mi-ne"))
    place = r"test_backends\.py:\d+: class "
    said = rf"{place}Least: backend 'mine' is registered twice; give one of them another name"
    with pytest.raises(UsageError, match=said):
        registry.add(Least("mine"))
    said = rf"{place}Least, and \S+{place}Named: backend 'mine' is registered twice; give one of them another name"
    with pytest.raises(UsageError, match=said):
        registry.add(Named("mine"))


def test_a_module_that_is_listed_twice_is_said() -> None:
    """Its backend is the same object: another name would not help."""
    registry, backend = Registry(), Least("mine")
    with pytest.raises(UsageError, match=r"py:\d+: class Least: backend 'mine' .*its module is listed twice; remove"):
        registry.add(backend, backend)


def test_a_backend_around_another_is_described_as_that_is() -> None:
    """Name, families, limits, budget and reasons are the other's, also of a changed copy."""
    other = Named("mine", times_on_cpu=False, tolerance=Tolerance(3.0, "a paper"))
    around = Around(other)
    for name in ("name", "families", "cpu_flops_max", "times_on_cpu", "tolerance"):
        assert getattr(around, name) == getattr(other, name)
    assert around.unsupported_reasons(Softmax(1, 8), CPU) == other.unsupported_reasons(Softmax(1, 8), CPU)
    assert replace(around, backend=replace(other, name="yours")).name == "yours"


def test_a_backend_of_ours_is_both() -> None:
    """What it is can be asked at run time."""
    backend = TritonFlash("triton.flash")
    assert isinstance(backend, Backend)
    assert isinstance(backend, Pinnable)
    assert not isinstance(Fixed(), Pinnable)
