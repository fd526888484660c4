"""What a stored entry and a case may be compared in, what was chosen otherwise, and how far a case has crept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.baselines.schema import Anchor, Check, Entry, to_plain
from pytest_attnperf.gate.comparable import (
    advise_on_changes,
    find_creep,
    list_config_changes,
    list_path_changes,
    reasons_not_comparable,
)
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Fingerprint, ProcessSummary
from pytest_attnperf.records.notes import NoteKind, kind_of
from pytest_attnperf.workloads.adhoc import AdHoc
from pytest_attnperf.workloads.defined import LEARNED

if TYPE_CHECKING:
    import torch

HERE = Fingerprint({"product": "h200", "power_cap": "700 W", "method": "1"}, {"torch": "2.11"})
DEFINITION: dict[str, Any] = {"family": "prefill", "shape": (4, 512), "causal": True}


def entry(processes: int = 7, **definition: object) -> Entry:
    """An entry of seven graph-timed processes whose definition was read back from JSON."""
    process = ProcessSummary(10.0, 10.0, 10.0, (10.0,), 20, "graph")
    stored = {"family": "prefill", "shape": [4, 512], "causal": True, **definition}
    return Entry(stored, "e", "p", (process,) * processes, Check(0.5, 0.5), "2026-01-01", "0.1.0")


def reasons(stored: Entry, fingerprint: Fingerprint = HERE, timer: str = "graph", **options: int) -> list[str]:
    """Why `stored`, recorded under `fingerprint`, cannot be compared here."""
    return reasons_not_comparable(stored, fingerprint, HERE, timer=timer, definition=DEFINITION, **options)


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
    found = reasons_not_comparable(entry(), stored, here, timer="event", definition=DEFINITION)
    assert (found, kind_of(found[0])) == (["timer: event here, graph stored"], NoteKind.MACHINE)


def test_a_changed_workload_definition_is_named_by_field() -> None:
    """The same id with another meaning is another case."""
    found = reasons(entry(causal=False, window=128))
    assert found == ["workload causal: True here, False stored", "workload window: absent here, 128 stored"]
    assert set(map(kind_of, found)) == {NoteKind.WORKLOAD}


def inputs_of(rows: int, *, planted: bool = False) -> dict[str, Any]:
    """The definition of a gated function, as a worker says it once its inputs were made."""
    relu = pytest.importorskip("torch").relu
    workload = AdHoc("x", _planted_rows(rows), relu) if planted else AdHoc("x", _rows(rows), relu)
    workload.make_inputs(0, "cpu", planted=False)
    return workload.definition()


def _rows(count: int) -> Callable[[int], torch.Tensor]:
    def inputs(seed: int) -> torch.Tensor:
        import torch

        return torch.randn(count, 8)

    return inputs


def _planted_rows(count: int) -> Callable[[int, bool], torch.Tensor]:
    def inputs(seed: int, planted: bool) -> torch.Tensor:
        import torch

        return torch.randn(count, 8)

    inputs.__qualname__ = _rows(count).__qualname__
    return inputs


def held_against(stored: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Why a function with the definition `now` cannot be compared with an entry of the definition `stored`."""
    written = replace(entry(), workload=to_plain(stored))
    return reasons_not_comparable(written, HERE, HERE, timer="graph", definition=now)


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


@pytest.mark.parametrize(
    ("stored", "now", "expected"),
    [
        ("torch's defaults", "threads 1", ["settings of torch: threads 1 here, torch's defaults stored"]),
        ("threads 1", "threads 1", []),
        ("", "threads 1", []),
        ("threads 1", "", []),
    ],
)
def test_other_settings_of_torch_are_incomparable(stored: str, now: str, expected: list[str]) -> None:
    """A thread count set in a test's body makes a kernel no slower; entries stored before it was known are compared."""
    written = entry()
    written = replace(written, processes=tuple(replace(process, settings=stored) for process in written.processes))
    assert reasons_not_comparable(written, HERE, HERE, timer="graph", definition=DEFINITION, settings=now) == expected


CHOICE = "XBLOCK: 512, num_warps: 4, num_stages: 1"


