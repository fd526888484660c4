"""A mistake in a marker is a usage error: one line and exit status 4, also where xdist's workers collect."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.plugin.config import is_xdist_worker

_MISTAKE = pytest.StashKey[str]()
_ATTRIBUTE = "attnperf_mistake"
"""Attribute of a collect report that has the mistake; xdist sends attributes to its controller."""


@contextlib.contextmanager
def refusing_markers(config: pytest.Config) -> Iterator[None]:
    """Turns an error of this plugin into pytest's CollectError, and keeps its text for `MarkerRefusals`."""
    try:
        yield
    except AttnperfError as error:
        config.stash[_MISTAKE] = str(error)
        raise pytest.Collector.CollectError(str(error)) from error


class MarkerRefusals:
    """Plugin object of a session that is no worker of this plugin: ends collection at the first mistake in a marker."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, Any, Any]:
        """Adds a mistake that this file's collection found to its report."""
        report = yield
        if mistake := self._config.stash.get(_MISTAKE, ""):
            setattr(report, _ATTRIBUTE, mistake)
            del self._config.stash[_MISTAKE]
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: Any) -> None:
        """Raises a usage error for a report with a mistake; in a worker of xdist its controller does."""
        if (mistake := getattr(report, _ATTRIBUTE, "")) and not is_xdist_worker(self._config):
            raise pytest.UsageError(mistake)
