"""Which code the entries of a recording run name: a commit, or '+dirty' and a warning if no commit has that code."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from pytest_attnperf.environment.provenance import is_ci
from pytest_attnperf.plugin.config import RunConfig
from pytest_attnperf.results import RunResult
from pytest_attnperf.workers.tree_state import UNKNOWN, list_uncommitted_sources, mark_dirty, read_tree_state

NAMED_FILES = 3
HOW = "commit first, so that a slowdown can be traced to a commit"


def refuse_uncommitted(asked: RunConfig) -> None:
    """Raises UsageError if a CI run would store baselines of tracked files that differ from the commit."""
    if not (asked.update_baselines and is_ci()):
        return
    tree = read_tree_state(asked.root, asked.baselines)
    if tree.changed:
        raise pytest.UsageError(
            f"--update-baselines under CI: commit {tree.commit} has other content of {_name_files(tree.changed)}, so "
            "that the entries would be of code that no commit has; commit first, or unset CI to record anyway"
        )


def name_recorded_tree(run: RunResult, asked: RunConfig) -> tuple[RunResult, str]:
    """Returns a recording run with the commit that its entries name, and a note if its files differ from that commit;
    and why nothing may be stored, '' if it may: under CI, files were measured that the commit does not have."""
    if run.commit == UNKNOWN:
        return run, ""
    changed = read_tree_state(asked.root, asked.baselines).changed
    added = list_uncommitted_sources(asked.root, (case.sources for case in run.cases))
    if added and is_ci():
        return run, f"no baseline was written: commit {run.commit} does not have {_name_files(added)}, which ran; {HOW}"
    run = replace(run, commit=mark_dirty(run.commit)) if added else run
    files = {*changed, *added}
    if not files or run.commit != mark_dirty(run.commit):
        return run, ""
    note = f"the entries name {run.commit}: no commit has the code that ran, in {_name_files(files)}; {HOW}"
    return replace(run, notes=(*run.notes, note)), ""


def mark_uncommitted(run: RunResult, asked: RunConfig) -> RunResult:
    """Returns a calibrating run with '+dirty' at its commit if files ran that the commit does not have: what is stored
    from its results later must not name that commit."""
    added = list_uncommitted_sources(asked.root, (case.sources for case in run.cases))
    return replace(run, commit=mark_dirty(run.commit)) if added else run


def _name_files(files: Collection[str]) -> str:
    """Returns '2 files (a.py, b.py)', the first NAMED_FILES by name."""
    first = ", ".join(sorted(files)[:NAMED_FILES])
    more = ", ..." if len(files) > NAMED_FILES else ""
    return f"{len(files)} file{'s' * (len(files) != 1)} ({first}{more})"
