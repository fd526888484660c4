from __future__ import annotations

import pytest

from pytest_attnperf.gate.config_drift import advice, config_changes, path_changes

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
    assert config_changes(stored, now) == changes


def test_only_the_parts_of_a_choice_that_differ_are_named() -> None:
    """Of an autotuner's choice only the parameters that changed are said."""
    stored = {"autotuned.triton_poi_0": CHOICE}
    now = {"autotuned.triton_poi_0": "XBLOCK: 1024, num_warps: 8, num_stages: 1"}
    assert config_changes(stored, now) == [
        "autotuned.triton_poi_0: XBLOCK: 1024 here, 512 stored; num_warps: 8 here, 4 stored"
    ]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("not padded", "padded"), (CHOICE, "R0_BLOCK: 1, num_warps: 4"), ("BLOCK: 1, odd", "BLOCK: 2, odd")],
)
def test_choices_of_another_make_are_said_whole(theirs: str, ours: str) -> None:
    """Where the parameters themselves are others, both choices are said as they are."""
    changes = config_changes({"autotuned.k": theirs}, {"autotuned.k": ours})
    assert changes == [f"autotuned.k: {ours} here, {theirs} stored"]


def test_a_kernel_that_only_one_side_tuned() -> None:
    """Where both sides recorded choices, a kernel of only one of them is a change."""
    stored = {"autotuned.a": CHOICE, "autotuned.b": CHOICE}
    assert config_changes(stored, {"autotuned.a": CHOICE}) == [f"autotuned.b: absent here, {CHOICE} stored"]


@pytest.mark.parametrize("stored", [{}, {"compiled": "yes"}])
def test_a_baseline_from_before_choices_were_recorded(stored: dict[str, str]) -> None:
    """Choices are no change against a side that recorded none, in either direction."""
    now = {"autotuned.a": CHOICE, **stored}
    assert config_changes(stored, now) == []
    assert config_changes(now, stored) == []


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
    assert config_changes({key: "one"}, {key: "another"}) == []
    assert config_changes({}, {key: "another"}) == []


def test_an_unknown_value_is_no_change() -> None:
    """What one side could not find out says nothing about the other."""
    assert config_changes({"aiter": "unknown"}, {"aiter": "0.1.9"}) == []
    assert config_changes({"aiter": "0.1.9"}, {"aiter": "unknown: not installed"}) == []


def test_the_other_side_has_a_name() -> None:
    """Beside a baseline, the other side may be a revision."""
    assert config_changes({"a": "1"}, {"a": "2"}, other="on the base side") == ["a: 2 here, 1 on the base side"]


def test_advice_where_an_autotuner_chose_otherwise() -> None:
    """Only a changed choice can be pinned, so only then the option is named, and recording beside it."""
    changes = config_changes({"autotuned.k": "not padded"}, {"autotuned.k": "padded"})
    assert "--attnperf-pin-config" in advice(changes)
    assert "record the baseline again" in advice(changes)
    assert advice(["BLOCK_M: 64 here, 128 stored"]) == ""
    assert advice([]) == ""


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
    assert path_changes(stored, now) == changes
