"""Writes the site of a store: reads cases in batches, writes their pages, and then those of commits and the first one.

Batches are read and drawn by several processes if there are many measurements. The same store gives the same bytes,
whatever the number of processes.
"""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.atomic_file import replace_file
from pytest_attnperf.reports.html.embedding import Json, script_json
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.history.bulk_reading import (
    BulkFilter,
    CaseRuns,
    StoreContents,
    load_case_runs,
    load_contents,
)
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_store import HistoryStore, open_store
from pytest_attnperf.tools.history.site.case_page import render_case_page
from pytest_attnperf.tools.history.site.case_summary import CaseSummary, make_series, summarise_case
from pytest_attnperf.tools.history.site.commit_page import (
    DeviceFacts,
    collect_commit_times,
    list_device_facts,
    render_commit_page,
)
from pytest_attnperf.tools.history.site.commits import SiteCommit, format_minute, group_commits
from pytest_attnperf.tools.history.site.index_page import collect_case_names, render_index_page
from pytest_attnperf.tools.history.site.lasting_changes import LastingChange
from pytest_attnperf.tools.history.site.site_files import (
    CASE_NAMES,
    INDEX,
    MARKER,
    MARKER_TEXT,
    RUN_NAMES,
    SCRIPT,
    STYLE,
    claim_folder,
    remove_others,
)
from pytest_attnperf.tools.history.site.site_templates import join_site_script, join_style, load_site_template

BATCH = 50
MOST_PROCESSES = 8
PARALLEL_FROM = 200
"""Cases from which on several processes are worth their start."""

EVERY_SECONDS = 3.0
PAGES = ("index_page", "case_page", "commit_page")
"""Kinds of pages: each is a template and the file that fills it."""


@dataclass(frozen=True)
class WrittenSite:
    """What was written: numbers of cases and commits, files and their bytes, and files removed."""

    cases: int
    commits: int
    files: int
    size_bytes: int
    removed: int


@dataclass
class _Tally:
    """Writes the site's files below `folder`, and counts them and their bytes."""

    folder: Path
    paths: set[str] = field(default_factory=set)
    size_bytes: int = 0

    def write(self, path: str, text: str) -> None:
        data = text.encode("utf-8", "replace")
        replace_file(self.folder / path, data, flush=False)
        self.add(path, len(data))

    def add(self, path: str, size_bytes: int) -> None:
        self.paths.add(path)
        self.size_bytes += size_bytes


@dataclass(frozen=True)
class _Plan:
    """What a process needs to draw cases: numbers of cases are places in `contents.cases`."""

    url: str
    folder: Path
    asked: BulkFilter
    contents: StoreContents
    commits: tuple[SiteCommit, ...]
    commit_of: Mapping[int, int]
    places: Mapping[int, int]


@dataclass(frozen=True)
class DrawnBatch:
    """Cases whose pages are written, with the bytes of each, and the number of their runs by (commit, device, machine,
    environment)."""

    cases: tuple[CaseSummary, ...]
    sizes_bytes: tuple[int, ...]
    environments: Counter[tuple[int, str, int, int]]


class _Progress:
    """Reports how many of `total` pages are written, at most every EVERY_SECONDS."""

    def __init__(self, total: int, what: str, report: Callable[[str], None]) -> None:
        self.total, self.what, self.report = total, what, report
        self.done, self.told = 0, time.monotonic()

    def advance(self, count: int) -> None:
        """Counts pages as written, and reports if it is time."""
        self.done += count
        if time.monotonic() - self.told >= EVERY_SECONDS:
            self.told = time.monotonic()
            self.report(f"written: pages of {self.done} of {self.total} {self.what}")


