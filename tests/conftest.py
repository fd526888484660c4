"""What all of this project's tests share: `pytester`, and the reason why a GPU test cannot run here."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["pytester", "pytest_attnperf.testing.project"]


PLUGINS_BY_NAME = (9, 2)
"""From this version of pytest on PYTEST_PLUGINS takes names of entry points."""


@pytest.fixture(scope="module")
def lean_processes() -> Iterator[None]:
    """Asked for where pytest or workers are started: these load this plugin and no other.

    The others (hypothesis, benchmark, timeout ...) are a fifth of what a worker takes to start. Not for tests of how
    this plugin is found, or of how it goes together with others.
    """
    if tuple(map(int, pytest.__version__.split(".")[:2])) < PLUGINS_BY_NAME:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.setenv("PYTEST_PLUGINS", "attnperf")
        yield


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Tiny problems are slower on many threads of torch, and on one sums are made in one order."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A process that is started in the background ignores SIGINT, and so would every one that a test interrupts."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@functools.cache
def gpu_missing_reason() -> str:
    """Why no GPU test can run on this machine; empty when one can."""
    try:
        import torch
    except ModuleNotFoundError as error:
        return f"needs a GPU, and torch is not installed ({error})"
    return "" if torch.cuda.is_available() else f"needs a GPU that torch {torch.__version__} can use"


SOAK = Path(__file__).with_name("soak.txt")
"""Node ids of tests that `make test` can do without (see benchmarks/choose_tests.py)."""


def soak_list() -> frozenset[str]:
    """The node ids of the file."""
    lines = SOAK.read_text(encoding="utf-8").splitlines() if SOAK.exists() else []
    return frozenset(line for line in lines if line and not line.startswith("#"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark `soak` what the list names."""
    listed = soak_list()
    for item in items:
        if item.nodeid in listed:
            item.add_marker(pytest.mark.soak)


def pytest_configure(config: pytest.Config) -> None:
    """Leave files to the other process of `make test`."""
    from tests import shares

    shares.install(config)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a GPU test where there is none. Asked when the test is about to run, so collecting never imports torch."""
    if item.get_closest_marker("gpu") is None:
        return
    if reason := gpu_missing_reason():
        pytest.skip(reason)


AITER_CONTRACT = "tests/kernels/aiter/contract/"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the contract tests that want a source tree of aiter: among all skipped tests nobody would miss them."""
    skipped = [one for one in terminalreporter.stats.get("skipped", []) if one.nodeid.startswith(AITER_CONTRACT)]
    wanting = sum("AITER_SOURCE=" in str(one.longrepr) for one in skipped)
    if wanting:
        terminalreporter.write_line(
            f"contract tests of aiter skipped for want of its source tree: {wanting} (AITER_SOURCE=<folder>, "
            "kernels/aiter/README.md); calls were checked against recorded signatures only"
        )
