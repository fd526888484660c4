from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernels.aiter.by_family import ByFamily, by_family, merge_tolerances
from pytest_attnperf.backends import Backend, Pinnable, Registry
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo, Tolerance
from pytest_attnperf.tuning_records import Candidate, Tunable, TuningSpace

ROCM = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
GRADIENTS = Tolerance(source="aiter's own tests", outputs=(("dk", 10.0), ("dq", 10.0)))


@dataclass(frozen=True)
class _Part(Backend):
    """Implements one family, and says which it was."""

    name: str = field(default="part", init=False)
    cpu_flops_max: float = field(default=0.0, kw_only=True)
    times_on_cpu: bool = field(default=True, kw_only=True)
    tolerance: Tolerance = field(default_factory=Tolerance, kw_only=True)
    family: str

    @property
    def families(self) -> tuple[str, ...]:
        return (self.family,)

    def unsupported_reasons(self, workload: Any, device: DeviceInfo) -> list[str]:
        return [f"{self.family} on {device.arch}"]

    def prepare(self, workload: Any, inputs: Any) -> Any:
        return (self.family, inputs)


@dataclass(frozen=True)
class _Choosing(_Part):
    """Chooses block sizes by itself; takes only its own family's configuration."""

    config: Mapping[str, str] = field(default_factory=dict)

    def replay_config(self, config: Mapping[str, str]) -> Backend:
        if config.get("for") != self.family:
            raise UsageError(f"no BLOCK_M in a configuration of {config.get('for')}")
        return _Choosing(self.family, config=config)


@dataclass(frozen=True)
class _Searched(_Choosing):
    """Can be tuned; every method tells that it was asked."""

    def tuning_space(self, workloads: Any, arch: str, *, kernel: str = "", when: Any = None) -> Any:
        return ("space", self.family, arch, kernel, when)

    def tuning_serves(self, workload: Any, space: Any, arch: str, when: Any = None) -> bool:
        return True

    def tuning_pin(self, candidate: Candidate, space: TuningSpace) -> dict[str, str]:
        return {"for": self.family, "pinned": candidate.id}

    def tuning_builds(self, candidate: Any, space: Any, workload: Any, arch: str) -> Any:
        return ("builds", self.family)

    def tuned_files(self, winner: Any, space: Any, workloads: Any, arch: str, *, source: str, when: Any = None) -> Any:
        return ("files", self.family, source)


def workload(family: str) -> Any:
    """As much of a workload as a backend made of parts looks at."""
    return SimpleNamespace(family=family)


def test_every_workload_goes_to_its_familys_part() -> None:
    """Reasons and preparation are the part's; it is a backend like any other, and is registered once."""
    ck = by_family("ck", {"prefill": _Part("prefill"), "decode": _Part("decode")})
    assert isinstance(ck, Backend)
    assert ck.families == ("prefill", "decode")
    assert ck.unsupported_reasons(workload("decode"), ROCM) == ["decode on gfx942"]
    assert cast("Any", ck.prepare(workload("prefill"), cast("Any", "inputs"))) == ("prefill", "inputs")
    registry = Registry()
    registry.add(ck)
    assert registry.for_family("decode") == [ck]
    with pytest.raises(UsageError, match=r"^backend 'ck' has nothing for family 'rope'; it has decode, prefill$"):
        ck.unsupported_reasons(workload("rope"), ROCM)


def test_limits_are_those_of_all_parts() -> None:
    """No part is given more on a CPU than it takes, and a time says something only if every part's does."""
    parts = {
        "prefill": _Part("prefill", cpu_flops_max=5e7),
        "decode": _Part("decode", cpu_flops_max=1e6, times_on_cpu=False),
    }
    ck = by_family("ck", parts)
    assert (ck.cpu_flops_max, ck.times_on_cpu) == (1e6, False)


def test_a_part_of_another_family_is_refused() -> None:
    """A part must implement the family that it stands for, and there must be one."""
    with pytest.raises(
        UsageError, match=r"^backend 'ck': the part for 'decode' must implement it, but implements prefill$"
    ):
        by_family("ck", {"decode": _Part("prefill")})
    with pytest.raises(UsageError, match=r"^backend 'ck' has no parts; give one per op family$"):
        by_family("ck", {})


