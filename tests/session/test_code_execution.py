"""What executing a kernel's machine code does to its verdict."""

from __future__ import annotations

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeExecution, CodeResult
from pytest_attnperf.session.code_session import FAILING, apply_execution

KEY = CaseKey("code_objects", "triton.flash", "d256-f16", "gfx942")


@pytest.mark.parametrize(
    ("outcome", "verdict", "fails"),
    [
        ("right", Verdict.NO_BASELINE, False),
        ("not executed", Verdict.NO_BASELINE, False),
        ("wrong", Verdict.INCORRECT, True),
        ("unproven", Verdict.ERROR, True),
    ],
)
def test_what_executing_shows_decides_before_the_comparison(outcome: str, verdict: Verdict, fails: bool) -> None:
    """A wrong kernel is INCORRECT and an unproven one an ERROR, and what the comparison said stays as a note; one that
    is not executed keeps its verdict, with a note that says why."""
    base = CodeResult(KEY, "t.py::k", Verdict.NO_BASELINE, "nothing is stored")
    found = apply_execution(base, CodeExecution(outcome, "why"))
    assert (found.verdict, found.verdict in FAILING) == (verdict, fails)
    assert found.executed == CodeExecution(outcome, "why")
    assert found.summary == ("executed: why" if fails else "nothing is stored")
    notes = {"right": (), "not executed": ("not executed: why",)}
    compared = ("compared with the stored object: NO_BASELINE, nothing is stored",)
    assert found.notes == notes.get(outcome, compared)
    assert apply_execution(base, None) == base