@pytest.mark.parametrize(
    ("stored", "now", "changes"),
    [
        ({"BLOCK_M": "128"}, {"BLOCK_M": "64"}, ["BLOCK_M: 64 here, 128 stored"]),
        ({}, {"waves_per_eu": "2"}, ["waves_per_eu: 2 here, absent stored"]),
        ({"aiter": "0.1.9"}, {}, ["aiter: absent here, 0.1.9 stored"]),
        ({"a": "1", "b": "2"}, {"b": "3", "a": "2"}, ["a: 2 here, 1 stored", "b: 3 here, 2 stored"]),
        ({"BLOCK_M": "64"}, {"BLOCK_M": "64"}, []),
    ],
)
def test_a_value_that_differs_is_a_change(stored: dict[str, str], now: dict[str, str], changes: list[str]) -> None:
    """Each entry that differs, is new or is gone is one line, in alphabetical order."""
    assert list_config_changes(stored, now) == changes


def test_only_the_parts_of_a_choice_that_differ_are_named() -> None:
    """Of an autotuner's choice only the parameters that changed are said."""
    stored = {"autotuned.triton_poi_0": CHOICE}
    now = {"autotuned.triton_poi_0": "XBLOCK: 1024, num_warps: 8, num_stages: 1"}
    assert list_config_changes(stored, now) == [
        "autotuned.triton_poi_0: XBLOCK: 1024 here, 512 stored; num_warps: 8 here, 4 stored"
    ]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("not padded", "padded"), (CHOICE, "R0_BLOCK: 1, num_warps: 4"), ("BLOCK: 1, odd", "BLOCK: 2, odd")],
)
def test_choices_of_another_make_are_said_whole(theirs: str, ours: str) -> None:
    """Where the parameters themselves are others, both choices are said as they are."""
    changes = list_config_changes({"autotuned.k": theirs}, {"autotuned.k": ours})
    assert changes == [f"autotuned.k: {ours} here, {theirs} stored"]


def test_a_kernel_that_only_one_side_tuned() -> None:
    """Where both sides recorded choices, a kernel of only one of them is a change."""
    stored = {"autotuned.a": CHOICE, "autotuned.b": CHOICE}
    assert list_config_changes(stored, {"autotuned.a": CHOICE}) == [f"autotuned.b: absent here, {CHOICE} stored"]


@pytest.mark.parametrize("stored", [{}, {"compiled": "yes"}])
def test_a_baseline_from_before_choices_were_recorded(stored: dict[str, str]) -> None:
    """Choices are no change against a side that recorded none, in either direction."""
    now = {"autotuned.a": CHOICE, **stored}
    assert list_config_changes(stored, now) == []
    assert list_config_changes(now, stored) == []


@pytest.mark.parametrize(
    "key",
    [
        "config_arch",
        "config_source",
        "attention.config_source",
        "autotuned",
        "built",
        "launches",
        "peak_memory",
        "pinned",
    ],
)
def test_what_says_nothing_of_what_ran_is_no_change(key: str) -> None:
    """Provenance, reasons for unknowns, and what was replayed are never compared."""
    assert list_config_changes({key: "one"}, {key: "another"}) == []
    assert list_config_changes({}, {key: "another"}) == []


def test_an_unknown_value_is_no_change() -> None:
    """What one side could not find out says nothing about the other."""
    assert list_config_changes({"aiter": "unknown"}, {"aiter": "0.1.9"}) == []
    assert list_config_changes({"aiter": "0.1.9"}, {"aiter": "unknown: not installed"}) == []


def test_the_other_side_has_a_name() -> None:
    """Beside a baseline, the other side may be a revision."""
    assert list_config_changes({"a": "1"}, {"a": "2"}, other="on the base side") == ["a: 2 here, 1 on the base side"]


def test_advice_where_an_autotuner_chose_otherwise() -> None:
    """Only a changed choice can be pinned, so only then the option is named, and recording beside it."""
    changes = list_config_changes({"autotuned.k": "not padded"}, {"autotuned.k": "padded"})
    assert "--attnperf-pin-config" in advise_on_changes(changes)
    assert "record the baseline again" in advise_on_changes(changes)
    assert advise_on_changes(["BLOCK_M: 64 here, 128 stored"]) == ""
    assert advise_on_changes([]) == ""


