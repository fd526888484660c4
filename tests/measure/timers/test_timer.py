from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import timers
from pytest_attnperf.measure.timers import TIMERS, choose_timer, timer_names
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.measure.timers.timer import (
    MAX_CALLS_PER_BLOCK,
    CallParts,
    TimerKind,
    TimerMaterial,
    count_calls_per_block,
)
from pytest_attnperf.measure.timers.timer_table import LISTED_IN


@pytest.mark.parametrize(
    ("block_us", "call_us", "calls"),
    [
        (1000.0, 5.25, 191),
        (1000.0, 1000.0, 1),
        (1000.0, 999.0, 2),
        (1000.0, 50_000.0, 1),
        (1000.0, 0.1, MAX_CALLS_PER_BLOCK),
        (1000.0, 0.0, MAX_CALLS_PER_BLOCK),
        (2000.0, 500.0, 4),
    ],
)
def test_calls_per_block(block_us: float, call_us: float, calls: int) -> None:
    """A block holds the fewest calls that fill it, at least one and at most the bound."""
    assert count_calls_per_block(block_us, call_us) == calls


def test_timer_names() -> None:
    """Every timer has a name of its own, because the name decides what is comparable."""
    names = [timer.name for timer in TIMERS]
    assert len(set(names)) == len(names)
    assert timer_names() == ("auto", *names)


class WallTimer(HostTimer):
    """Made as CONTRIBUTING.md says."""

    name = "wall"


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line in the one list."""
    monkeypatch.setattr(timers, "TIMERS", (*TIMERS, WallTimer))


@pytest.mark.usefixtures("wall")
def test_a_new_timer_is_one_class_and_one_line() -> None:
    """It is used where it is asked for by name and offered among the names; the rule goes on to choose the usual."""
    assert isinstance(choose_timer("cpu", lambda: 1, 10.0, asked="wall"), WallTimer)
    assert choose_timer("cpu", lambda: 1, 10.0).name == "host"
    assert timer_names()[-1] == "wall"


@pytest.mark.usefixtures("wall")
@pytest.mark.parametrize(
    ("torch_device", "cache_state", "message"),
    [("cuda", "hot", "a GPU's work goes on after"), ("cpu", "cold", "measures with a hot cache")],
)
def test_a_new_timer_is_refused_by_what_its_class_says(torch_device: str, cache_state: str, message: str) -> None:
    """On another device than its own, and with another cache."""
    with pytest.raises(CaseFailedError, match=message):
        choose_timer(torch_device, lambda: 1, 10.0, cache_state, "wall")


def test_a_timer_without_on_cpu_is_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs a GPU unless its class says otherwise."""
    monkeypatch.setattr(WallTimer, "on_cpu", False)
    monkeypatch.setattr(timers, "TIMERS", (*TIMERS, WallTimer))
    with pytest.raises(
        CaseFailedError, match=r"it needs a GPU; .*; a timer whose calls run on a CPU has on_cpu = True"
    ):
        choose_timer("cpu", lambda: 1, 10.0, asked="wall")


@pytest.mark.parametrize("name", ["sundial", ""])
def test_a_name_in_no_table_is_refused(name: str) -> None:
    """With the names that there are, whatever the device: no timer takes its place."""
    said = f"unknown timer '{name}'; there are: {', '.join(timer_names())} (TIMERS of {LISTED_IN})"
    for torch_device in ("cpu", "cuda"):
        with pytest.raises(CaseFailedError, match=re.escape(said)):
            choose_timer(torch_device, lambda: 1, 10.0, asked=name)


@pytest.mark.parametrize("kind", TIMERS)
def test_every_timer_of_the_table_says_what_it_needs(kind: type[TimerKind]) -> None:
    """Its class makes it of what there is, its substitute is a timer, and the page of timers describes it."""
    if kind.cache_state == "cold":
        with pytest.raises(CaseFailedError, match="a cold time needs copies"):
            kind.make(TimerMaterial(lambda: None))
    else:
        made = kind.make(TimerMaterial(lambda: None, parts=CallParts(tuple, int) if kind.in_parts else None))
        assert (type(made), made.name, made.cache_state) == (kind, kind.name, kind.cache_state)
    assert kind.substitute in {"", *timer_names()}
    page = Path(__file__).parents[3].joinpath("docs/how-a-number-is-made.md").read_text()
    row = f"| `{kind.name}` | {kind.cache_state} |"
    assert row in page, (
        f"add a row to the table of timers in docs/how-a-number-is-made.md: {row} WHAT IS TIMED | WHEN IT IS CHOSEN |"
    )
