from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure import timers
from pytest_attnperf.measure.timers import TIMERS, timer_names
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.measure.timers.timer import Call, TimerKind


class Plain(TimerKind):
    """Whole: made as `Timer` says."""

    name = "plain"
    note = ""
    on_cpu = True

    def prepare(self, call: Call, block_us: float) -> None:
        """Keeps the call."""
        self._call = call

    def measure(self, pairs: int) -> list[float]:
        """Nothing is measured."""
        return [1.0] * pairs

    def run_once(self, *, poisoned: bool = True) -> Any:
        """One call."""
        return self._call()

    def close(self) -> None:
        """Nothing to free."""


class NoName(HostTimer):
    """Has its base's."""


class Nameless(Plain):
    """Its name is no word."""

    name = "Mine 1"


class Rule(Plain):
    """Its name is taken."""

    name = "auto"


class Bare(TimerKind):
    """Nothing but a name."""

    name = "bare"


class Unnamed(TimerKind):
    """Not even that."""


class Baseless:
    """As `Plain` without its base class."""

    name = "baseless"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (NoName, "timer NoName has the name 'host' of HostTimer; give the class a `name` of its own"),
        (Nameless, "timer Nameless has the name 'Mine 1'; use lower-case letters, digits and _"),
        (Rule, "timer Rule has the name 'auto' of the rule; give the class a `name` of its own"),
        (
            Bare,
            "timer Bare lacks note, prepare(), measure(), run_once(), close(), which Timer in pytest_attnperf",
        ),
        (Unnamed, "timer Unnamed lacks name, note, prepare(), measure(), run_once(), close(), which"),
        (Baseless, "timer Baseless needs the base class TimerKind (pytest_attnperf/measure/timers/timer.py)"),
    ],
)
def test_a_class_that_is_no_whole_timer_is_named(monkeypatch: pytest.MonkeyPatch, entry: Any, said: str) -> None:
    """With its file and line and all that it lacks, before anything is measured."""
    monkeypatch.setattr(timers, "TIMERS", (*TIMERS, Plain, entry))
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.startswith(f"class {entry.__name__}"))
    with pytest.raises(UsageError, match=f"^{re.escape(f'{__file__}:{line}: {said}')}"):
        timer_names()


@pytest.mark.parametrize("entry", [HostTimer(), "host"])
def test_an_entry_that_is_no_class_is_named(monkeypatch: pytest.MonkeyPatch, entry: Any) -> None:
    """With what it is, and the table's file."""
    monkeypatch.setattr(timers, "TIMERS", (*TIMERS, entry))
    kind = type(entry).__name__
    with pytest.raises(
        UsageError, match=rf"^TIMERS of \S+/timers/__init__.py has a {kind}, .*; list the timer's class"
    ):
        timer_names()


def test_the_names_are_those_of_whole_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer needs no more than its name, a note and the methods."""
    monkeypatch.setattr(timers, "TIMERS", (*TIMERS, Plain))
    assert timer_names()[-1] == "plain"


def test_a_run_ends_with_the_sentence(tmp_path: Path) -> None:
    """A usage error of pytest, without a traceback, before anything is measured."""
    (tmp_path / "conftest.py").write_text(
        "from pytest_attnperf.measure import timers\n\n\n"
        "class Mine(timers.HostTimer):\n    pass\n\n\ntimers.TIMERS = (*timers.TIMERS, Mine)\n"
    )
    (tmp_path / "test_nothing.py").write_text("def test_nothing(attnperf):\n    pass\n")
    command = [sys.executable, "-m", "pytest", "--attnperf", "-p", "no:cacheprovider", "-p", "no:xdist"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 4, ran.stdout + ran.stderr
    assert f"{tmp_path}/conftest.py:4: timer Mine has the name 'host' of HostTimer" in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr
