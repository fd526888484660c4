from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_attnperf.baselines.schema import Check, Entry, plain
from pytest_attnperf.gate.comparable import comparable
from pytest_attnperf.records import Fingerprint, ProcessSummary
from pytest_attnperf.records.notes import NoteKind, kind_of
from pytest_attnperf.workloads.adhoc import AdHoc
from pytest_attnperf.workloads.defined import LEARNED

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
    found = reasons(entry(), Fingerprint({**HERE.must_match, **changed}, {}))
    assert (found, kind_of(found[0])) == ([expected], NoteKind.MACHINE)


def test_another_timer_is_never_compared() -> None:
    """A time by events is not compared with one by graph replay, and is named once."""
    assert reasons(entry(), timer="event") == ["timer: event here, graph stored"]
    here = Fingerprint({"timer": "event"}, {})
    stored = Fingerprint({"timer": "graph"}, {})
    found = comparable(entry(), stored, here, timer="event", definition=DEFINITION)
    assert (found, kind_of(found[0])) == (["timer: event here, graph stored"], NoteKind.MACHINE)


def test_a_changed_workload_definition_is_named_by_field() -> None:
    """The same id with another meaning is another case."""
    found = reasons(entry(causal=False, window=128))
    assert found == ["workload causal: True here, False stored", "workload window: absent here, 128 stored"]
    assert set(map(kind_of, found)) == {NoteKind.WORKLOAD}


def inputs_of(rows: int, *, planted: bool = False) -> dict[str, Any]:
    """The definition of a gated function, as a worker says it once its inputs were made."""
    workload = AdHoc("x", _planted_rows(rows), torch.relu) if planted else AdHoc("x", _rows(rows), torch.relu)
    workload.make_inputs(0, "cpu", planted=False)
    return workload.definition()


def _rows(count: int) -> Callable[[int], torch.Tensor]:
    def inputs(seed: int) -> torch.Tensor:
        return torch.randn(count, 8)

    return inputs


def _planted_rows(count: int) -> Callable[[int, bool], torch.Tensor]:
    def inputs(seed: int, planted: bool) -> torch.Tensor:
        return torch.randn(count, 8)

    inputs.__qualname__ = _rows(count).__qualname__
    return inputs


def held_against(stored: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Why a function with the definition `now` cannot be compared with an entry of the definition `stored`."""
    written = replace(entry(), workload=plain(stored))
    return comparable(written, HERE, HERE, timer="graph", definition=now)


def test_other_inputs_of_a_function_of_the_same_name_are_another_case() -> None:
    """A quarter of the rows, or inputs() that plants no more, is named with both values; the same inputs are not."""
    assert held_against(inputs_of(64), inputs_of(64)) == []
    assert held_against(inputs_of(64), inputs_of(16)) == [
        "workload tensors: (16, 8) float32 here, (64, 8) float32 stored"
    ]
    assert held_against(inputs_of(64, planted=True), inputs_of(64)) == ["workload plants: False here, True stored"]


def test_what_an_earlier_version_did_not_store_of_inputs_is_no_change() -> None:
    """An entry without shapes is comparable with any; what is stored and not said any more is a change."""
    old = {name: value for name, value in inputs_of(64).items() if name not in LEARNED}
    assert held_against(old, inputs_of(64)) == []
    assert held_against(old, inputs_of(16)) == []
    assert len(held_against(inputs_of(64), old)) == 2


def test_too_few_stored_processes_are_no_baseline() -> None:
    """Fewer than seven processes are refused, unless a local baseline asks for fewer."""
    assert reasons(entry(processes=3)) == ["processes: 3 stored, at least 7 needed"]
    assert reasons(entry(processes=3), processes_min=3) == []
