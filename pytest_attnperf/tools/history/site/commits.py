"""Groups the runs of a store by commit, in order of time, and names the pages of the commits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.history.bulk_reading import StoredRun
from pytest_attnperf.tools.history.history_text import parse_moment
from pytest_attnperf.tools.history.site.site_files import COMMITS, make_page_name

DIGITS_SHOWN = 12
NAME_LIMIT = 24
MINUTE = 16
_UNNAMED = ("", "unknown")
_HASH = re.compile(r"[0-9a-f]{7,64}")
_GITHUB = re.compile(r"(https?://[\w.:-]+/[\w.-]+/[\w.-]+)/actions/runs/\d+")
_GITLAB = re.compile(r"(https?://[\w.:-]+(?:/[\w.-]+)+)/-/jobs/\d+")


@dataclass(frozen=True)
class SiteCommit:
    """A commit with its runs, oldest first. A run without a known commit is a commit of its own.

    number    its place in time, from 0
    commit    as the runs wrote it, '' if unknown; '+dirty' at its end is another commit
    file      path of its page below the site's folder
    address   of the commit in its source repository, http(s) only; '' if unknown
    """

    number: int
    commit: str
    runs: tuple[StoredRun, ...]
    file: str
    address: str = ""

    @property
    def name(self) -> str:
        """The first digits of the commit, and its suffix if the tree was changed; without a commit, 'unknown' and the
        run's start."""
        if not self.commit:
            return f"unknown, {format_minute(self.runs[0].started)}"
        return shorten_commit(self.commit)


def group_commits(runs: Iterable[StoredRun]) -> list[SiteCommit]:
    """Returns the commits of `runs`, in the order of their first run."""
    ordered = sorted(runs, key=lambda run: (run.seconds, run.run_id))
    grouped: dict[tuple[str, str], list[StoredRun]] = {}
    for run in ordered:
        commit = "" if run.commit.partition("+")[0] in _UNNAMED else run.commit
        grouped.setdefault((commit, "" if commit else run.run_id), []).append(run)
    repositories = {one for run in ordered if (one := find_repository(run.provenance))}
    only = repositories.pop() if len(repositories) == 1 else ""
    return [
        SiteCommit(
            number, commit, tuple(own), make_page_name(COMMITS, commit[:DIGITS_SHOWN], commit, run_id),
            find_address(commit, own, only),
        )
        for number, ((commit, run_id), own) in enumerate(grouped.items())
    ]  # fmt: skip


def find_repository(provenance: Mapping[str, str]) -> str:
    """Returns what the address of a commit starts with, from the address of the CI job that ran it; '' if unknown."""
    address = provenance.get("ci_url", "")
    if github := _GITHUB.fullmatch(address):
        return f"{github.group(1)}/commit/"
    if gitlab := _GITLAB.fullmatch(address):
        return f"{gitlab.group(1)}/-/commit/"
    return ""


def find_address(commit: str, runs: Iterable[StoredRun], only: str) -> str:
    """Returns the http(s) address of a commit in its source repository; '' if unknown. `only` is the repository of all
    runs that name one, for commits whose own runs name none."""
    digits = commit.partition("+")[0]
    if not _HASH.fullmatch(digits):
        return ""
    repository = next((one for run in runs if (one := find_repository(run.provenance))), only)
    return f"{repository}{digits}" if repository else ""


def shorten_commit(commit: str) -> str:
    """Returns the first twelve digits of a commit and, if the tree was changed, the suffix; 'unknown' for ''."""
    name, plus, rest = commit.partition("+")
    return one_line(f"{name[:DIGITS_SHOWN]}{plus}{rest}", NAME_LIMIT) or "unknown"


def format_minute(started: str) -> str:
    """Returns an ISO time as '2026-01-31 12:00' in UTC; the first characters of a text that is no time."""
    moment = parse_moment(started)
    return one_line((started if moment is None else moment.isoformat(" "))[:MINUTE], MINUTE)
