"""Mixin for backends with kernels configured from data files: chosen by problem, recorded, replayed, tuned."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kernels import tuning
from kernels.configs import ConfigChoice, Problem, Space
from pytest_attnperf.backends import Backend
from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.tuning_records import Candidate, TunedFile, TuningSpace, Value

if TYPE_CHECKING:
    from typing_extensions import Self

    from kernels.tuning_spaces.declared import Declared
    from pytest_attnperf.kernel_builds import KernelBuild
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.records.tuned_tables import TableEntry
    from pytest_attnperf.workloads.base import Workload


@dataclass(frozen=True)
class Configured(abc.ABC):
    """Mixin for a backend with kernels configured from data files. It can be pinned to a stored configuration, and is
    `Tunable` where a kernel declares a space (`kernels.tuning_spaces`).

    pinned_choices    kernel -> the configuration that replaces the data files' choice
    alternative       name of the alternative in the data files that is used instead of their rules; '' for the rules
    """

    pinned_choices: Mapping[str, ConfigChoice] = field(default_factory=dict, compare=False, kw_only=True)
    alternative: str = field(default="", kw_only=True)

    @property
    @abc.abstractmethod
    def spaces(self) -> tuple[Space, ...]:
        """The configuration space of each kernel of this backend."""

    def replay_config(self, config: Mapping[str, str]) -> Self:
        """Returns a copy of this backend whose kernels are pinned to the constants and options in a stored
        `Prepared.config`. Raises UsageError if it holds none of the kernels, or lacks a value of one."""
        prefixes = {space: self._name_prefix(space) for space in self.spaces}
        used = [s for s, prefix in prefixes.items() if any(name.startswith(prefix) for name in config) or not prefix]
        if not used:
            raise UsageError(
                f"the stored configuration holds none of the kernels {', '.join(s.kernel for s in prefixes)}; it has "
                f"{', '.join(sorted(config)) or 'nothing'}; record the baseline again, or run without "
                "--attnperf-pin-config"
            )
        return replace(self, pinned_choices={s.kernel: s.read_choice(config, prefixes[s]) for s in used})

    def with_choice(self, kernel: str, choice: ConfigChoice) -> Self:
        """Returns a copy of this backend with `kernel` pinned to `choice`; other pinned kernels stay so. Raises
        UsageError for an unknown kernel."""
        names = [space.kernel for space in self.spaces]
        if kernel not in names:
            raise UsageError(f"{type(self).__name__} has no kernel {kernel!r}; it has {', '.join(names)}")
        return replace(self, pinned_choices={**self.pinned_choices, kernel: choice})

    def choose(self, space: Space, arch: str, problem: Problem) -> ConfigChoice:
        """Returns the configuration that the kernel of `space` is pinned to; if there is none, the one that the data
        files have for this problem, by their rules or by the chosen alternative. Raises KernelConfigError if they have
        none."""
        if pinned := self.pinned_choices.get(space.kernel):
            return pinned
        if self.alternative:
            return space.choose_alternative(self.alternative, arch, problem)
        return space.choose(arch, problem)

    def alternative_reasons(self, arch: str, space: Space, problem: Problem) -> list[str]:
        """Returns why the chosen alternative cannot be used on `arch` for the problem; empty if it can, or if none was
        chosen or a configuration is pinned."""
        if not self.alternative or space.kernel in self.pinned_choices:
            return []
        if self.alternative in space.find_alternatives(arch, problem):
            return []
        return [f"{space.kernel} has no configuration {self.alternative!r} for {arch} and this problem"]

    def config_entries(self, choices: Mapping[str, ConfigChoice]) -> dict[str, str]:
        """Returns the choices, kernel -> choice, as texts for `Prepared.config`. Names begin with 'kernel.' if the
        backend has several kernels. `replay_config` reads them back."""
        return {
            name: text
            for space in self.spaces
            if space.kernel in choices
            for name, text in choices[space.kernel].config_entries(self._name_prefix(space)).items()
        }

    def tuning_space(
        self, workloads: Sequence[Workload], arch: str, *, kernel: str = "", when: Mapping[str, Value] | None = None
    ) -> TuningSpace:
        """Returns the values to try for `kernel` ('' for the first that can be tuned), their constraints, and the rule
        that serves all `workloads`; `when` narrows it. Raises UsageError as `Tunable` states."""
        return tuning.tuning_space(self._get_declared(kernel), workloads, arch, when)

    def tuning_serves(
        self, workload: Workload, space: TuningSpace, arch: str, when: Mapping[str, Value] | None = None
    ) -> bool:
        """Returns whether the rule that a winner of this tuning space would change or add serves `workload` too."""
        return tuning.has_same_rule(self._get_declared(space.kernel), workload, space, arch, when)

    def tuning_pin(self, candidate: Candidate, space: TuningSpace) -> dict[str, str]:
        """Returns the entries of a stored configuration with which `replay_config` runs this candidate."""
        return tuning.pin_candidate(candidate, self._name_prefix(self._get_declared(space.kernel).space))

    def tuning_builds(
        self, candidate: Candidate, space: TuningSpace, workload: Workload, arch: str
    ) -> Sequence[KernelBuild]:
        """Returns what is compiled for the workload with the candidate's values; empty if that needs a GPU."""
        return tuning.make_builds(self._get_declared(space.kernel), candidate, workload, arch)

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
        """Returns the complete configuration file of `arch` with the winner's values in the rule that serves
        `workloads`, or, with `when`, in a narrower rule before it. Writes nothing. Raises UsageError as `Tunable`
        states."""
        return tuning.make_files(self._get_declared(space.kernel), winner, workloads, arch, source, when)

    def find_entries(self, workload: Workload, device: DeviceInfo) -> Sequence[TableEntry]:
        """Returns the rule that each kernel's file has for a workload, as `Auditable` states."""
        from kernels.table_entries import find_entries

        if self.alternative:
            raise UnsupportedError(f"it takes the alternative {self.alternative!r} of its files, not their rules")
        if isinstance(self, Backend) and self.unsupported_reasons(workload, device):
            return ()
        return find_entries(self.spaces, workload, device.arch)

    def _get_declared(self, kernel: str) -> Declared:
        return tuning.declared_of(str(getattr(self, "name", type(self).__name__)), self.spaces, kernel)

    def _name_prefix(self, space: Space) -> str:
        """Returns the prefix of a kernel's names in `Prepared.config`: '' for a backend with one, else 'kernel.'."""
        return "" if len(self.spaces) == 1 else f"{space.kernel}."
