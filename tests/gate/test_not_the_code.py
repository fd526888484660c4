"""When a slowdown against stored processes is not the code's, on synthetic data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.baselines.schema import Check, Entry
from pytest_attnperf.gate import not_the_code as gate
from pytest_attnperf.gate.limits import Decision
from pytest_attnperf.gate.not_the_code import Ran
from pytest_attnperf.records import Launch, ProcessSummary, Verdict
from pytest_attnperf.records.notes import NoteKind, kind_of

KERNEL = Launch("attention", grid=(8, 1, 1), block=(128, 1, 1), isa_hash="a" * 40)
CONFIG = {"BLOCK_M": "64", "autotuned.forward": "num_warps: 4"}
TUNED = {**CONFIG, "autotuned.forward": "num_warps: 8"}
PROCESS = ProcessSummary(10.0, 10.0, 10.0, (10.0,), 20, "graph")
STORED = Entry({}, "e", "p", (PROCESS,) * 7, Check(0.5, 0.5), "2026-01-01", "0.1.0")
ENTRY = replace(STORED, config=CONFIG, launches=(KERNEL,), source_id="s1")
SAME = Ran((KERNEL,), CONFIG, "s1")
SLOW = Decision(Verdict.SLOWER, "+5.0 %", ("noise",), 1.05, (1.04, 1.06), 1.03, False, 0.05, measured="+5.0 %: slow")


def test_what_is_wholly_the_same_is_moved() -> None:
    """Sources, machine code, launches and configuration of every process; names and provenance do not count."""
    renamed = Ran((replace(KERNEL, name="v2"),), {**CONFIG, "config_source": "elsewhere"}, "s1")
    assert gate.is_moved(ENTRY, [SAME, renamed])
    assert gate.find_missing_evidence(ENTRY, [SAME]) is None


@pytest.mark.parametrize(
    "other",
    [replace(SAME, source_id="s2"), replace(SAME, source_id=""), replace(SAME, source_id="s1+b1"),
     replace(SAME, launches=()), replace(SAME, launches=(replace(KERNEL, isa_hash=""),)),
     replace(SAME, launches=(replace(KERNEL, grid=(16, 1, 1)),)), replace(SAME, launches=(KERNEL, KERNEL)),
     replace(SAME, config=TUNED), replace(SAME, config={**CONFIG, "BLOCK_M": "128"})],
)  # fmt: skip
def test_one_process_that_differs_in_anything_is_enough(other: Ran) -> None:
    """Other or unknown sources, a library that was built anew, unknown code, another launch or configuration."""
    assert not gate.is_moved(ENTRY, [SAME, other])
    assert not gate.is_moved(ENTRY, [other])


@pytest.mark.parametrize(
    ("entry", "ran", "said"),
    [
        (replace(ENTRY, source_id=""), SAME, gate.NO_HASH),
        (ENTRY, replace(SAME, source_id=""), gate.NOT_READ),
        (ENTRY, replace(SAME, source_id="s2"), gate.OTHER_SOURCES),
        (ENTRY, replace(SAME, source_id="s2", config=TUNED, launches=()), gate.OTHER_TUNED),
        (ENTRY, replace(SAME, launches=(replace(KERNEL, isa_hash=""),)), gate.UNKNOWN_CODE),
    ],
)
def test_what_alone_is_missing_is_said(entry: Entry, ran: Ran, said: str) -> None:
    """A reason of its kind; nothing where the launches or the configuration say enough by themselves."""
    reason = gate.find_missing_evidence(entry, [ran])
    assert reason is not None
    assert (str(reason), kind_of(reason)) == (said, NoteKind.SOURCES)
    assert gate.find_missing_evidence(entry, [replace(ran, config={**CONFIG, "BLOCK_M": "128"})]) is None


def test_entries_without_a_hash_prove_nothing_to_anyone() -> None:
    """Two unknown sources are not the same sources."""
    old = replace(ENTRY, source_id="")
    assert not gate.has_same_sources(old, [replace(SAME, source_id="")])


def test_choices_apart_are_those_of_autotuners_alone() -> None:
    """Where a backend chose something itself, or nothing differs, there are none."""
    ran = replace(SAME, config=TUNED)
    assert gate.choices_apart(ENTRY, [SAME, ran]) == ("autotuned.forward: num_warps: 8 here, 4 stored",)
    assert gate.choices_apart(ENTRY, [SAME]) == ()
    assert gate.choices_apart(ENTRY, [replace(ran, config={**TUNED, "BLOCK_M": "32"})]) == ()


@pytest.mark.parametrize(
    ("fields", "open_to_it"),
    [({}, True), ({"verdict": Verdict.UNDECIDED}, True), ({"verdict": Verdict.ENVIRONMENT}, True),
     ({"verdict": Verdict.SAME}, False), ({"verdict": Verdict.FASTER}, False), ({"threshold": None}, False)],
)  # fmt: skip
def test_only_slowdowns_are_explained(fields: dict[str, Any], open_to_it: bool) -> None:
    """What is slower than allowed, for certain or not; never under another toolchain, which may pass other values, and
    not where the noise is unknown."""
    decision = replace(SLOW, **fields)
    assert gate.can_be_explained(decision, []) is open_to_it
    assert not gate.can_be_explained(decision, ["torch: 2 here, 1 stored"])


def test_the_words_name_times_and_choices() -> None:
    """Figures of the look stay; the summary says what it is, the reasons what the stored choice showed."""
    moved = gate.as_moved(SLOW)
    assert (moved.verdict, moved.ratio, moved.threshold) == (Verdict.MOVED, SLOW.ratio, SLOW.threshold)
    assert (
        moved.summary
        == "+5.0 %: slow, with the machine code, configuration and sources of its baseline: " + gate.MACHINE
    )
    pinned = replace(SLOW, ratio=1.001, measured="+0.1 %")
    drift = gate.as_drift(SLOW, pinned, 10.01, ("a: 1 here, 2 stored",))
    assert drift.summary == (
        "+5.0 %: slow, but an autotuner chose differently: a: 1 here, 2 stored; with the stored choice it takes "
        "10.01 us (+0.1 %)"
    )
    assert (drift.verdict, kind_of(drift.reasons[0]), drift.reasons[1:]) == (Verdict.DRIFT, NoteKind.PINNED, ("noise",))
    both = gate.as_moved_and_tuned(SLOW, SLOW, ("a: 1 here, 2 stored",))
    assert (both.verdict, "where an autotuner chose differently: a: 1 here" in both.summary) == (Verdict.MOVED, True)
    assert gate.with_reason(SLOW, None) is SLOW
    assert gate.note_not_pinned("gone").about == "gone"


@pytest.mark.parametrize(
    ("stored", "ran", "base", "stale"),
    [("s0", "s1", "s1", True), ("s1", "s1", "s1", False), ("s0", "s2", "s1", False), ("", "s1", "s1", False),
     ("s0", "", "", False), ("s0", "s1", "", False), ("s0", "s1+b1", "s1", False)],
)  # fmt: skip
def test_stale_is_an_entry_before_the_base_revision(stored: str, ran: str, base: str, stale: bool) -> None:
    """The change has the base's sources, and the entry others; never where any of them is not known, or a library was
    built beside them: what it was built with is in no revision."""
    assert gate.is_stale(stored, [replace(SAME, source_id=ran)] * 2, base) is stale
    assert not gate.is_stale(stored, [replace(SAME, source_id=ran), replace(SAME, source_id="s9")], base)


def test_a_stale_entry_is_named_and_nothing_is_compared() -> None:
    """With when and from what it was recorded, the base revision, and the command; what was seen is a reason."""
    said = gate.as_stale(SLOW, replace(ENTRY, commit="c0"), "f" * 40, "pytest --update-baselines x")
    assert said.summary == (
        "not compared: its entry of 2026-01-01 (c0) was recorded with other sources than ffffffffffff, the "
        "base revision, which this change shares; record it again there: pytest --update-baselines x"
    )
    assert (said.verdict, [kind_of(reason) for reason in said.reasons]) == (Verdict.STALE, [NoteKind.SOURCES])
