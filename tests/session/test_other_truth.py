"""A case whose reference or inputs give something else than when its time was stored is not compared with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.notes import NoteKind, kind_of

if TYPE_CHECKING:
    from tests.session.conftest import Bench

STORED = {"out": [1.0, -0.5], "inputs(): x": [1.0, 0.25]}


def test_another_truth_is_incomparable_until_it_is_recorded(stored: Bench) -> None:
    """Both figures are named; what rounding moves, and an entry without them, is compared as ever."""
    edited = {**STORED, "out": [1.02, -0.51]}
    assert stored.judge(truth=edited).verdict is Verdict.SAME
    stored.record(truth=STORED)
    assert stored.judge(truth={**STORED, "out": [1.0001, -0.5001]}).verdict is Verdict.SAME
    assert stored.judge().verdict is Verdict.SAME
    result = stored.judge(truth=edited)
    assert result.verdict is Verdict.INCOMPARABLE
    (reason,) = result.reasons
    assert kind_of(reason) is NoteKind.WORKLOAD
    assert "(rms 1.02 here, 1 stored; projection -0.51 here, -0.5 stored)" in reason
    stored.record(truth=edited)
    assert stored.judge(truth=edited).verdict is Verdict.SAME


def test_two_trees_with_another_truth_are_not_compared(stored: Bench) -> None:
    """Pairs do not settle it either: one side does not compute what the other does."""
    stored.against_base(everything=True, truth=STORED)
    assert stored.judge(truth=STORED).verdict is Verdict.SAME
    result = stored.judge(truth={"out": [1.0, 0.4]})
    assert result.verdict is Verdict.INCOMPARABLE
    assert any("-0.5 on the base side" in reason for reason in result.reasons)
