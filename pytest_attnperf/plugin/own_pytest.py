"""Pytest sessions that an `attnperf` command starts, to use the project in the current folder.

The command gets what the project's conftests register (backends, families, kernels), or its collected cases. It can
plan these cases for a device that is not in this machine. No test runs.
"""

from __future__ import annotations

import abc
import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.backends import Backend, Registry
from pytest_attnperf.environment.cards import read_device
from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.upkeep import TreeCase
from pytest_attnperf.kernel_builds import KernelRegistry
from pytest_attnperf.plugin import main
from pytest_attnperf.plugin.cases import CaseCollector, pair_of, restore_order, tier_of
from pytest_attnperf.plugin.features.code_objects.code_items import CodeCollector
from pytest_attnperf.plugin.invalid_markers import find_reason
from pytest_attnperf.plugin.keys import case_key
from pytest_attnperf.plugin.options import BY_NAME
from pytest_attnperf.plugin.refusals import plan_case
from pytest_attnperf.plugin.selection import SUITES
from pytest_attnperf.records import CaseKey, DeviceInfo
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import Families

QUIET = ("-qq", "-s", "--no-header", "--no-summary", "-p", "no:cacheprovider")
"""Options by which pytest prints nothing itself and does not capture output of the command."""

ALL_TIERS = f"{BY_NAME['tier'].flag}=nightly"
"""Option by which no case is left to other runs."""


class WorkPlugin:
    """A pytest plugin that does a command's work instead of pytest's next step; keeps its exit status or error.
    Registers pytest-attnperf's own plugin where it is not installed as an entry point."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.raised: list[BaseException] = []

    def pytest_addoption(self, parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
        """Registers pytest-attnperf's main plugin, unless it is registered, before pytest reads the command line."""
        if not pluginmanager.has_plugin("attnperf"):
            pluginmanager.register(main, "attnperf")

    def work_in(self, session: pytest.Session, work: Callable[[], int]) -> bool:
        """Calls `work` and stores its exit status in `status`, or what it raises in `raised`, for `work_with`. Returns
        True, so that pytest does nothing itself; it prints no summary."""
        try:
            self.status = work()
        except BaseException as error:
            self.raised.append(error)
        # The reporter would print that no tests ran, and an empty line.
        session.config.pluginmanager.unregister(name="terminalreporter")
        return True


def work_with(worker: WorkPlugin, suite: str, *options: str) -> int:
    """Runs `worker` in a pytest session of the project in the current folder, and returns its exit status.

    suite     test file or folder whose conftests are loaded; '' for the folder `suites`, or else what pytest takes
              without a path: `testpaths` of the ini file, or the current folder
    options   further options for pytest

    Raises what the work raises, and UsageError if pytest cannot load the project; pytest has then printed why.
    """
    start = suite or (SUITES if Path(SUITES).is_dir() else "")
    if not Path(start).exists():
        raise UsageError(f"{start} does not exist; run this in the project's folder, or name its tests by --tests PATH")
    with own_options():
        ended = pytest.main([*QUIET, *no_xdist(), *options, *filter(None, [start])], plugins=[worker])
    if worker.raised:
        raise worker.raised[0]
    if worker.status is None:
        raise UsageError(
            f"pytest could not load the project of {start or '.'} (status {int(ended)}); see its output above"
        )
    return worker.status


def no_xdist() -> tuple[str, ...]:
    """Returns ('-n0',), which turns off xdist, also of an ini file; () if it is not installed or loaded."""
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        return ()  # then xdist is loaded only by `-p xdist`, and `-n0` may be unknown
    return ("-n0",) if importlib.util.find_spec("xdist") is not None else ()


@contextlib.contextmanager
def own_options() -> Iterator[None]:
    """Removes PYTEST_ADDOPTS from the environment during the block: its options are for runs of tests."""
    before: Any = os.environ.pop("PYTEST_ADDOPTS", None)
    try:
        yield
    finally:
        if before is not None:
            os.environ["PYTEST_ADDOPTS"] = before


@dataclass(frozen=True)
class Registered:
    """Pytest's config, and what the conftests of a project have registered."""

    config: pytest.Config
    backends: Registry
    families: Families
    kernels: KernelRegistry


class _Visitor(WorkPlugin):
    """A plugin that does a command's work instead of collection, with the project's import path and settings."""

    def __init__(self, work: Callable[[Registered], int]) -> None:
        super().__init__()
        self._work = work

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Calls the command's work with what conftests registered. Returns True: pytest collects nothing."""
        cases, code = _find_collector(session.config), session.config.pluginmanager.get_plugin("attnperf-code")
        assert isinstance(code, CodeCollector)
        if not len(cases.registry):
            cases.register_backends()
        if not len(code.registry):
            code.register_kernels()
        found = Registered(session.config, cases.registry, cases.families, code.registry)
        return self.work_in(session, lambda: self._work(found))


def _find_collector(config: pytest.Config) -> CaseCollector:
    cases = config.pluginmanager.get_plugin("attnperf-cases")
    assert isinstance(cases, CaseCollector)
    return cases


def visit_project(work: Callable[[Registered], int], suite: str = "", *options: str) -> int:
    """Calls `work` with what the project's conftests have registered, without collecting tests; returns its exit
    status. Other arguments and errors as `work_with`."""
    return work_with(_Visitor(work), suite, *options)


Cases = Callable[[DeviceInfo], list[TreeCase]]


