"""A session of pytest that a command of ours types: it loads the project, and the command works in it, or with what the
project registers: backends, families and kernels of its conftests.

Collects the cases of a project for one device that is not here: nothing is run.
"""

from __future__ import annotations

import abc
import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.backends import Registry
from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.upkeep import TreeCase
from pytest_attnperf.kernel_builds import KernelRegistry
from pytest_attnperf.plugin import main
from pytest_attnperf.plugin.cases import CaseCollector, pair_of
from pytest_attnperf.plugin.features.code_objects.code_items import CodeCollector
from pytest_attnperf.plugin.keys import case_key
from pytest_attnperf.plugin.options import BY_NAME
from pytest_attnperf.plugin.refusals import plan_case
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import Families

SUITES = "suites"
QUIET = ("-qq", "-s", "--no-header", "--no-summary", "-p", "no:cacheprovider")
"""Nothing of pytest's own is printed, and what is printed is not captured."""

INTERRUPTED = 130
"""As a shell says of a command that was interrupted."""

IMPORTED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""That this package is loaded already is no news to whoever types `attnperf warm`."""


class Loader:
    """A plugin that loads the main one where it is not installed as an entry point."""

    def pytest_addoption(self, parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
        """Before the command line is read."""
        if not pluginmanager.has_plugin("attnperf"):
            pluginmanager.register(main, "attnperf")


class WorkPlugin(Loader):
    """A plugin that works in place of what pytest would do next."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.raised: list[BaseException] = []

    def work_in(self, session: pytest.Session, work: Callable[[], int]) -> bool:
        """Keep what `work` gives, or raises, until pytest's session is over."""
        try:
            self.status = work()
        except BaseException as error:
            self.raised.append(error)
        # It would say that no tests ran, and ends what is printed with an empty line.
        session.config.pluginmanager.unregister(name="terminalreporter")
        return True


def work_with(worker: WorkPlugin, suite: str, *options: str) -> int:
    """What the worker's work gives, in the project of the current folder.

    suite     a test file or a folder whose conftests count; without one the folder `suites`, or the current one
    options   further ones of pytest's command line

    Raises what the work raises, and UsageError where pytest cannot load the project: it has then said why.
    """
    start = suite or (SUITES if Path(SUITES).is_dir() else ".")
    if not Path(start).exists():
        raise UsageError(f"{start} does not exist; run this in the project's folder, or name its tests by --suite=PATH")
    with own_options():
        ended = pytest.main([*QUIET, *no_xdist(), *options, start], plugins=[worker])
    if worker.raised:
        raise worker.raised[0]
    if worker.status is None:
        raise UsageError(f"pytest could not load the project of {start} (status {int(ended)}); above it says why")
    return worker.status


def warm(words: Sequence[str]) -> int:
    """Warm what these words of pytest's command line select; 0 all ready, 1 not all, 130 interrupted, else 2."""
    with own_options():
        ended = int(pytest.main(["--attnperf-warm", *IMPORTED, *no_xdist(), *words], plugins=[Loader()]))
    known = {0: 0, int(pytest.ExitCode.TESTS_FAILED): 1, int(pytest.ExitCode.INTERRUPTED): INTERRUPTED}
    return known.get(ended, 2)


def no_xdist() -> tuple[str, ...]:
    """A project that distributes its tests by default must not do so with none."""
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        return ()  # xdist is then loaded by name at most, and `-n0` may be an unknown option
    return ("-n0",) if importlib.util.find_spec("xdist") is not None else ()


@contextlib.contextmanager
def own_options() -> Iterator[None]:
    """The user's additional options are for runs of tests."""
    before: Any = os.environ.pop("PYTEST_ADDOPTS", None)
    try:
        yield
    finally:
        if before is not None:
            os.environ["PYTEST_ADDOPTS"] = before


@dataclass(frozen=True)
class Registered:
    """What the conftests of a project have registered."""

    config: pytest.Config
    backends: Registry
    families: Families
    kernels: KernelRegistry


class _Visitor(WorkPlugin):
    """A plugin that works where pytest would collect: the project's import path and settings are in force there."""

    def __init__(self, work: Callable[[Registered], int]) -> None:
        super().__init__()
        self._work = work

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Work, and let nothing be collected."""
        cases, code = (session.config.pluginmanager.get_plugin(f"attnperf-{name}") for name in ("cases", "code"))
        assert isinstance(cases, CaseCollector)
        assert isinstance(code, CodeCollector)
        if not len(cases.registry):
            cases.register_backends()
        if not len(code.registry):
            code.register_kernels()
        found = Registered(session.config, cases.registry, cases.families, code.registry)
        return self.work_in(session, lambda: self._work(found))


def visit_project(work: Callable[[Registered], int], suite: str = "", *options: str) -> int:
    """What `work` gives, called with what the project of the current folder has registered; as `work_with`."""
    return work_with(_Visitor(work), suite, *options)


Cases = Callable[[DeviceInfo], list[TreeCase]]


class Collecting(WorkPlugin, abc.ABC):
    """A plugin that lets pytest collect, and then does what a subclass does in place of running anything."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep the session that judges from starting a worker, and from saying what it left out: nothing is run."""
        session.config.pluginmanager.unregister(name="attnperf-controller")
        session.config.pluginmanager.unregister(name="attnperf-left-out")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Work on what was collected; a file that cannot be collected has been reported."""
        return True if session.testsfailed else self.work_in(session, lambda: self.work_on(session))

    @abc.abstractmethod
    def work_on(self, session: pytest.Session) -> int:
        """Return the exit status."""


class _CollectingCases(Collecting):
    """Works on the cases of all tiers. `whole`: not where a file was skipped, whose cases nobody knows then."""

    def __init__(self, work: Callable[[Cases], int], *, whole: bool) -> None:
        super().__init__()
        self._work = work
        self._whole = whole
        self._items: list[pytest.Item] = []
        self._skipped: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember which files were skipped."""
        self._skipped += [report.nodeid] if report.skipped else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take all cases, before those are left out that this machine could not run."""
        self._items = [item for item in items if case_key(item) is not None]

    def work_on(self, session: pytest.Session) -> int:
        """Work. Raises UsageError where a file that is needed was skipped."""
        if self._whole and self._skipped:
            raise UsageError(
                f"{', '.join(self._skipped)} was skipped while it was collected, so that its cases are not known here: "
                "nothing was removed; run this where it is collected"
            )
        return self._work(lambda device: [_make_tree_case(session.config, item, device) for item in self._items])


def collect_cases(work: Callable[[Cases], int], suite: str = "", *, whole: bool = False) -> int:
    """Return what `work` returns, called with a function from a device to the project's cases; as `work_with`.

    whole   raise UsageError where a file was skipped while it was collected
    """
    return work_with(_CollectingCases(work, whole=whole), suite, f"{BY_NAME['tier'].flag}=nightly")


def _make_tree_case(config: pytest.Config, item: pytest.Item, device: DeviceInfo) -> TreeCase:
    key = case_key(item)
    assert key is not None
    plan, pair = plan_case(config, item, key), pair_of(item)
    if pair is None:
        return TreeCase(key, item.nodeid, None, plan.policy.to_record(), plan.timed)
    backend, workload = pair
    unsupported = tuple(backend.unsupported_reasons(workload, device)) if plan.timed else ()
    return TreeCase(key, item.nodeid, workload.definition(), plan.policy.to_record(), plan.timed, unsupported)
