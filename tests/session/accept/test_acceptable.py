from dataclasses import replace

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.session.accept.acceptable import require_acceptable, require_run
from pytest_attnperf.testing.sample_runs import sample_run


def test_another_tree_is_not_accepted_from() -> None:
    """Times of --attnperf-candidate are not those of the working tree, whose baseline they would become."""
    run = replace(sample_run(1), mode="gate", complete=True)
    require_run(run)
    with pytest.raises(UsageError, match="not the working tree; accept from a run without it"):
        require_run(replace(run, notes=(Note(NoteKind.CANDIDATE, "candidate: image rocm/pytorch:7.0 (docker)"),)))


@pytest.mark.parametrize("letter", ["\n::set-output name=a::b", "\x1b", "\x85", "\u202e"])
def test_a_name_that_no_terminal_shows_is_not_stored(letter: str) -> None:
    """A line break, control letters and what turns the direction of writing are refused in a case's key."""
    run = sample_run(1)
    case = replace(run.cases[0], key=replace(run.cases[0].key, label=f"a{letter}"))
    with pytest.raises(UsageError, match=r"the key 'prefill/.*\\.*' has unprintable characters"):
        require_acceptable(run, case, None)