def write_site(
    store: HistoryStore, url: str, folder: Path, asked: BulkFilter, report: Callable[[str], None]
) -> WrittenSite:
    """Writes the site of the store at `url` into `folder`, and removes its pages of cases that are gone; `report` is
    told about the progress. Raises UsageError for a folder that holds other files, HistoryError if the store cannot be
    read, and HtmlReportError if a library that pages need is missing."""
    tally = _Tally(folder)
    for page in PAGES:
        load_site_template(f"{page}.html")
    contents = store.transactions.read(lambda connection: load_contents(connection, asked))
    if not contents.cases and asked != BulkFilter(limit=asked.limit):
        raise UsageError(_explain_nothing(store, asked))
    there = claim_folder(folder)
    tally.add(MARKER, len(MARKER_TEXT))
    tally.write(STYLE, join_style())
    tally.write(SCRIPT, join_site_script())
    commits = tuple(group_commits(contents.runs.values()))
    commit_of = {run.id: commit.number for commit in commits for run in commit.runs}
    places = {number: place for place, number in enumerate(contents.runs)}
    plan = _Plan(url, folder, asked, contents, commits, commit_of, places)
    cases, environments = _write_case_pages(tally, plan, store, report)
    if len(cases) < len(contents.cases):
        raise HistoryError(
            f"history {store.address}: {len(contents.cases) - len(cases)} cases lost all their runs while the site was "
            "written, as --prune does; write it again"
        )
    _write_commit_pages(tally, plan, cases, list_environments(contents, commits, environments), report)
    tally.write(RUN_NAMES, _make_script("attnperfRuns", collect_run_names(contents, commits, commit_of)))
    tally.write(CASE_NAMES, _make_script("attnperfCases", collect_case_names(cases)))
    tally.write(INDEX, render_index_page(cases, commits))
    removed = remove_others(folder, there, tally.paths)
    return WrittenSite(len(cases), len(commits), len(tally.paths), tally.size_bytes, removed)


def _explain_nothing(store: HistoryStore, asked: BulkFilter) -> str:
    known = store.list_cases()
    devices = sorted({f"{one.arch}/{one.product}" for one in known})
    asked_for = [f"contains {one_line(asked.pattern, 200)!r}"] if asked.pattern else []
    if asked.arch or asked.product:
        asked_for.append(f"is of {one_line('/'.join(filter(None, (asked.arch, asked.product))), 100)}")
    if asked.since is not None:
        asked_for.append("has a run so late")
    names = ", ".join(one_line(one.case, 200) for one in known[:3]) or "none"
    listed = one_line(", ".join(devices), 300) or "none"
    return (
        f"no case of history {store.address} {' and '.join(asked_for)}, so no site was written; known are "
        f"{len(known)} cases such as {names}, on {listed}. Give another CASE, --arch or --since"
    )


def collect_run_names(contents: StoreContents, commits: Sequence[SiteCommit], commit_of: Mapping[int, int]) -> Json:
    """Returns what the pages of cases share: commits with their pages, and for each run its start, commit, branch."""
    branches: dict[str, int] = {}
    runs = [
        [format_minute(run.started), commit_of[run.id], branches.setdefault(one_line(run.branch, 60), len(branches))]
        for run in contents.runs.values()
    ]
    return {"commits": [[one.name, one.file] for one in commits], "runs": runs, "branches": list(branches)}


def list_environments(
    contents: StoreContents, commits: Sequence[SiteCommit], counted: Counter[tuple[int, str, int, int]]
) -> list[list[DeviceFacts]]:
    """Returns for each commit the environment of most cases on each device, with the facts that differ from the commit
    before that measured on that device. `counted` has the number of runs by (commit, device, machine, environment)."""
    counts: list[dict[str, Counter[tuple[int, int]]]] = [{} for _ in commits]
    for (commit, device, machine, environment), count in counted.items():
        counts[commit].setdefault(device, Counter())[machine, environment] += count
    before: dict[str, dict[str, str]] = {}
    found = []
    for devices in counts:
        listed = []
        for device, own in sorted(devices.items()):
            machine, environment = max(own, key=lambda pair: (own[pair], pair))
            facts = contents.facts[environment] | contents.facts[machine]
            listed.append(list_device_facts(device, facts, before.get(device), len(own) - 1))
            before[device] = facts
        found.append(listed)
    return found


