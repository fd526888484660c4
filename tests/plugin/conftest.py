"""The pytest that a test types loads this plugin alone: half of a process's start would be the import of others'."""

from __future__ import annotations

from typing import Any

import pytest

OURS = ("-p", "pytest_attnperf.plugin.main")


@pytest.fixture
def other_plugins() -> None:
    """Asked for by tests of how this plugin goes together with others, which are then loaded."""


@pytest.fixture(autouse=True)
def only_our_plugin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every process that `pytester` starts, unless the test asks for `other_plugins`."""
    if "other_plugins" in request.fixturenames:
        return
    typed = pytest.Pytester.runpytest_subprocess

    def run(self: pytest.Pytester, *args: str, **kwargs: Any) -> pytest.RunResult:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            return typed(self, *OURS, *args, **kwargs)

    monkeypatch.setattr(pytest.Pytester, "runpytest_subprocess", run)
