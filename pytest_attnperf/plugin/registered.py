"""What a project registers, for commands that run no tests: backends, families and kernels of its conftests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from pytest_attnperf.backends import Registry
from pytest_attnperf.kernel_builds import KernelRegistry
from pytest_attnperf.plugin.cases import CaseCollector
from pytest_attnperf.plugin.features.code_objects.code_items import CodeCollector
from pytest_attnperf.plugin.own_pytest import Worker, work_with
from pytest_attnperf.workloads.families import Families


@dataclass(frozen=True)
class Registered:
    """What the conftests of a project have registered."""

    config: pytest.Config
    backends: Registry
    families: Families
    kernels: KernelRegistry


class _Visitor(Worker):
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
            cases.register()
        if not len(code.registry):
            code.register()
        found = Registered(session.config, cases.registry, cases.families, code.registry)
        return self.work_in(session, lambda: self._work(found))


def visit(work: Callable[[Registered], int], suite: str = "", *options: str) -> int:
    """What `work` gives, called with what the project of the current folder has registered; as `work_with`."""
    return work_with(_Visitor(work), suite, *options)
