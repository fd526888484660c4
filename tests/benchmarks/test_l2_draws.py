from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "benchmarks" / "l2_draws.py"
spec = importlib.util.spec_from_file_location("l2_draws", SOURCE)
assert spec is not None
assert spec.loader is not None
l2_draws = importlib.util.module_from_spec(spec)
sys.modules["l2_draws"] = l2_draws
spec.loader.exec_module(l2_draws)


def test_a_process_reports_the_mean_over_places_and_draws() -> None:
    """One fast draw of three counts for a third of its place, and a place as much as any other."""
    assert l2_draws.time_of({"us": [[9.0, 12.0, 12.0], [13.0]]}) == 12.0


def test_the_report_compares_every_way_with_the_first() -> None:
    """Standard deviations are over processes of one card, in per cent, and shifts are from the first way's mean."""
    ways = l2_draws.WAYS["gap"]
    lines = [
        {
            "case": "a",
            "card": "GPU-0001",
            "ways": {way.name: {"us": [[10.0 + process + index]]} for index, way in enumerate(ways)},
        }
        for process in (0, 2)
    ]
    row = l2_draws.report(lines).splitlines()[2].split()
    assert row[:4] == ["a", "0001", "2", "11"]
    assert row[4] == "12.86"
    assert row[4 + len(ways)] == "9.09"


def test_cards_are_not_mixed() -> None:
    """Two cards are two rows: what lies between cards is no spread of processes."""
    lines = [
        {"case": "a", "card": card, "ways": {way.name: {"us": [[us]]} for way in l2_draws.WAYS["fill"]}}
        for card, us in (("GPU-0001", 10.0), ("GPU-0001", 10.0), ("GPU-0002", 20.0), ("GPU-0002", 20.0))
    ]
    rows = [line.split()[1:5] for line in l2_draws.report(lines).splitlines()[2:]]
    assert rows == [["0001", "2", "10", "0.00"], ["0002", "2", "20", "0.00"]]


@pytest.mark.parametrize("name", ["fill", "gap"])
def test_ways_have_names_of_their_own(name: str) -> None:
    """The report finds out by their names which ways were compared."""
    names = [way.name for way in l2_draws.WAYS[name]]
    assert len(set(names)) == len(names)


def test_what_the_clock_explains_is_taken_out() -> None:
    """Times that are a line of the clock leave nothing, and correlate fully."""
    name = l2_draws.WAYS["fill"][0].name
    lines = [
        {"case": "a", "card": "GPU-0001", "ways": {name: {"us": [[us]], "mhz": mhz}}}
        for mhz, us in ((1800.0, 12.0), (1850.0, 11.5), (1900.0, 11.0))
    ]
    assert l2_draws.report_clock(lines, name).splitlines()[2].split()[4:] == ["-1.00", "4.35", "0.00"]
