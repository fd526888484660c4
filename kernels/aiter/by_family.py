"""One backend made of several, each for its own op families: a name is registered once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from pytest_attnperf.backends import Backend, Pinnable, replay_choice
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import Tolerance
from pytest_attnperf.tuning_records import Candidate, Tunable, TunedFile, TuningSpace, Value

if TYPE_CHECKING:
    from pytest_attnperf.backends import Prepared, Tensors
    from pytest_attnperf.kernel_builds import KernelBuild
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.base import Workload


@dataclass(frozen=True)
class ByFamily(Backend[Any]):
    """Hands every workload to the part of its family. Make it by `by_family`, which keeps what parts offer: the least
    limit on CPUs, for what none of them should be given is not offered by any, and of error budgets the strictest.

    parts     op family -> what implements it
    refused   op family -> why its part cannot run with the configuration that this was pinned to
    """

    parts: Mapping[str, Backend] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def families(self) -> tuple[str, ...]:
        """Those that there are parts for."""
        return tuple(self.parts)

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """The part's."""
        return self.get_part(workload.family).unsupported_reasons(workload, device)

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """The part's. Raises UsageError where that part could not be pinned as this was."""
        if workload.family in self.refused:
            raise UsageError(self.refused[workload.family])
        return self.get_part(workload.family).prepare(workload, inputs)

    def get_part(self, family: str) -> Backend:
        """What implements a family. Raises UsageError for one without a part."""
        if family not in self.parts:
            known = ", ".join(sorted(self.parts))
            raise UsageError(f"backend {self.name!r} has nothing for family {family!r}; it has {known}")
        return self.parts[family]


@dataclass(frozen=True)
class PinnableByFamily(ByFamily):
    """Some parts choose a configuration by themselves."""

    def replay_config(self, config: Mapping[str, str]) -> Backend:
        """The same with the stored configuration given to every part that makes a choice.

        It is of one family, and nobody says which: a part that cannot replay it raises UsageError when it is prepared,
        and a part without a choice needs nothing.
        """
        found = {family: _try_pin(part, config) for family, part in self.parts.items()}
        refused = {family: why for family, (_, why) in found.items() if why}
        return replace(self, parts={family: part for family, (part, _) in found.items()}, refused=refused)


@dataclass(frozen=True)
class TunableByFamily(PinnableByFamily):
    """Some parts can be tuned; those of other families say that they cannot."""

    def tuning_space(
        self, workloads: Sequence[Workload], arch: str, *, kernel: str = "", when: Mapping[str, Value] | None = None
    ) -> TuningSpace:
        """The part's; the workloads are of one family."""
        return self._require_tunable(workloads).tuning_space(workloads, arch, kernel=kernel, when=when)

    def tuning_serves(
        self, workload: Workload, space: TuningSpace, arch: str, when: Mapping[str, Value] | None = None
    ) -> bool:
        """The part's; a family whose part cannot be tuned is served by no rule."""
        part: object = self.parts.get(workload.family)
        return isinstance(part, Tunable) and part.tuning_serves(workload, space, arch, when)

    def tuning_pin(self, candidate: Candidate, space: TuningSpace) -> dict[str, str]:
        """Of the part whose kernel the space is for."""
        return self._first_tunable(space).tuning_pin(candidate, space)

    def tuning_builds(
        self, candidate: Candidate, space: TuningSpace, workload: Workload, arch: str
    ) -> Sequence[KernelBuild]:
        """The part's."""
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
        """The part's."""
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
        """One wording pins a kernel whatever the family: the first part that can be tuned knows it."""
        return next(cast("Tunable", part) for part in self.parts.values() if isinstance(part, Tunable))


def by_family(name: str, parts: Mapping[str, Backend]) -> Backend:
    """One backend of these parts: Pinnable if one of them is, and Tunable likewise.

    Raises UsageError where there are none, or a part does not implement the family that it stands for.
    """
    if not parts:
        raise UsageError(f"backend {name!r} has no parts; give one per op family")
    for family, part in parts.items():
        if family not in part.families:
            offers = ", ".join(sorted(part.families))
            raise UsageError(f"backend {name!r}: the part for {family!r} implements {offers}")
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
    """The part with the stored configuration, and ''; or as it is, and why it cannot replay that."""
    try:
        return replay_choice(part, config), ""
    except UsageError as error:
        return part, str(error)


def merge_tolerances(tolerances: Iterable[Tolerance]) -> Tolerance:
    """The least multiplier of every output that any of them names, and of all others; with all their sources."""
    found = list(tolerances)
    named: dict[str, float] = {}
    for tolerance in found:
        for output, multiplier in tolerance.outputs:
            named[output] = min(multiplier, named.get(output, multiplier))
    sources = dict.fromkeys(tolerance.source for tolerance in found if tolerance.source)
    return Tolerance(min(one.multiplier for one in found), "; ".join(sources), tuple(sorted(named.items())))
