"""What a project registers, for commands that run no tests: backends, families and kernels of its conftests."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.backends import Registry
from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import KernelRegistry
from pytest_attnperf.plugin import main
from pytest_attnperf.plugin.cases import CaseCollector
from pytest_attnperf.plugin.features.code_objects.code_items import CodeCollector
from pytest_attnperf.workloads.families import Families

SUITES = "suites"
QUIET = ("-qq", "-s", "--no-header", "--no-summary", "-p", "no:cacheprovider")
"""Nothing of pytest's own is printed, and what is printed is not captured."""


@dataclass(frozen=True)
class Registered:
    """What the conftests of a project have registered."""

    config: pytest.Config
    backends: Registry
    families: Families
    kernels: KernelRegistry


@dataclass(eq=False)
class _Visitor:
    """A plugin that works where pytest would collect: the project's import path and settings are in force there."""

    work: Callable[[Registered], int]
    status: int | None = None
    raised: list[BaseException] = field(default_factory=list)

    def pytest_addoption(self, parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
        """Load the main plugin where it is not installed as an entry point."""
        if not pluginmanager.has_plugin("attnperf"):
            pluginmanager.register(main, "attnperf")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Work, and let nothing be collected."""
        cases, code = (session.config.pluginmanager.get_plugin(f"attnperf-{name}") for name in ("cases", "code"))
        assert isinstance(cases, CaseCollector)
        assert isinstance(code, CodeCollector)
        if not len(cases.registry):
            cases.register()
        if not len(code.registry):
            code.register()
        try:
            self.status = self.work(Registered(session.config, cases.registry, cases.families, code.registry))
        except BaseException as error:  # raised again where pytest's session is over
            self.raised.append(error)
        session.config.pluginmanager.unregister(name="terminalreporter")  # it ends what is printed with an empty line
        return True


def visit(work: Callable[[Registered], int], suite: str = "", *options: str) -> int:
    """What `work` gives, called with what the project of the current folder has registered.

    suite     a test file or a folder whose conftests count; without one the folder `suites`, or the current one
    options   further ones of pytest's command line

    Raises what `work` raises, and UsageError where pytest cannot load the project: it has then said why.
    """
    start = suite or (SUITES if Path(SUITES).is_dir() else ".")
    if not Path(start).exists():
        raise UsageError(f"{start} does not exist; run this in the project's folder, or name its tests by --suite=PATH")
    visitor = _Visitor(work)
    with own_options():
        ended = pytest.main([*QUIET, *no_xdist(), *options, start], plugins=[visitor])
    if visitor.raised:
        raise visitor.raised[0]
    if visitor.status is None:
        raise UsageError(f"pytest could not load the project of {start} (status {int(ended)}); above it says why")
    return visitor.status


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
