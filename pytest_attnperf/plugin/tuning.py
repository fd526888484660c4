"""What `attnperf tune` needs from a project: a tunable backend, the workloads of its suites, and how workers start.

A separate pytest session collects it; that session judges nothing and starts no worker itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from pytest_attnperf.backends import Backend
from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.cases import CaseCollector, pair_of, read_switches
from pytest_attnperf.plugin.keys import case_key
from pytest_attnperf.plugin.launching import make_launch_plan
from pytest_attnperf.plugin.options import BY_NAME
from pytest_attnperf.plugin.own_pytest import Collecting, work_with
from pytest_attnperf.plugin.selection import find_backend
from pytest_attnperf.plugin.session_setup import device_kind
from pytest_attnperf.records import CaseKey
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import Family, workloads_from_text

WORKLOADS_FILE = "workloads.jsonl"


@dataclass(frozen=True)
class TuningProject:
    """One backend of a project and the workloads to time it on.

    backend            the registered backend
    family             op family that is tuned
    suite_workloads    workloads of the suites' timed cases of this backend and family, each once, in their order
    other_families     workloads of the suites' timed cases of this backend in other families
    kind, kind_reason  'gpu' or 'cpu', and the reason
    items              the timed cases of this backend and family
    """

    config: pytest.Config
    backend: Backend
    family: Family
    suite_workloads: tuple[Workload, ...]
    other_families: tuple[Workload, ...]
    kind: str
    kind_reason: str
    items: tuple[pytest.Item, ...]

    def list_workloads(self, texts: Sequence[str]) -> list[Workload]:
        """Returns the workloads that `texts` (lines, ids, files) name, each once; without texts those of the suites.
        Raises WorkloadError that names the text."""
        if not texts:
            return list(self.suite_workloads)
        found = [workload for text in texts for workload in workloads_from_text(text, self.family)]
        return list({workload.id: workload for workload in found}.values())

    def key_of(self, workload: Workload) -> CaseKey:
        """Returns the key under which workers of `make_plan` know the case of this workload."""
        first = case_key(self.items[0])
        assert first is not None
        return replace(first, workload=workload.id)

    def make_plan(self, workloads: Sequence[Workload]) -> LaunchPlan:
        """Returns how to start workers for this backend and these workloads, with the test file that has most of its
        cases. Writes the workloads to a file in the log folder."""
        plan = make_launch_plan(self.config, self.items[:1])
        path = plan.scratch / WORKLOADS_FILE
        path.write_text("".join(f"{json.dumps(workload.id)}\n" for workload in workloads), encoding="utf-8")
        chosen = [f"{BY_NAME['workload'].flag}={path}", f"{BY_NAME['backend'].flag}={self.backend.name}"]
        return replace(plan, passed_options=(*plan.passed_options, *chosen))


class _CollectingProject(Collecting):
    """Calls a command's work with the collected project and its backend to tune."""

    def __init__(self, backend: str, family: str, work: Callable[[TuningProject], int]) -> None:
        super().__init__()
        self._backend, self._family, self._work = backend, family, work

    def work_on(self, session: pytest.Session) -> int:
        """Returns the exit status of the work on the project. Raises UsageError without a timed test."""
        return self._work(self._make_project(session))

    def _make_project(self, session: pytest.Session) -> TuningProject:
        cases = session.config.pluginmanager.get_plugin("attnperf-cases")
        assert isinstance(cases, CaseCollector)
        backend = find_backend(self._backend, cases.registry, cases.families)
        family = cases.families.get(self._family or _only_family(backend))
        if family.name not in backend.families:
            raise UsageError(
                f"{backend.name} implements {_join_names(backend.families)}, not {family.name}; give one of the former"
            )
        items = _largest_first([item for item in session.items if _is_case_of(item, backend, family.name)])
        if not items:
            raise UsageError(
                f"no timed test of {session.config.rootpath} has {backend.name} in family {family.name}: workers run "
                "a backend through a test; name a test file by --tests PATH whose attnperf marker has "
                f"family={family.name!r} and this backend"
            )
        workloads = _workloads_of(items)
        others = [
            item
            for name in sorted({*backend.families} - {family.name})
            for item in session.items
            if _is_case_of(item, backend, name)
        ]
        kind, why = device_kind(session.config)
        return TuningProject(session.config, backend, family, workloads, _workloads_of(others), kind, why, tuple(items))


def collect_project(
    work: Callable[[TuningProject], int], backend: str, family: str = "", suite: str = "", *options: str
) -> int:
    """Calls `work` with the project, whose tests are collected, not run, and its backend to tune; returns its exit
    status. Raises as `work_with`.

    family   op family to tune; '' if the backend has only one
    """
    return work_with(_CollectingProject(backend, family, work), suite, *options)


def _is_case_of(item: pytest.Item, backend: Backend, family: str) -> bool:
    pair = pair_of(item) if case_key(item) is not None else None
    if pair is None or (pair[0].name, pair[1].family) != (backend.name, family):
        return False
    return read_switches(item)["timed"]


def _workloads_of(items: Sequence[pytest.Item]) -> tuple[Workload, ...]:
    """Returns the workloads of the items, each once, in their order."""
    pairs = [pair for item in items if (pair := pair_of(item)) is not None]
    return tuple({workload.id: workload for _, workload in pairs}.values())


def _largest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Returns the items, those of the file with most items first."""
    count = Counter(item.path for item in items)
    return sorted(items, key=lambda item: -count[item.path])


def _only_family(backend: Backend) -> str:
    if len(backend.families) != 1:
        raise UsageError(f"{backend.name} implements {_join_names(backend.families)}; choose one with --family")
    return backend.families[0]


def _join_names(names: Sequence[str] | frozenset[str]) -> str:
    return ", ".join(sorted(names))
