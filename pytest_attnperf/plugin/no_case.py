"""A gating run that collected no case, although suites that it selects are stored: nothing else would notice."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_attnperf.plugin.config import run_config
from pytest_attnperf.plugin.selection import asked_suites


class NoCase:
    """Plugin object of a gating run; heard only where there is no other of a run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._lost: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a strict run that would pass, or say nothing but that it found no tests."""
        config, asked = self._config, run_config(self._config)
        ended = exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if ended or config.pluginmanager.has_plugin("attnperf-run") or not asked.strict:
            return
        folder = config.rootpath / asked.baselines
        self._lost = asked_suites(config, sorted({path.stem for path in folder.glob("*/*/*.json")}))
        if self._lost:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say which suites have lost their cases."""
        if self._lost:
            terminalreporter.write_line(
                f"exit status 1: no case was collected, and baselines are stored of {', '.join(self._lost)}: their "
                "tests were skipped as a whole, ignored, removed or renamed"
            )
