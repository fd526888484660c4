"""What judges and measures is the package's own code, or the case fails."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

import pytest_attnperf.correctness.judge
import pytest_attnperf.measure.subject
import pytest_attnperf.workloads.adhoc
from pytest_attnperf.correctness import metrics
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.testing.project import full_results
from pytest_attnperf.workers.own_code import OwnCode
from pytest_attnperf.workloads import attention_math, prefill

BY = f"was replaced by {__file__}:"


def another(*_: Any, **__: Any) -> Any:
    """Anything."""


@pytest.fixture
def looked() -> OwnCode:
    """What has looked once, and seen nothing."""
    own = OwnCode()
    assert own.problem() == ""
    return own


def test_nothing_is_said_of_the_package_as_it_is(looked: OwnCode) -> None:
    """Dataclasses, properties, decorated functions and what is imported from libraries are no replacement."""
    assert looked.problem() == ""
    assert OwnCode().problem() == ""


REPLACED = [
    (attention_math, "reference", "workloads.attention_math.reference"),
    (prefill.Prefill, "reference", "workloads.prefill.Prefill.reference"),
    (metrics, "compare", "correctness.metrics.compare"),
    (HostTimer, "_calls_us", "measure.timers.host.HostTimer._calls_us"),
    (HostTimer, "measure", "measure.timers.host.HostTimer.measure"),
    (pytest_attnperf.correctness.judge, "Judge", "correctness.judge.Judge"),
]


@pytest.mark.parametrize(("owner", "name", "said"), REPLACED, ids=[case[2] for case in REPLACED])
def test_a_replaced_function_is_named(
    owner: Any, name: str, said: str, looked: OwnCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first look, as a conftest does it, and after it, as a test or a kernel does."""
    assert hasattr(owner, name)
    monkeypatch.setattr(owner, name, another)
    for own in (OwnCode(), looked):
        found = own.problem()
        assert found.startswith(f"pytest_attnperf.{said} {BY}"), found
        assert "Remove what replaces it" in found
    monkeypatch.undo()
    assert looked.problem() == ""


def test_a_class_of_a_suites_own_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its methods need not be looked at."""
    monkeypatch.setattr(pytest_attnperf.correctness.judge, "Judge", type("Judge", (), {"__module__": __name__}))
    assert OwnCode().problem().startswith(f"pytest_attnperf.correctness.judge.Judge was replaced by {__file__}")


def test_a_replaced_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without a file, or with a file elsewhere, is none of the package's."""
    fake = ModuleType("pytest_attnperf.workloads.attention_math")
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    assert OwnCode().problem().startswith(f"{fake.__name__} was replaced by a module without a file")
    fake.__file__ = __file__
    assert OwnCode().problem().startswith(f"{fake.__name__} was replaced by {__file__}")


CONFTEST = """
from pytest_attnperf.correctness import metrics
from pytest_attnperf.measure.timers.host import HostTimer

def replaced(real):
    return lambda *args, **kwargs: real(*args, **kwargs)
"""
REPLACING = {
    "comparison": ("metrics.compare = replaced(metrics.compare)", "correctness.metrics.compare"),
    "timer": ("HostTimer._calls_us = replaced(HostTimer._calls_us)", "measure.timers.host.HostTimer._calls_us"),
}
SUITE = """
import torch

def softmax(x):
    return torch.softmax(x, -1)

def test_softmax(attnperf):
    attnperf.gate("softmax", softmax, reference=softmax, inputs=lambda seed: torch.randn(16, 64))
"""


@pytest.mark.parametrize(("code", "said"), REPLACING.values(), ids=REPLACING)
def test_a_conftest_that_replaces_our_code_gets_no_verdict(pytester: pytest.Pytester, code: str, said: str) -> None:
    """What a user types: the case is an ERROR that names what was replaced, and where."""
    pytester.makeconftest(CONFTEST + code + "\n")
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess("--attnperf-device=cpu", "-p", "no:randomly")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"*pytest_attnperf.{said} was replaced by *conftest.py:*"])


def test_a_conftest_that_replaces_the_clock_changes_no_time(pytester: pytest.Pytester) -> None:
    """A suite that freezes `time.perf_counter_ns`, as libraries for tests of dates do, is timed as it is."""
    pytester.makeconftest("import time\ntime.perf_counter_ns = lambda: 0\n")
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess("--attnperf", "--attnperf-device=cpu", "-p", "no:randomly", "-rA")
    result.stdout.fnmatch_lines(["*NO_BASELINE*"])
    (case,) = full_results(pytester.path / ".attnperf" / "results.json")["cases"]
    assert 1.0 < case["median_us"] < 1e5