def test_gradients_may_have_their_own_tolerance() -> None:
    """A wide budget for outputs that only one part has does not widen the others'."""
    ck = by_family("ck", {"prefill": _Part("prefill"), "backward": _Part("backward", tolerance=GRADIENTS)})
    assert [ck.tolerance.for_output(name) for name in ("out", "lse", "dq", "dk")] == [2.0, 2.0, 10.0, 10.0]
    assert ck.tolerance.source == "aiter's own tests"


def test_of_what_parts_share_the_strictest_holds() -> None:
    """A part with a wide budget for everything does not lend it to its neighbours."""
    wide = Tolerance(8.0, "fp8 tests", (("out", 9.0), ("dq", 4.0)))
    merged = merge_tolerances([wide, GRADIENTS])
    assert (merged.multiplier, merged.outputs) == (2.0, (("dk", 10.0), ("dq", 4.0), ("out", 9.0)))
    assert merged.source == "fp8 tests; aiter's own tests"


def test_only_what_parts_offer_is_offered() -> None:
    """A backend without choices is not Pinnable, one without a space not Tunable."""
    plain = by_family("a", {"prefill": _Part("prefill")})
    choosing = by_family("a", {"prefill": _Choosing("prefill"), "rope": _Part("rope")})
    searched = by_family("a", {"prefill": _Searched("prefill"), "rope": _Part("rope")})
    assert [isinstance(one, Pinnable) for one in (plain, choosing, searched)] == [False, True, True]
    assert [isinstance(one, Tunable) for one in (plain, choosing, searched)] == [False, False, True]


def test_a_stored_configuration_goes_to_the_part_that_takes_it() -> None:
    """The part of that family replays it; one that cannot says so when it is prepared, and no other is concerned."""
    parts = {"prefill": _Choosing("prefill"), "varlen": _Choosing("varlen"), "rope": _Part("rope")}
    backend = cast("Any", by_family("aiter.triton", parts))
    pinned = backend.replay_config({"for": "varlen", "BLOCK_M": "64"})
    assert isinstance(pinned, ByFamily)
    assert cast("_Choosing", pinned.get_part("varlen")).config == {"for": "varlen", "BLOCK_M": "64"}
    assert cast("_Choosing", pinned.get_part("prefill")).config == {}
    other = backend.replay_config({"for": "mla"})
    with pytest.raises(UsageError, match=r"^no BLOCK_M in a configuration of mla"):
        other.prepare(workload("prefill"), ())
    assert other.prepare(workload("rope"), ()) == backend.prepare(workload("rope"), ())


def test_tuning_is_the_parts() -> None:
    """Space, builds and files are asked of the family's part; a family without one says which can be tuned."""
    parts = {"rope": _Part("rope"), "prefill": _Searched("prefill")}
    backend = cast("Any", by_family("aiter.triton", parts))
    one, space = workload("prefill"), cast("TuningSpace", None)
    assert backend.tuning_space([one], "gfx942", kernel="k") == ("space", "prefill", "gfx942", "k", None)
    assert backend.tuning_builds(None, space, one, "gfx942") == ("builds", "prefill")
    assert backend.tuned_files(None, space, [one], "gfx942", source="here") == ("files", "prefill", "here")
    assert backend.tuning_pin(Candidate({"BLOCK_M": 64}), space) == {"for": "prefill", "pinned": "BLOCK_M=64"}
    assert backend.tuning_serves(one, space, "gfx942") is True
    assert backend.tuning_serves(workload("rope"), space, "gfx942") is False
    with pytest.raises(UsageError, match=r"^aiter.triton cannot be tuned for rope; it can for prefill$"):
        backend.tuning_space([workload("rope")], "gfx942")
    with pytest.raises(UsageError, match=r"takes workloads of one family, got prefill, rope$"):
        backend.tuning_space([one, workload("rope")], "gfx942")
