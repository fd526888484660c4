"""The pytest that a test types loads this plugin alone and runs in the test's own process.

A process takes longer to start than most of these runs to finish. Workers are processes of their own as ever.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

# What pytester sees imported for the first time within a run is forgotten after it, and would be imported in each.
import pytest_attnperf.plugin.features.journal.journaling
import pytest_attnperf.plugin.features.live.progress
import pytest_attnperf.plugin.run
import pytest_attnperf.plugin.summary
import pytest_attnperf.testing.fake.device  # noqa: F401
from pytest_attnperf.testing.project import FakeProject
from tests import worker_mould
from tests.worker_mould import AVAILABLE, Mould, subprocess_with

with contextlib.suppress(ImportError):
    import sqlalchemy.dialects.sqlite  # noqa: F401

with contextlib.suppress(ImportError):
    # It brings importlib_metadata, which puts itself in the place of the standard library's finder of packages: of all
    # that is forgotten after a run this would leave none.
    import pygal  # noqa: F401

with contextlib.suppress(ImportError):
    # It refuses to be loaded a second time.
    import numpy  # noqa: F401

OURS = ("-p", "pytest_attnperf.plugin.main")


@pytest.fixture
def outside_xdist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by tests of pytest-benchmark, which is off where it finds itself in a worker of xdist: ours, here."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stored(attnperf_project: FakeProject) -> FakeProject:
    """A project whose only case has a baseline at 100 us."""
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.store_baselines()
    return attnperf_project


@pytest.fixture
def own_process() -> None:
    """Asked for by tests whose pytest must be typed as in a shell: its process is looked at."""


@pytest.fixture
def other_plugins(own_process: None) -> None:
    """Asked for by tests of how this plugin goes together with others, which are then loaded."""


@pytest.fixture(scope="session")
def mould() -> Iterator[Mould | None]:
    """What workers are forked from; None where they cannot be."""
    with _mould() as made:
        yield made


@pytest.fixture(scope="session")
def mould_with_torch() -> Iterator[Mould | None]:
    """The same for cases that use torch, whose import takes four times as long as all else of a worker's start."""
    with _mould("torch") as made:
        yield made


def _mould(*more: str) -> contextlib.AbstractContextManager[Mould | None]:
    return contextlib.closing(Mould(*more)) if AVAILABLE else contextlib.nullcontext()


@pytest.fixture
def forked_workers(mould: Mould | None) -> str:
    """Lines of a conftest: processes that load it, as those of xdist, have their workers forked as this one has."""
    return f"import runpy\nrunpy.run_path({worker_mould.__file__!r})['use']({mould.address!r})\n" if mould else ""


@pytest.fixture
def torch_cases(mould_with_torch: Mould | None) -> Mould | None:
    """Asked for by tests whose suites import torch."""
    importlib.import_module("torch")
    return mould_with_torch


@pytest.fixture(autouse=True)
def only_our_plugin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, mould: Mould | None) -> None:
    """What `pytester` starts loads no other, unless the test asks for `other_plugins`."""
    if "other_plugins" in request.fixturenames:
        return
    if "torch_cases" in request.fixturenames:
        mould = request.getfixturevalue("torch_cases")
    typed = pytest.Pytester.runpytest_subprocess

    def run(self: pytest.Pytester, *args: str, timeout: float = 120) -> pytest.RunResult:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            if "own_process" in request.fixturenames:
                return typed(self, *OURS, *args, timeout=timeout)
            # As `python -m pytest` in a pipe: the folder on the path, lines of 80 columns.
            patch.syspath_prepend(self.path)
            patch.setenv("COLUMNS", "80")
            # What is forgotten after the run could not be imported again: it is refused here, loaded or not.
            if "torch_cases" not in request.fixturenames:
                patch.setitem(sys.modules, "torch", None)
            if mould is not None:
                patch.setattr("pytest_attnperf.workers.controller.subprocess", subprocess_with(mould.address))
            with _at_most(timeout):
                return self.runpytest_inprocess(f"--basetemp={self.path.parent / 'basetemp'}", *OURS, *args)

    monkeypatch.setattr(pytest.Pytester, "runpytest_subprocess", run)


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Fail the test where what it waits for never ends."""

    def ring(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"pytest did not end within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
