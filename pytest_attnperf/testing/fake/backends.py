"""Backends that exist by name only, for the fake device: one that can be pinned, and one that can be tuned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_attnperf.backends import Prepared, Tensors
from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.records import DeviceInfo, Tolerance
from pytest_attnperf.tuning_records import Candidate, TunedFile, TuningSpace, Value
from pytest_attnperf.workloads.base import Workload


@dataclass(frozen=True)
class FakeBackend:
    """A backend that exists by name only. `pin` is the stored configuration it was told to run with."""

    name: str
    families: frozenset[str] = frozenset({"prefill"})
    cpu_flops_max: float = float("inf")
    times_on_cpu: bool = True
    tolerance: Tolerance = field(default_factory=Tolerance)
    pin: tuple[tuple[str, str], ...] = ()

    def pinned(self, config: Mapping[str, str]) -> FakeBackend:
        """The same name with a configuration. Raises UsageError for one that says {'refuse': why}."""
        if "refuse" in config:
            raise UsageError(f"{self.name} cannot replay the stored configuration: {config['refuse']}")
        return replace(self, pin=tuple(sorted(config.items())))

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """The script answers instead."""
        return []

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """Never called: the fake subject computes nothing."""
        raise AssertionError("a fake backend is never prepared")


@dataclass(frozen=True)
class FakeTunableBackend(FakeBackend):
    """One that can be tuned. `space`: {'values': {'BLOCK_M': [32, 64]}, 'default': {'BLOCK_M': 32}, 'serves': [ids of
    workloads that the changed rule serves; all unless said], 'refuse': why there is none}.
    """

    space: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def tuning_space(
        self, workloads: Sequence[Workload], arch: str, *, kernel: str = "", when: Mapping[str, Value] | None = None
    ) -> TuningSpace:
        """As scripted."""
        if "refuse" in self.space:
            raise UsageError(str(self.space["refuse"]))
        values = {name: tuple(tried) for name, tried in self.space["values"].items()}
        return TuningSpace("fake_kernel", values, Candidate(self.space["default"]), serves="the only rule")

    def tuning_serves(
        self, workload: Workload, space: TuningSpace, arch: str, when: Mapping[str, Value] | None = None
    ) -> bool:
        """As scripted."""
        return workload.id in self.space.get("serves", [workload.id])

    def tuning_pin(self, candidate: Candidate, space: TuningSpace) -> dict[str, str]:
        """Its values as text."""
        return {name: str(value) for name, value in candidate.values.items()}

    def tuning_builds(
        self, candidate: Candidate, space: TuningSpace, workload: Workload, arch: str
    ) -> Sequence[KernelBuild]:
        """Nothing is compiled."""
        return ()

    def tuned_files(
        self,
        winner: Candidate,
        space: TuningSpace,
        workloads: Sequence[Workload],
        arch: str,
        *,
        source: str,
        when: Mapping[str, Value] | None = None,
    ) -> Sequence[TunedFile]:
        """One file that holds the winner."""
        text = json.dumps({"config": dict(winner.values), "source": source, "when": dict(when or {})})
        return (TunedFile(f"configs/{space.kernel}/{arch}.json", text, "the only rule changed"),)