@pytest.mark.parametrize(
    ("stored", "now", "changes"),
    [
        ({"path": "asm"}, {"path": "ck"}, ["path: ck here, asm stored"]),
        ({"attention.path": "opus"}, {"attention.path": "asm"}, ["attention.path: asm here, opus stored"]),
        ({"path": "asm", "BLOCK_M": "64"}, {"path": "asm", "BLOCK_M": "32"}, []),
        ({"path": "asm"}, {}, []),
        ({}, {"path": "asm"}, []),
        ({"path": "unknown: no such function"}, {"path": "asm"}, []),
        ({"paths": "asm", "path_length": "1"}, {"paths": "ck", "path_length": "2"}, []),
    ],
)
def test_a_dispatchers_path_is_told_from_other_changes(
    stored: dict[str, str], now: dict[str, str], changes: list[str]
) -> None:
    """Only what both sides know of a dispatcher's choice counts, not the rest of a configuration."""
    assert list_path_changes(stored, now) == changes


NODE = "suites/test_prefill.py::test_prefill[ck]"


def anchored(median_us: float, anchor: Anchor | None) -> Entry:
    """A stored case of this median; one process is far off and must not matter."""
    processes = tuple(ProcessSummary(us, us, us, (us,), 1, "graph") for us in (median_us, 0.9, median_us, 900.0))
    return Entry({}, "e", "p", processes, Check(0.1, 0.1), "2026-03-01", "0.1.0", "c9", anchor=anchor)


FIRST = Anchor(100.0, "2026-01-02", "e", "c1")


def test_the_finding_says_everything() -> None:
    """Both times, the anchor's day and commit, the percentage, what is allowed, and both commands that accept it."""
    assert find_creep(anchored(105.0, FIRST), 1.02, Policy(), NODE) == (
        "crept: 107.1 us against 100.0 us on 2026-01-02, commit c1: +7.1 % since then, more than the 5 % allowed, "
        "in steps that each passed or were recorded; if it is intended: "
        f'attnperf baselines accept "{NODE}" --reason "WHY" (nothing is measured again), or '
        f'pytest --update-baselines --attnperf-accept="WHY" "{NODE}"'
    )


@pytest.mark.parametrize(
    ("stored_us", "ratio", "found"),
    [(104.0, 1.005, False), (104.0, 1.015, True), (106.0, 1.0, True), (106.0, 0.98, False), (100.0, 1.02, False)],
)
def test_both_steps_count(stored_us: float, ratio: float, found: bool) -> None:
    """What counts is the time now against the anchor: the recorded steps times the one of today."""
    assert bool(find_creep(anchored(stored_us, FIRST), ratio, Policy(), NODE)) is found


@pytest.mark.parametrize(("allowed_percent", "found"), [(10.0, False), (6.5, False), (5.5, True), (0.0, True)])
def test_the_policy_says_how_much_is_allowed(allowed_percent: float, found: bool) -> None:
    """`creep_percent` is the largest creep that is no finding."""
    assert bool(find_creep(anchored(106.0, FIRST), 1.0, Policy(creep_percent=allowed_percent), NODE)) is found


def test_an_entry_without_an_anchor_is_its_own() -> None:
    """Of an entry that is older than the guard only today's ratio is known; a commit that is not known is not said."""
    assert find_creep(anchored(100.0, None), 1.04, Policy(), NODE) is None
    assert find_creep(anchored(100.0, None), 1.08, Policy(), NODE, limit=1.09) is None
    assert find_creep(anchored(100.0, None), 1.10, Policy(), NODE, limit=1.09) is not None
    assert "100.0 us on 2026-03-01, commit c9: +6.0 %" in str(find_creep(anchored(100.0, None), 1.06, Policy(), NODE))
    assert "on 2026-01-02: +6.0 %" in str(
        find_creep(anchored(106.0, Anchor(100.0, "2026-01-02", "e")), 1.0, Policy(), NODE)
    )