class Collecting(WorkPlugin, abc.ABC):
    """A plugin that lets pytest collect the tests, and then does the work of a subclass instead of running them."""

    def __init__(self) -> None:
        super().__init__()
        self._broken: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remembers files that cannot be collected, each with the last line of its error."""
        if report.failed:
            *_, why = [line.strip() for line in report.longreprtext.splitlines() if line.strip()] or [""]
            self._broken.append(f"{report.nodeid} cannot be collected: {why.removeprefix('E').strip()}")

    @pytest.hookimpl(trylast=True)
    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Remembers tests with an invalid marker: their cases are unknown."""
        if reason := find_reason(item):
            self._broken.append(f"{item.nodeid} cannot be collected: {reason}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Unregisters the controller, which would start workers, and the notice of deselected cases."""
        session.config.pluginmanager.unregister(name="attnperf-controller")
        session.config.pluginmanager.unregister(name="attnperf-left-out")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Calls `work_on` with the collected session, or raises UsageError if a file cannot be collected. Returns
        True."""
        return self.work_in(session, lambda: self._work_if_whole(session))

    def _work_if_whole(self, session: pytest.Session) -> int:
        if self._broken:
            raise UsageError(f"{'; '.join(self._broken)}; correct it, or name other tests by --tests PATH")
        return self.work_on(session)

    @abc.abstractmethod
    def work_on(self, session: pytest.Session) -> int:
        """Does the command's work on the collected session; returns the command's exit status."""


class _CollectingItems(Collecting):
    """Keeps the items that are cases, of all tiers, for a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self._items: list[pytest.Item] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remembers all cases, before those are deselected that this machine cannot run."""
        self._items = [item for item in items if case_key(item) is not None]


class _CollectingCases(_CollectingItems):
    """Calls a command's work with the cases of all tiers. `whole`: raises UsageError instead if a file was skipped,
    because its cases are unknown."""

    def __init__(self, work: Callable[[Cases], int], *, whole: bool) -> None:
        super().__init__()
        self._work = work
        self._whole = whole
        self._skipped: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remembers the ids of skipped files, too."""
        super().pytest_collectreport(report)
        self._skipped += [report.nodeid] if report.skipped else []

    def work_on(self, session: pytest.Session) -> int:
        """Calls the work with a function DeviceInfo -> cases planned for that device; returns its exit status. Raises
        UsageError if `whole` is set and a file was skipped."""
        if self._whole and self._skipped:
            raise UsageError(
                f"{', '.join(self._skipped)} was skipped during collection, so its cases are unknown on this machine; "
                "nothing was removed; run this where the file is not skipped"
            )
        return self._work(lambda device: [_make_tree_case(session.config, item, device) for item in self._items])


def collect_cases(work: Callable[[Cases], int], suite: str = "", *, whole: bool = False) -> int:
    """Calls `work` with a function DeviceInfo -> the project's cases, planned for that device; returns its exit status.

    whole   raise UsageError if a file was skipped during collection; other arguments and errors as `work_with`
    """
    return work_with(_CollectingCases(work, whole=whole), suite, ALL_TIERS)


def _make_tree_case(config: pytest.Config, item: pytest.Item, device: DeviceInfo) -> TreeCase:
    key = case_key(item)
    assert key is not None
    plan, pair = plan_case(config, item, key), pair_of(item)
    if pair is None:
        return TreeCase(key, item.nodeid, None, plan.policy.to_record(), plan.timed)
    backend, workload = pair
    unsupported = tuple(backend.unsupported_reasons(workload, device)) if plan.timed else ()
    return TreeCase(key, item.nodeid, workload.definition(), plan.policy.to_record(), plan.timed, unsupported)


@dataclass(frozen=True)
class ProjectCase:
    """A case that pytest collected.

    backend, workload   None for a function that a test gates by `attnperf.gate`
    tier                '' if every run takes it
    """

    key: CaseKey
    nodeid: str
    tier: str
    backend: Backend | None
    workload: Workload | None


@dataclass(frozen=True)
class Project:
    """The backends, op families and cases of a project.

    device   of this machine, read without initialising it; None if it cannot be named that way
    on_gpu   whether cases run on a GPU here
    """

    backends: Registry
    families: Families
    cases: tuple[ProjectCase, ...]
    device: DeviceInfo | None
    on_gpu: bool


class _CollectingAll(_CollectingItems):
    """Calls a command's work with all that the project registers and collects."""

    def __init__(self, work: Callable[[Project], int]) -> None:
        super().__init__()
        self._work = work

    def work_on(self, session: pytest.Session) -> int:
        """Calls the work with the project; returns its exit status."""
        found = _find_collector(session.config)
        restore_order(self._items)
        cases = tuple(map(_make_project_case, self._items))
        device = read_device(os.environ, on_gpu=found.on_gpu)
        return self._work(Project(found.registry, found.families, cases, device, found.on_gpu))


def collect_all(work: Callable[[Project], int], suite: str = "", *options: str) -> int:
    """Calls `work` with the project's backends, families and cases of all tiers; returns its exit status. Other
    arguments and errors as `work_with`."""
    return work_with(_CollectingAll(work), suite, ALL_TIERS, *options)


def _make_project_case(item: pytest.Item) -> ProjectCase:
    key, (backend, workload) = case_key(item), pair_of(item) or (None, None)
    assert key is not None
    return ProjectCase(key, item.nodeid, tier_of(item), backend, workload)
