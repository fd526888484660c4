"""Signals that end a timed run: the first one interrupts it, and no later one keeps it from ending."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from pytest_attnperf.plugin.features.interrupts import PATIENCE_S, Interrupts


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    """The signals as Python starts with them, and as they were after the test."""
    before = [
        (signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler)),
        (signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_DFL)),
    ]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def nothing_told(text: str) -> None:
    """Where nobody listens."""


def test_the_first_signal_interrupts_and_the_next_do_not() -> None:
    """SIGTERM is answered, and is a KeyboardInterrupt that says so; a signal behind it is answered, and changes
    nothing.
    """
    now, told = [0.0], list[str]()
    interrupts = Interrupts(lambda: "", lambda: "ending 2 workers", told.append, clock=lambda: now[0])
    interrupts.install()
    with pytest.raises(KeyboardInterrupt, match="terminated by SIGTERM"):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    assert told == ["ending 2 workers", *["attnperf: still ending the run"] * 2]
    now[0] = PATIENCE_S
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_handlers_of_others_stay() -> None:
    """What somebody else handles is left to them, and everything is given back as it was."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    interrupts = Interrupts(lambda: "", lambda: "", nothing_told)
    interrupts.install()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) != signal.default_int_handler
    interrupts.restore()
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_another_thread_takes_nothing_over() -> None:
    """Python allows handlers in the main thread only: a session elsewhere runs without."""
    interrupts = Interrupts(lambda: "", lambda: "", nothing_told)
    thread = threading.Thread(target=interrupts.install)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
