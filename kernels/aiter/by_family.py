"""One backend made of several parts, each for its own op family, because a name can be registered only once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from pytest_attnperf.backends import Backend, Pinnable, replay_choice
from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.records import Tolerance
from pytest_attnperf.records.tuned_tables import Auditable, TableEntry
from pytest_attnperf.tuning_records import Candidate, Tunable, TunedFile, TuningSpace, Value

if TYPE_CHECKING:
    from pytest_attnperf.backends import Prepared, Tensors
    from pytest_attnperf.kernel_builds import KernelBuild
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.base import Workload


@dataclass(frozen=True)
class ByFamily(Backend[Any]):
    """Passes every workload to the backend for its family. Use `by_family` to make one: it keeps what these backends
    offer, takes the smallest of their CPU limits, and the strictest of their error budgets.

    parts     op family -> what implements it
    refused   op family -> why its part cannot run with the pinned configuration
    """

    parts: Mapping[str, Backend] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def families(self) -> tuple[str, ...]:
        """The op families that `parts` implements."""
        return tuple(self.parts)

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """Returns why the implementation for the workload's family cannot run it; empty if it can."""
        return self.get_part(workload.family).unsupported_reasons(workload, device)

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """Prepares the workload with the implementation for its family. Raises UsageError if a stored configuration
        could not be pinned in it (`refused`)."""
        if workload.family in self.refused:
            raise UsageError(self.refused[workload.family])
        return self.get_part(workload.family).prepare(workload, inputs)

    def find_entries(self, workload: Workload, device: DeviceInfo) -> Sequence[TableEntry]:
        """Returns what the implementation for the workload's family finds, as `Auditable` states. Raises
        UnsupportedError if that has no table."""
        part = self.get_part(workload.family)
        if not isinstance(part, Auditable):
            raise UnsupportedError("no table of it is known for this family")
        return part.find_entries(workload, device)

    def get_part(self, family: str) -> Backend:
        """Returns the backend that implements a family. Raises UsageError for a family without one."""
        if family not in self.parts:
            known = ", ".join(sorted(self.parts))
            raise UsageError(f"backend {self.name!r} has nothing for family {family!r}; it has {known}")
        return self.parts[family]


@dataclass(frozen=True)
class PinnableByFamily(ByFamily):
    """A `ByFamily` in which some of the combined backends choose a configuration by themselves."""

    def replay_config(self, config: Mapping[str, str]) -> Backend:
        """Returns a copy with the stored configuration pinned in the implementation of every family that makes a
        choice.

        The stored configuration does not say which family it belongs to. So an implementation that cannot replay it
        raises UsageError only when it is prepared. One that makes no choice stays as it is.
        """
        found = {family: _try_pin(part, config) for family, part in self.parts.items()}
        refused = {family: why for family, (_, why) in found.items() if why}
        return replace(self, parts={family: part for family, (part, _) in found.items()}, refused=refused)


@dataclass(frozen=True)
class TunableByFamily(PinnableByFamily):
    """A `PinnableByFamily` in which some families can be tuned. For other families it raises UsageError."""

    def tuning_space(
        self, workloads: Sequence[Workload], arch: str, *, kernel: str = "", when: Mapping[str, Value] | None = None
    ) -> TuningSpace:
        """Returns the tuning space that the implementation for the workloads' family has. Raises UsageError if they
        have several families, or one that cannot be tuned."""
        return self._require_tunable(workloads).tuning_space(workloads, arch, kernel=kernel, when=when)

    def tuning_serves(
        self, workload: Workload, space: TuningSpace, arch: str, when: Mapping[str, Value] | None = None
    ) -> bool:
        """Returns whether the rule that a winner changes serves `workload`; False if its family cannot be tuned."""
        part: object = self.parts.get(workload.family)
        return isinstance(part, Tunable) and part.tuning_serves(workload, space, arch, when)

    def tuning_pin(self, candidate: Candidate, space: TuningSpace) -> dict[str, str]:
        """Returns the entries of a stored configuration with which `replay_config` runs this candidate."""
        return self._first_tunable(space).tuning_pin(candidate, space)

    def tuning_builds(
        self, candidate: Candidate, space: TuningSpace, workload: Workload, arch: str
    ) -> Sequence[KernelBuild]:
        """Returns what the implementation for the workload's family compiles to run the candidate, if known."""
        return self._require_tunable([workload]).tuning_builds(candidate, space, workload, arch)

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
        """Returns complete files with the winner, from the implementation for the workloads' family. Writes nothing."""
        return self._require_tunable(workloads).tuned_files(winner, space, workloads, arch, source=source, when=when)

    def _require_tunable(self, workloads: Sequence[Workload]) -> Tunable:
        families = sorted({workload.family for workload in workloads})
        if len(families) != 1:
            raise UsageError(f"tuning {self.name} takes workloads of one family, got {', '.join(families) or 'none'}")
        part = self.get_part(families[0])
        if not isinstance(part, Tunable):
            can = sorted(family for family, one in self.parts.items() if isinstance(one, Tunable))
            raise UsageError(f"{self.name} cannot be tuned for {families[0]}; it can for {', '.join(can)}")
        return part

    def _first_tunable(self, space: TuningSpace) -> Tunable:
        """Returns the first implementation that can be tuned. Any would do: the entries that pin a kernel are the same
        for all families."""
        return next(cast("Tunable", part) for part in self.parts.values() if isinstance(part, Tunable))


def by_family(name: str, parts: Mapping[str, Backend]) -> Backend:
    """Returns one backend of `parts`, op family -> implementation. It is Pinnable if one of them is, and Tunable
    likewise.

    Raises UsageError for no parts, and for a part that does not implement its family.
    """
    if not parts:
        raise UsageError(f"backend {name!r} has no parts; give one per op family")
    for family, part in parts.items():
        if family not in part.families:
            offers = ", ".join(sorted(part.families))
            raise UsageError(f"backend {name!r}: the part for {family!r} must implement it, but implements {offers}")
    each = parts.values()
    kind = ByFamily
    if any(isinstance(part, Tunable) for part in each):
        kind = TunableByFamily
    elif any(isinstance(part, Pinnable) for part in each):
        kind = PinnableByFamily
    return kind(
        name,
        min(part.cpu_flops_max for part in each),
        all(part.times_on_cpu for part in each),
        merge_tolerances(part.tolerance for part in each),
        parts,
    )


def _try_pin(part: Backend, config: Mapping[str, str]) -> tuple[Backend, str]:
    """Returns (`part` with the stored configuration pinned, ''), or (the unchanged `part`, why that fails)."""
    try:
        return replay_choice(part, config), ""
    except UsageError as error:
        return part, str(error)


def merge_tolerances(tolerances: Iterable[Tolerance]) -> Tolerance:
    """Returns the strictest tolerance: the smallest multiplier for each named output and for others, sources joined."""
    found = list(tolerances)
    named: dict[str, float] = {}
    for tolerance in found:
        for output, multiplier in tolerance.outputs:
            named[output] = min(multiplier, named.get(output, multiplier))
    sources = dict.fromkeys(tolerance.source for tolerance in found if tolerance.source)
    return Tolerance(min(one.multiplier for one in found), "; ".join(sources), tuple(sorted(named.items())))
