from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pytest_attnperf.records import DeviceState
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.run.conditions import condition_lines, interleaved_line
from pytest_attnperf.results import CaseResult, RunResult

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]


def test_everything_that_disturbed_is_said(run: RunFactory) -> None:
    """Other processes, throttling with its seconds, notes, and the readings worth a glance, a line each."""
    state = DeviceState(
        before={"sm_clock_mhz": "1980", "temperature_c": "41", "power_w": "110", "fan_percent": "30"},
        after={"sm_clock_mhz": "1830", "temperature_c": "66", "fan_percent": "60"},
        throttled_s={"thermal": 0.049, "power cap": 2.26, "hw slowdown": 0.1},
        other_processes=("4711 python", "4712 train\x1b[2J"),
        notes=("exclusive mode",),
    )
    assert condition_lines(run(device_state=state)) == [
        "another compute process was on the device: 4711 python",
        "another compute process was on the device: 4712 train [2J",
        "the device was held back during the run: hw slowdown 0.1 s, power cap 2.3 s",
        "device: exclusive mode",
        "device before -> after: sm_clock_mhz 1980 -> 1830, temperature_c 41 -> 66",
    ]


def test_a_quiet_device_needs_no_line(run: RunFactory) -> None:
    """Nothing is said of a device that was not asked, of one that says nothing, and of a blink of throttling."""
    assert condition_lines(run(device_state=None)) == []
    assert condition_lines(run(device_state=DeviceState())) == []
    blink = DeviceState(before={"fan_percent": "30"}, after={"fan_percent": "60"}, throttled_s={"power cap": 0.04})
    assert condition_lines(run(device_state=blink)) == []


def test_what_pairs_took_is_one_line(case: CaseFactory, run: RunFactory) -> None:
    """Cases, pairs of each, seconds of turns and wall seconds; cases that were not interleaved do not count."""
    pairs = tuple(PairSummary(1.01, 100.0, 101.0, 8, "graph", seconds=seconds) for seconds in (1.5, 2.0))
    cases = (case(pairs=pairs, seconds=20.25), case("b", pairs=pairs[:1], seconds=10.0), case("c", seconds=99.0))
    assert interleaved_line(run(*cases, against="main\n(4f2c1ab)")) == (
        "2 cases settled by A B B A against main (4f2c1ab) in 2 pairs of fresh processes: 5.0 s of turns, 30.2 s in all"
    )
    assert interleaved_line(run(case(), against="main")) == ""
