from __future__ import annotations

from typing import Any

import pytest

from pytest_attnperf.baselines.schema import Check, Entry
from pytest_attnperf.gate.comparable import comparable
from pytest_attnperf.records import Fingerprint, ProcessSummary

HERE = Fingerprint({"product": "h200", "power_cap": "700 W", "method": "1"}, {"torch": "2.11"})
DEFINITION: dict[str, Any] = {"family": "prefill", "shape": (4, 512), "causal": True}


def entry(processes: int = 7, **definition: object) -> Entry:
    """An entry of seven graph-timed processes whose definition was read back from JSON."""
    process = ProcessSummary(10.0, 10.0, 10.0, (10.0,), 20, "graph")
    stored = {"family": "prefill", "shape": [4, 512], "causal": True, **definition}
    return Entry(stored, "e", "p", (process,) * processes, Check(0.5, 0.5), "2026-01-01", "0.1.0")


def reasons(stored: Entry, fingerprint: Fingerprint = HERE, timer: str = "graph", **options: int) -> list[str]:
    """Why `stored`, recorded under `fingerprint`, cannot be compared here."""
    return comparable(stored, fingerprint, HERE, timer=timer, definition=DEFINITION, **options)


def test_the_same_case_on_the_same_machine_is_comparable() -> None:
    """Equal definitions are equal although JSON turned a tuple into a list; named fields may differ."""
    assert reasons(entry(), Fingerprint(HERE.must_match, {"torch": "2.10"})) == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"power_cap": "500 W"}, "power_cap: 700 W here, 500 W stored"),
        ({"method": "0"}, "method: 1 here, 0 stored"),
        ({"product": "h100"}, "product: h200 here, h100 stored"),
        ({"partition": "SPX"}, "partition: absent here, SPX stored"),
    ],
)
def test_a_must_match_field_is_named_with_both_values(changed: dict[str, str], expected: str) -> None:
    """Machine, power cap, partition and method version each make a baseline incomparable."""
    assert reasons(entry(), Fingerprint({**HERE.must_match, **changed}, {})) == [expected]


def test_another_timer_is_never_compared() -> None:
    """A time by events is not compared with one by graph replay, and is named once."""
    assert reasons(entry(), timer="event") == ["timer: event here, graph stored"]
    here = Fingerprint({"timer": "event"}, {})
    stored = Fingerprint({"timer": "graph"}, {})
    found = comparable(entry(), stored, here, timer="event", definition=DEFINITION)
    assert found == ["timer: event here, graph stored"]


def test_a_changed_workload_definition_is_named_by_field() -> None:
    """The same id with another meaning is another case."""
    assert reasons(entry(causal=False, window=128)) == [
        "workload causal: True here, False stored",
        "workload window: absent here, 128 stored",
    ]


def test_too_few_stored_processes_are_no_baseline() -> None:
    """Fewer than seven processes are refused, unless a local baseline asks for fewer."""
    assert reasons(entry(processes=3)) == ["processes: 3 stored, at least 7 needed"]
    assert reasons(entry(processes=3), processes_min=3) == []
