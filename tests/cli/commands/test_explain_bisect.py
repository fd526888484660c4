"""Where `attnperf explain` lets a bisection begin."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import FakeProject
from tests.plugin.printed.arranging import commit_all, run, set_time
from tests.plugin.printed.typed_commands import run_attnperf

UNTRACED = "name one that was fast: the baseline was measured with code that no commit has"


@pytest.mark.parametrize("changed", [False, True])
def test_it_begins_at_a_commit_with_the_code_of_the_baseline(attnperf_project: FakeProject, changed: bool) -> None:
    """Not at one whose files were changed when the baseline was recorded."""
    project = attnperf_project
    set_time(project, 100)
    commit_all(project, "fast")
    project.conftest("# changed\n" * changed)
    assert "baseline written" in run(project, "--update-baselines")
    commit_all(project, "stored")
    set_time(project, 115)
    project.conftest("# slow\n")
    commit_all(project, "slow")
    run(project, "--attnperf")
    said = " ".join(run_attnperf(project, "explain")[1].split())
    assert ("attnperf bisect" in said, UNTRACED in said) == (not changed, changed)