def _write_case_pages(
    tally: _Tally, plan: _Plan, store: HistoryStore, report: Callable[[str], None]
) -> tuple[list[CaseSummary], Counter[tuple[int, str, int, int]]]:
    """Writes the pages of all cases. Returns what is kept of each, in their order, and the counts of environments."""
    cases: list[CaseSummary] = []
    environments: Counter[tuple[int, str, int, int]] = Counter()
    progress = _Progress(len(plan.contents.cases), "cases", report)
    for batch in _draw_batches(plan, store):
        for one, size_bytes in zip(batch.cases, batch.sizes_bytes, strict=True):
            tally.add(one.file, size_bytes)
        cases += batch.cases
        environments += batch.environments
        progress.advance(len(batch.cases))
    return cases, environments


def _draw_batches(plan: _Plan, store: HistoryStore) -> Iterator[DrawnBatch]:
    """Draws and writes the pages of all cases, by this process or several, and yields the batches in their order."""
    batches = [range(start, min(start + BATCH, len(plan.contents.cases)))
               for start in range(0, len(plan.contents.cases), BATCH)]  # fmt: skip
    processes = min(os.cpu_count() or 1, MOST_PROCESSES, len(batches))
    if len(plan.contents.cases) < PARALLEL_FROM or processes < 2:
        yield from (_draw_batch(plan, store, batch) for batch in batches)
        return
    # Threads of SQLAlchemy or numpy in this process would not survive a fork.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _start_process, (plan,))
    with pool:
        yield from pool.map(_draw_in_process, batches)


_PLANS: list[_Plan] = []
"""The plan of this process, if it is one of the pool."""


def _start_process(plan: _Plan) -> None:
    _PLANS[:] = [plan]
    # Looking for cycles among a batch's points while they are made costs a tenth of the time, and finds none.
    gc.disable()


def _draw_in_process(batch: Sequence[int]) -> DrawnBatch:
    (plan,) = _PLANS
    gc.collect()
    with open_store(plan.url, read_only=True) as store:
        return _draw_batch(plan, store, batch)


def _draw_batch(plan: _Plan, store: HistoryStore, batch: Sequence[int]) -> DrawnBatch:
    numbers = {plan.contents.cases[number].id: number for number in batch}
    cases = [plan.contents.cases[number] for number in batch]
    found = store.transactions.read(lambda connection: load_case_runs(connection, plan.contents, cases, plan.asked))
    drawn = [_draw_case(plan, numbers[one.case.id], one) for one in found]
    counted = Counter(
        (one.run, f"{case.case.arch}/{case.case.product}", one.machine, one.environment)
        for case in found
        for one in case.measurements
    )
    environments: Counter[tuple[int, str, int, int]] = Counter()
    for (run, device, machine, environment), count in counted.items():
        environments[plan.commit_of[run], device, machine, environment] += count
    return DrawnBatch(tuple(one for one, _ in drawn), tuple(size for _, size in drawn), environments)


def _draw_case(plan: _Plan, number: int, found: CaseRuns) -> tuple[CaseSummary, int]:
    """Writes the page of a case; returns what is kept of it, and the page's bytes."""
    series = make_series(number, found, plan.commit_of)
    summary = summarise_case(number, found, series, plan.commit_of)
    page = render_case_page(summary, found, series, plan.commits, plan.places).encode("utf-8", "replace")
    replace_file(plan.folder / summary.file, page, flush=False)
    return summary, len(page)


def _write_commit_pages(
    tally: _Tally,
    plan: _Plan,
    cases: Sequence[CaseSummary],
    environments: Sequence[Sequence[DeviceFacts]],
    report: Callable[[str], None],
) -> None:
    """Writes the page of each commit."""
    progress = _Progress(len(plan.commits), "commits", report)
    changes: list[list[LastingChange]] = [[] for _ in plan.commits]
    for one in cases:
        for change in one.changes:
            changes[change.commit].append(change)
    times = collect_commit_times(cases, len(plan.commits))
    for commit in plan.commits:
        number = commit.number
        neighbours = (
            plan.commits[number - 1] if number else None,
            plan.commits[number + 1] if number + 1 < len(plan.commits) else None,
        )
        page = render_commit_page(commit, neighbours, changes[number], times[number], environments[number], cases)
        tally.write(commit.file, page)
        progress.advance(1)


def _make_script(name: str, value: Json) -> str:
    return f"window.{name}={script_json(value)};\n"
