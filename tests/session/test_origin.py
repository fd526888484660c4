"""Whether a results file is of the commit under review, and its pairs of the base."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.origin import other_base, other_commit, require_full

OTHER_COMMIT = "of another commit:"

HEAD, MERGE = "a1b2c3d4e5f6" + "0" * 28, "f" * 40
RUN = RunResult(RESULTS_SCHEMA, "0", "gate", "", "", HEAD[:12], None, None, ())
PAIR = PairSummary(1.0, 1.0, 1.0, 8, "host")


@pytest.mark.parametrize("commit", [HEAD, HEAD[:12], MERGE, MERGE[:20]])
def test_the_commit_under_review_or_its_merge_is_accepted(commit: str) -> None:
    """In full, or as git abbreviates it."""
    assert other_commit(replace(RUN, commit=commit), (HEAD, MERGE)) == []


@pytest.mark.parametrize(
    "commit", ["b" * 40, "unknown", "", HEAD[:12] + "+dirty", HEAD[:11], "A1B2C3D4E5F6", HEAD + "0"]
)
def test_another_commit_is_a_finding(commit: str) -> None:
    """So is one that nobody knows, that has changes, or that is too short to tell; without a demand nothing is."""
    (finding,) = other_commit(replace(RUN, commit=commit), (HEAD, MERGE))
    assert finding.startswith(OTHER_COMMIT)
    assert finding.endswith(f"{commit!r}, to be judged is {HEAD[:12]} or {MERGE[:12]}")
    assert other_commit(replace(RUN, commit=commit), ()) == []


@pytest.mark.parametrize("commit", ["HEAD", "", HEAD[:12], HEAD.upper()])
def test_a_commit_to_be_judged_is_given_in_full(commit: str) -> None:
    """A name or a short id may be another commit later."""
    with pytest.raises(UsageError, match="is no full commit id of 40 hexadecimal digits; `git rev-parse HEAD`"):
        require_full([commit])


@pytest.mark.parametrize(
    ("label", "found"),
    [("main (4f2c1ab8)", 0), ("HEAD (a1b2c3d4)", 1), ("x (4f2c1ab8+dirty)", 1), ("", 1), ("main", 1)],
)
def test_pairs_are_measured_against_the_base(label: str, found: int) -> None:
    """A side that is no commit of its history is a finding, said once; of cases without pairs nothing is asked."""
    case = CaseResult(CaseKey("s", "b", "w"), "n", Verdict.SAME, "", pairs=(PAIR,), against=label)
    run = replace(RUN, cases=(case, case))
    assert len(other_base(run, lambda text: text == "4f2c1ab8")) == found
    assert other_base(run, None) == []
    alone = replace(run, cases=(replace(case, pairs=()),))
    assert other_base(alone, lambda text: False) == []
