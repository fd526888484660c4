"""Collects the cases of a project for one device that is not here: nothing is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pytest_attnperf.gate.upkeep import TreeCase
from pytest_attnperf.plugin.cases import pair_of
from pytest_attnperf.plugin.keys import case_key
from pytest_attnperf.plugin.options import BY_NAME
from pytest_attnperf.plugin.own_pytest import Worker, work_with
from pytest_attnperf.plugin.refusals import planned
from pytest_attnperf.records import DeviceInfo

Cases = Callable[[DeviceInfo], list[TreeCase]]


class _Collecting(Worker):
    """A plugin that lets pytest collect the cases of all tiers, and then works in place of running any."""

    def __init__(self, work: Callable[[Cases], int]) -> None:
        super().__init__()
        self._work = work
        self._items: list[pytest.Item] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Take all cases, before those are left out that this machine could not run."""
        self._items = [item for item in items if case_key(item) is not None]
        config.pluginmanager.unregister(name="attnperf-controller")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Do not say what was left out."""
        session.config.pluginmanager.unregister(name="attnperf-left-out")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Work on what was collected; a file that cannot be collected has been reported."""
        if session.testsfailed:
            return True
        return self.work_in(session, lambda: self._work(lambda device: _cases(session.config, self._items, device)))


def collect_cases(work: Callable[[Cases], int], suite: str = "") -> int:
    """Return what `work` returns, called with a function from a device to the project's cases; as `work_with`."""
    return work_with(_Collecting(work), suite, f"{BY_NAME['tier'].flag}=nightly")


def _cases(config: pytest.Config, items: Sequence[pytest.Item], device: DeviceInfo) -> list[TreeCase]:
    return [_case(config, item, device) for item in items]


def _case(config: pytest.Config, item: pytest.Item, device: DeviceInfo) -> TreeCase:
    key = case_key(item)
    assert key is not None
    plan, pair = planned(config, item, key), pair_of(item)
    if pair is None:
        return TreeCase(key, item.nodeid, None, plan.policy.record(), plan.timed)
    backend, workload = pair
    unsupported = tuple(backend.unsupported_reasons(workload, device)) if plan.timed else ()
    return TreeCase(key, item.nodeid, workload.definition(), plan.policy.record(), plan.timed, unsupported)
