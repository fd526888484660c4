"""Which tests workers of xdist have not ended yet, for their controller, which collects none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pytest_attnperf.plugin.features.live.progress import Progress
from pytest_attnperf.plugin.gathered import CASE, CODE, Gathered


class Dealt:
    """Plugin object of a controller of xdist."""

    def __init__(self, gathered: Gathered, progress: Progress | None) -> None:
        self._gathered, self._progress = gathered, progress
        self._open: set[str] = set()
        self._ended: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        """Every worker of xdist has collected all there is: that much is to be done. One that replaces a dead worker
        finds what has ended, too.
        """
        self._open = set(ids) - self._ended
        self._gathered.dealt = len(self._open)
        if not self._ended and self._progress is not None:
            self._progress.expect(len(ids))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Cross out a test that has come to its verdict, or ended without one."""
        judged = getattr(report, CASE, None) or getattr(report, CODE, None)
        if report.nodeid not in self._open or not (judged or report.when == "teardown"):
            return
        self._open.discard(report.nodeid)
        self._ended.add(report.nodeid)
        self._gathered.dealt = len(self._open)
        if not judged and self._progress is not None:
            self._progress.passed_by()
