"""What a project has, as rows: backends, op families, workloads of its suites, test functions, and the timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_attnperf.errors import UnknownNameError

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.plugin.own_pytest import Project, ProjectCase
    from pytest_attnperf.workloads.base import Workload
    from pytest_attnperf.workloads.families import Family

    Candidates = dict[tuple[str, str], list[Workload]]

TIERS = ("pr", "check", "cpu", "nightly")
"""Tiers of cases, those that most runs take first; 'pr' is every run."""


class BackendRow(NamedTuple):
    """A backend. unsupported: why it cannot run on this machine; '' if it can, or if no suite has a workload for it."""

    name: str
    families: tuple[str, ...]
    unsupported: str


class FamilyRow(NamedTuple):
    """An op family.

    origin     'shipped', or 'project' if a conftest registers it
    backends   number of backends that implement it
    example    shortest id of its cases; '' without cases
    line       what `--attnperf-workload` may contain; '' if the family does not say
    """

    name: str
    description: str
    origin: str
    backends: int
    example: str
    line: str


class WorkloadRow(NamedTuple):
    """A workload of the suites. tiers: of its cases; suites: names of the suites that have it."""

    id: str
    family: str
    tiers: tuple[str, ...]
    suites: tuple[str, ...]
    cases: int


class SuiteRow(NamedTuple):
    """A test function with cases. family: 'adhoc' for functions gated by `attnperf.gate`; tiers: tier -> cases."""

    file: str
    test: str
    family: str
    cases: int
    tiers: dict[str, int]


class TimerRow(NamedTuple):
    """A timer. works_on: 'CPU', 'GPU' or 'CPU, GPU'; own_inputs: whether each timed call gets inputs of its own."""

    name: str
    works_on: str
    cache_state: str
    own_inputs: bool


@dataclass(frozen=True)
class Filters:
    """What is listed: backends with `backend` in their names, and one family; '' is all."""

    backend: str
    family: str


def require_known(project: Project, chosen: Filters) -> None:
    """Raises UnknownNameError, with the nearest names, for a family that the project lacks, and for a text that no
    name of a backend contains."""
    if chosen.family:
        project.families.get(chosen.family)
    names = [backend.name for backend in project.backends]
    if not any(chosen.backend in name for name in names) and chosen.backend:
        raise UnknownNameError("backend", chosen.backend, names)


def list_backends(project: Project, chosen: Filters) -> list[BackendRow]:
    """Returns the chosen backends in the order of registration."""
    candidates = _sort_workloads(project.cases)
    return [
        BackendRow(backend.name, tuple(backend.families), _describe_unsupported(project, backend, candidates))
        for backend in project.backends
        if chosen.backend in backend.name and (not chosen.family or chosen.family in backend.families)
    ]


def list_families(project: Project, chosen: Filters) -> list[FamilyRow]:
    """Returns the chosen op families in the order of registration."""
    from pytest_attnperf.workloads.families import FAMILIES

    shipped = {family.name for family in FAMILIES}
    rows = []
    for family in project.families:
        backends = [one for one in project.backends.for_family(family.name) if chosen.backend in one.name]
        if chosen.family in ("", family.name) and (backends or not chosen.backend):
            origin = "shipped" if family.name in shipped else "project"
            example = _find_example(project, family)
            line = family.kind.grammar.usage if family.kind else ""
            rows.append(FamilyRow(family.name, family.description, origin, len(backends), example, line))
    return rows


def list_workloads(project: Project, chosen: Filters) -> list[WorkloadRow]:
    """Returns the workloads of the chosen cases, families in the order of registration."""
    by_id: dict[str, list[ProjectCase]] = {}
    for case in _choose_cases(project, chosen):
        if case.workload is not None:
            by_id.setdefault(case.workload.id, []).append(case)
    order = {family.name: number for number, family in enumerate(project.families)}
    rows = []
    for name, cases in by_id.items():
        suites = tuple(dict.fromkeys(case.key.suite for case in cases))
        rows.append(WorkloadRow(name, _family_of(cases[0]), tuple(_count_tiers(cases)), suites, len(cases)))
    return sorted(rows, key=lambda row: order.get(row.family, len(order)))


def list_suites(project: Project, chosen: Filters) -> list[SuiteRow]:
    """Returns the test functions that have chosen cases, in the order of collection."""
    by_test: dict[tuple[str, str], list[ProjectCase]] = {}
    for case in _choose_cases(project, chosen):
        file, _, test = case.nodeid.partition("::")
        by_test.setdefault((file, test.partition("[")[0]), []).append(case)
    return [
        SuiteRow(file, test, _family_of(cases[0]), len(cases), _count_tiers(cases))
        for (file, test), cases in by_test.items()
    ]


def list_timers() -> list[TimerRow]:
    """Returns all timers in the order in which the rule tries them."""
    from pytest_attnperf.measure.timers import TIMERS

    return [
        TimerRow(
            timer.name,
            "CPU, GPU" if timer.on_any else "CPU" if timer.on_cpu else "GPU",
            timer.cache_state,
            timer.in_parts,
        )
        for timer in TIMERS
    ]


LISTS: dict[str, Callable[[Project, Filters], Sequence[Any]]] = {
    "backends": list_backends,
    "families": list_families,
    "workloads": list_workloads,
    "suites": list_suites,
    "timers": lambda project, chosen: list_timers(),
}


def _choose_cases(project: Project, chosen: Filters) -> list[ProjectCase]:
    return [
        case
        for case in project.cases
        if chosen.family in ("", _family_of(case))
        and (not chosen.backend or (case.backend is not None and chosen.backend in case.backend.name))
    ]


def _family_of(case: ProjectCase) -> str:
    from pytest_attnperf.workloads.defined import ADHOC

    return ADHOC if case.workload is None else case.workload.family


def _count_tiers(cases: Iterable[ProjectCase]) -> dict[str, int]:
    """Returns tier -> number of cases, in the order of TIERS."""
    counts = Counter(case.tier or TIERS[0] for case in cases)
    return {tier: counts[tier] for tier in TIERS if counts[tier]}


def _find_example(project: Project, family: Family) -> str:
    ids = {case.workload.id for case in project.cases if case.workload and case.workload.family == family.name}
    return min(ids, key=lambda name: (len(name), name), default="")


def _sort_workloads(cases: Iterable[ProjectCase]) -> Candidates:
    """Returns the workloads by (backend, family), and under ('', family) those of all backends; fewest FLOPs first."""
    found: dict[tuple[str, str], dict[str, Workload]] = {}
    for case in cases:
        if case.backend is not None and case.workload is not None:
            for name in ("", case.backend.name):
                found.setdefault((name, case.workload.family), {})[case.workload.id] = case.workload
    return {place: sorted(by_id.values(), key=lambda one: one.flops or 0.0) for place, by_id in found.items()}


def _describe_unsupported(project: Project, backend: Backend, candidates: Candidates) -> str:
    """Returns why the backend cannot run here: what all of its families have in common, else what each has, by name."""
    if project.device is None:
        return "not known: neither nvidia-smi nor AMD's driver names this GPU"
    of_family = {}
    for family in backend.families:
        workloads = candidates.get((backend.name, family)) or candidates.get(("", family))
        if workloads:
            of_family[family] = _find_reasons(project, backend, workloads)
    shared = [
        reason for reason in next(iter(of_family.values()), ()) if all(reason in one for one in of_family.values())
    ]
    if shared:
        return "; ".join(shared)
    return "; ".join(f"{family}: {'; '.join(reasons)}" for family, reasons in of_family.items() if reasons)


def _find_reasons(project: Project, backend: Backend, workloads: Sequence[Workload]) -> list[str]:
    """Returns why the backend cannot run these workloads here: what all of them have in common, else what the first
    has. Empty if it can run any of them."""
    refused: list[list[str]] = []
    for workload in workloads:
        assert project.device is not None
        reasons = backend.unsupported_reasons(workload, project.device)
        if not reasons and not project.on_gpu and (workload.flops or 0.0) > backend.cpu_flops_max:
            limit = backend.cpu_flops_max
            reasons = [f"too large for a CPU: more than {limit:.3g} FLOPs" if limit else "runs on GPUs only"]
        if not reasons:
            return []
        refused.append(reasons)
    return [reason for reason in refused[0] if all(reason in one for one in refused)] or refused[0]
