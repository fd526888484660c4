"""Nothing may repeat a timed case until it passes: pytest-rerunfailures, by option, ini file or marker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pytest_attnperf.plugin.cases import case_key


def refuse_repeats(config: pytest.Config) -> None:
    """Raise UsageError where every failing test is to be repeated."""
    for name in ("force_reruns", "reruns"):
        if config.getoption(name, default=None):
            raise _refused(f"--{name.replace('_', '-')}")
    try:
        stored = config.getini("reruns")
    except (KeyError, ValueError):  # no plugin has declared it
        return
    if config.getoption("reruns", default=None) is None and str(stored or 0).strip() not in ("", "0"):
        raise _refused("reruns, in the ini file,")


def refuse_flaky(items: Iterable[pytest.Item]) -> None:
    """Raise UsageError for a case whose marker repeats it."""
    for item in items:
        if case_key(item) is not None and item.get_closest_marker("flaky"):
            raise pytest.UsageError(f"{item.nodeid} carries @pytest.mark.flaky: a case is never repeated until lucky")


def _refused(what: str) -> pytest.UsageError:
    way = "Give --reruns=0" if "ini" in what else f"Drop {what}"
    return pytest.UsageError(
        f"{what} turns a SLOWER into a pass by repeating it until it is lucky; with --attnperf the second look "
        f"in fresh processes does the repeating. {way} (or add -p no:rerunfailures)"
    )
