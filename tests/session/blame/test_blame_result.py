from __future__ import annotations

import math
import re

import pytest

from pytest_attnperf.session.blame.blame_result import (
    BlameOutcome,
    CaseBlame,
    GroupConclusion,
    JudgedGroup,
    describe_question,
    format_effect,
    render_case,
    render_summary,
)
from pytest_attnperf.session.blame.case_search import Question
from pytest_attnperf.session.blame.effects import OLD, Effect

VERSIONS = {"triton": "3.4.0 -> 3.6.0", "torch": "2.8.0 -> 2.9.0"}
TOTAL = Effect(math.log(1.448), 0.005, 8)
NOTHING = Effect(0.0, 0.01, 0)
BLAMED = JudgedGroup(("triton",), GroupConclusion.BLAMED, TOTAL, TOTAL)
OTHERS = JudgedGroup(("torch", "numpy"), GroupConclusion.INNOCENT, NOTHING, NOTHING)


def _case(outcome: BlameOutcome, *suspects: JudgedGroup, others: JudgedGroup | None = None) -> CaseBlame:
    return CaseBlame("a.py::test[x]", outcome, TOTAL, 0.037, suspects, others, 5, 24)


def test_a_table() -> None:
    """Of an explained case: the change, and a row for the blamed component and for all others."""
    assert render_case(_case(BlameOutcome.EXPLAINED, BLAMED, others=OTHERS), VERSIONS) == [
        "a.py::test[x]",
        "  new against old: +44.8 % (+44.1..+45.5): explained; blamed above 1.9 %; 5 comparisons, 24 pairs",
        "  component               old -> new      in the old environment  in the new environment  conclusion",
        "  triton                  3.4.0 -> 3.6.0  +44.8 % (+44.1..+45.5)  +44.8 % (+44.1..+45.5)  blamed",
        "  2 others: torch, numpy                  0.0 % (-1.0..+1.0)      0.0 % (-1.0..+1.0)      innocent",
    ]


def test_a_group_that_was_not_separated() -> None:
    """It stands in braces, with why an environment gave no ratio below the table."""
    why = "import torch: no symbol\nx"
    group = JudgedGroup(("torch", "triton"), GroupConclusion.NOT_SEPARATED, None, TOTAL, into_why=why)
    lines = render_case(_case(BlameOutcome.NOT_SEPARATED, group), VERSIONS)
    assert lines[-2].startswith("  {torch, triton} ")
    assert re.search(r" -  +\+44\.8 % \(\+44\.1\.\.\+45\.5\)  +not separated$", lines[-2])
    assert lines[-1] == "  old environment with new torch, triton: import torch: no symbol"


def test_cases_without_a_table() -> None:
    """An unchanged, an undecided and an unmeasured case say so in one line."""
    same = CaseBlame("a", BlameOutcome.UNCHANGED, NOTHING, math.log(1.01))
    assert render_case(same, {})[1:] == ["  new against old: 0.0 % (-1.0..+1.0): no change of 1 % or more"]
    noisy = CaseBlame("a", BlameOutcome.UNDECIDED, NOTHING, 0.01)
    assert render_case(noisy, {})[1].endswith("undecided whether it changed; raise --pairs-max, or --threshold")
    failed = CaseBlame("a", BlameOutcome.NOT_MEASURED, why="INCORRECT: dq\nmore")
    assert render_case(failed, {}) == ["a", "  not measured: INCORRECT: dq", "  more"]


def test_the_summary() -> None:
    """Each component with the range of what it costs, and groups that were not separated, with their cases."""
    smaller = JudgedGroup(("triton",), GroupConclusion.BLAMED, Effect(math.log(1.02), 0.001), TOTAL)
    apart = [JudgedGroup((name,), GroupConclusion.NOT_SEPARATED) for name in ("torch", "triton")]
    cases = [
        _case(BlameOutcome.EXPLAINED, BLAMED),
        _case(BlameOutcome.EXPLAINED, smaller),
        _case(BlameOutcome.NOT_SEPARATED, *apart),
        CaseBlame("a", BlameOutcome.UNCHANGED, NOTHING, 0.01),
    ]
    assert render_summary(cases, VERSIONS) == [
        "3 of 4 cases changed, 2 explained",
        "triton 3.4.0 -> 3.6.0: +2.0 % to +44.8 % in 2 cases",
        "could not be separated in 1 case: {torch, triton}",
    ]


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (Question(OLD, frozenset("abc"), 8), "new against old: 8 pairs, 1 case"),
        (Question(OLD, frozenset("a"), 4), "old with new a against old: 4 pairs, 1 case"),
        (Question(frozenset("bc"), frozenset("abc"), 4), "new against new with old a: 4 pairs, 1 case"),
        (Question(OLD, frozenset("a"), 0), "starting old, and old with new a"),
    ],
)
def test_progress(question: Question, text: str) -> None:
    """A line says which environments are compared, by what is fewer: new components in old, or old ones in new."""
    assert describe_question(question, 1, ("a", "b", "c")) == text


def test_an_effect_without_bounds() -> None:
    """A hopeless interval is printed, and nothing that was not measured is a dash."""
    assert format_effect(None) == "-"
    assert format_effect(Effect(0.0, math.inf)).startswith("0.0 % (-100.0..+")
