"""The entries that this repository stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.baselines.schema import decode_baseline
from pytest_attnperf.workers.revisions import Repository
from pytest_attnperf.workers.source_tree import Revisions

ROOT = Path(__file__).parents[2]
FOLDERS = frozenset({"kernels", "suites"})


UNTRACED_MOST = 51
"""Entries of uncommitted code, recorded before such recordings were refused in CI; none may be added."""


def test_every_stored_commit_has_the_sources_that_were_measured() -> None:
    """An entry names a commit whose kernels and suites have the entry's source id, or says '+dirty'."""
    files = [decode_baseline(path.read_bytes(), path.name) for path in sorted(ROOT.glob("baselines/sm_*/*/*.json"))]
    entries = [entry for file in files for entry in file.entries.values()]
    traced = {(entry.commit, entry.source_id) for entry in entries if not entry.commit.endswith("+dirty")}
    assert traced
    assert sum(entry.commit.endswith("+dirty") for entry in entries) <= UNTRACED_MOST
    repository = Repository.find_around(ROOT)
    if repository is None or not any(repository.has_commit(commit) for commit, _ in traced):
        pytest.skip("needs the repository's history, which this copy does not have")
    revisions = Revisions(repository, ROOT, "HEAD")
    assert [one for one in traced if one[1] != revisions.sources_of(one[0], FOLDERS)] == []
