"""`attnperf history`: shows a case in a store of many runs; imports runs into the store, and deletes old ones."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.option_groups import HISTORY, HISTORY_VARIABLE, parse_count
from pytest_attnperf.cli.output import PAGES, count_columns, say
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.records.histories import CaseHistory
    from pytest_attnperf.tools.history.history_store import HistoryStore
    from pytest_attnperf.tools.history.history_text import ListedCase
    from pytest_attnperf.tools.history.queries import KnownCase

GROUP = "every day"
ORDER = 70
SUMMARY = "show cases over time, and the commit at which each changed"
DESCRIPTION = "Shows cases over time from a store of many runs."

WIDTH = 100
"""Columns if no terminal tells its width."""

SITE = "history"
"""Name of the site's folder where --html gives none."""

LISTED_MAX = 60
LISTED_RUNS = 500
"""Newest runs of a case in which the list searches for changes: a page of 60 cases then takes about a second."""

NEWEST_RUNS = 10

EPILOG = f"""CASE is a case's key, a part that only one case has, or a pytest node id. Without it, the cases are listed.
--html takes all cases of which CASE is a part, and replaces an earlier site in its folder.
A store is a path, sqlite:///path or postgresql://user@host/database; {HISTORY_VARIABLE} is the default.

exit status: 0 printed, 1 with --fail-on-change a slowdown, 2 the command, a file or the store is invalid

examples:
  attnperf history                                        the cases, and where each last changed
  attnperf history triton.flash/prefill-b4-s512 --plot history.svg
  attnperf history CASE --since 30d --fail-on-change      fails if its newest change is a slowdown
  attnperf history --html site --open                     pages of all cases and commits, to look at or publish
  attnperf history --import .benchmarks results.json
  attnperf history --prune --keep-days 365 --keep-runs 50 --dry-run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf history` to its parser."""
    parser.add_argument(
        "case", nargs="?", default="", metavar="CASE", help="key, part of it, or node id (default: all)"
    )
    parser.add_argument(
        "--history", default="", metavar="URL", help=f"the store (default: {HISTORY_VARIABLE}, else {HISTORY})"
    )
    parser.add_argument("--arch", default="", metavar="ARCH[/PRODUCT]", help="show this device only")
    parser.add_argument("--since", default="", metavar="WHEN", help="a date, or 30d for 30 days")
    parser.add_argument(
        "--limit", type=parse_count, default=0, metavar="N", help="the newest N runs; in the list, N cases"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with every point")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw CASE to a .svg or .png file")
    parser.add_argument("--fail-on-change", type=parse_count, nargs="?", const=NEWEST_RUNS, default=0, metavar="N",
                        help="fail if CASE's newest change is a slowdown in its last N runs "
                        f"(without N: {NEWEST_RUNS})")  # fmt: skip
    parser.add_argument("--html", type=Path, metavar="DIR", help="write a site: pages of cases and commits")
    parser.add_argument("--open", action="store_true", help=f"open the site (default: {PAGES / SITE})")
    work = parser.add_mutually_exclusive_group()
    work.add_argument("--import", dest="imports", nargs="+", type=Path, default=[], metavar="FILE",
                      help="import results.json files, or pytest-benchmark's files or folders")  # fmt: skip
    work.add_argument("--prune", action="store_true", help="delete what --keep-days and --keep-runs do not keep")
    work.add_argument("--migrate", action="store_true", help="update an older store's schema")
    parser.add_argument("--keep-days", type=float, default=0.0, metavar="N", help="with --prune: keep the last N days")
    parser.add_argument(
        "--keep-runs", type=parse_count, default=0, metavar="N", help="with --prune: keep each case's newest N runs"
    )
    parser.add_argument("--dry-run", action="store_true", help="with --prune: print what would be deleted")


def run(options: argparse.Namespace) -> int:
    """Shows a case or all cases of a history store, or imports, prunes or migrates it. Returns 1 only by
    --fail-on-change. Raises UsageError for invalid options, and HistoryError for a store or file that cannot be
    used."""
    from pytest_attnperf.tools.history.history_store import open_store

    _check_options(options)
    url = options.history or os.environ.get(HISTORY_VARIABLE, "") or HISTORY
    writes = bool(options.imports or options.prune or options.migrate)
    if (options.prune or options.migrate) and "://" not in url and not Path(url).exists():
        raise UsageError(f"history {url} does not exist, so there is nothing to prune or migrate; give --history URL")
    with open_store(url, read_only=not writes) as store:
        if options.imports:
            return _import_runs(store, options.imports)
        if options.prune:
            return _prune(store, options)
        if options.migrate:
            sys.stdout.write(f"{store.address} has this version's schema\n")
            return 0
        if options.html or options.open:
            return _write_site(store, url, options)
        return _show_case(store, options) if options.case else _show_cases(store, options)


def _check_options(options: argparse.Namespace) -> None:
    """Raises UsageError for options that need another one or exclude each other, e.g. --prune without a rule."""
    if options.prune and not (options.keep_days or options.keep_runs):
        raise UsageError("--prune needs --keep-days N, --keep-runs N, or both: nothing is deleted without a rule")
    if not options.prune and (options.keep_days or options.keep_runs or options.dry_run):
        raise UsageError("--keep-days, --keep-runs and --dry-run belong to --prune, which was not given")
    if (options.plot or options.fail_on_change) and not options.case:
        raise UsageError("--plot and --fail-on-change need one case; name it: attnperf history CASE")
    others = {"--json": options.json, "--plot": options.plot, "--fail-on-change": options.fail_on_change,
              "--import": options.imports, "--prune": options.prune, "--migrate": options.migrate}  # fmt: skip
    given = [name for name, value in others.items() if value]
    if (options.html or options.open) and given:
        raise UsageError(f"--html and --open write a site and print nothing else; call {given[0]} apart from them")
    if options.case and (options.imports or options.prune or options.migrate):
        raise UsageError(
            f"CASE {options.case[:80]!r} is given, but --import, --prune and --migrate act on all cases; drop CASE"
        )


def _parse_since(text: str) -> str:
    """Returns the time N days ago (ISO 8601, UTC) for 'Nd' such as '30d', and any other text unchanged."""
    days = re.fullmatch(r"(\d{1,5})d", text)
    if days is None:
        return text
    return (datetime.now(timezone.utc) - timedelta(days=int(days.group(1)))).isoformat()


def _show_case(store: HistoryStore, options: argparse.Namespace) -> int:
    from pytest_attnperf.tools.history import history_text as report
    from pytest_attnperf.tools.history.change_points import with_changes

    histories = _read_histories(store, options)
    found = [with_changes(history) for history in histories]
    if options.json:
        say(_render_json(report.encode_histories(found)))
    else:
        say(report.render_histories(found, count_columns(WIDTH)))
    if options.plot:
        _write_plot(options, found)
    return _choose_status(found, options.fail_on_change)


def _read_histories(store: HistoryStore, options: argparse.Namespace) -> list[CaseHistory]:
    arch, _, product = options.arch.partition("/")
    which = {"arch": arch, "product": product, "since": _parse_since(options.since)}
    if options.json:
        histories = store.load_history(options.case, **which, limit=options.limit)
    else:
        histories = store.load_page(options.case, **which, limit=options.limit, newest=options.fail_on_change)
    if not histories:
        raise UsageError(f"{options.case[:200]!r} has no run since {options.since}; give an earlier --since")
    return histories


def _render_json(value: object) -> str:
    import json

    from pytest_attnperf.reports.text.figures import printable_json

    return printable_json(json.dumps(value, indent=2, allow_nan=False))


def _write_plot(options: argparse.Namespace, found: Sequence[CaseHistory]) -> None:
    from pytest_attnperf.tools.history.plot import write_plot

    left_out = write_plot(options.plot, found)
    more = f"; {left_out} more series are not drawn, choose by --arch" if left_out else ""
    sys.stderr.write(f"written: {options.plot}{more}\n")


def _choose_status(found: Sequence[CaseHistory], newest_runs: int) -> int:
    """Returns 1, and prints the change to standard error, if the newest change of a series is a slowdown within its
    last `newest_runs` runs; else, and for 0, returns 0."""
    from pytest_attnperf.tools.history.history_text import describe_change, describe_suspect

    status = 0
    for history in found if newest_runs else ():
        newest = history.changes[-1] if history.changes else None
        if newest is not None and newest.ratio > 1 and newest.index >= len(history.points) - newest_runs:
            sys.stderr.write(f"slower: {describe_change(newest, history.points)}; {describe_suspect(newest)}\n")
            status = 1
    return status


def _show_cases(store: HistoryStore, options: argparse.Namespace) -> int:
    """Prints a list of the cases, as text or JSON; only those with the newest runs if there are too many, because
    searching each for changes takes time. Returns 0."""
    from pytest_attnperf.tools.history import history_text as report

    arch, _, product = options.arch.partition("/")
    known = store.list_cases(arch=arch, product=product)
    most = options.limit or LISTED_MAX
    newest = sorted(known, key=lambda one: one.last, reverse=True)[:most]
    shown = [one for one in known if one in newest] if len(known) > most else known
    listed = [_make_listed_case(store, one, _parse_since(options.since)) for one in shown]
    if options.json:
        import dataclasses

        say(_render_json([dataclasses.asdict(one) for one in listed]))
        return 0
    notes = [f"{len(known)} case{'s' * (len(known) != 1)}, in {store.address}"]
    if len(known) > len(shown):
        notes.append(f"the {len(shown)} with the newest runs are shown; --limit {len(known)} shows all")
    if any(one.points > LISTED_RUNS for one in shown):
        notes.append(f"changes are those of each case's newest {LISTED_RUNS} runs; CASE shows earlier ones")
    say(report.render_cases(listed, notes, count_columns(WIDTH)))
    return 0


def _make_listed_case(store: HistoryStore, one: KnownCase, since: str) -> ListedCase:
    from pytest_attnperf.tools.history.change_points import with_changes
    from pytest_attnperf.tools.history.history_rows import parse_seconds
    from pytest_attnperf.tools.history.history_text import ListedCase

    found = store.load_history(one.case, arch=one.arch, product=one.product, since=since, limit=LISTED_RUNS)
    changes = [
        (parse_seconds(history.points[change.index].started), history.points[change.index].started, change)
        for history in map(with_changes, found)
        for change in history.changes
    ]
    _, at, change = max(changes, key=lambda found: found[0], default=(0.0, "", None))
    return ListedCase(one.case, f"{one.arch}/{one.product}", one.points, one.wrong, one.last, change, at)


def _write_site(store: HistoryStore, url: str, options: argparse.Namespace) -> int:
    """Writes the site of the cases that contain CASE, and opens it if asked; says so on standard error. Returns 0.
    Raises UsageError if there is no such case, or for a folder with other files."""
    from pytest_attnperf.cli.output import open_file
    from pytest_attnperf.reports.text.figures import one_line
    from pytest_attnperf.tools.history.bulk_reading import BulkFilter
    from pytest_attnperf.tools.history.history_rows import parse_seconds
    from pytest_attnperf.tools.history.site.write_site import write_site

    arch, _, product = options.arch.partition("/")
    since = parse_seconds(_parse_since(options.since), "time in `since`") if options.since else None
    folder = options.html or PAGES / SITE
    asked = BulkFilter(options.case, arch, product, since, options.limit)
    done = write_site(store, url, folder, asked, lambda line: _tell(f"{line}\n"))
    index = folder / "index.html"
    removed = f"; {done.removed} pages of an earlier site removed" if done.removed else ""
    _tell(
        f"written: {one_line(str(index), 1000)}: {done.cases} case{'s' * (done.cases != 1)}, {done.commits} "
        f"commit{'s' * (done.commits != 1)}, {done.files} files of {done.size_bytes / 1e6:.1f} MB{removed}\n"
    )
    if options.open:
        open_file(index)
    return 0


def _tell(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _import_runs(store: HistoryStore, paths: Sequence[Path]) -> int:
    """Adds the runs of these files to the store, skips those it has, and prints a line per run. Returns 0. Raises
    HistoryError for a file without runs; runs of earlier files stay stored."""
    from pytest_attnperf.reports.files import json_results
    from pytest_attnperf.reports.text.figures import one_line
    from pytest_attnperf.tools.history.importing import import_runs

    rows = runs = 0
    for path in paths:
        for found in import_runs(path, json_results.decode):
            if isinstance(found, str):
                say(f"skipped: {one_line(found, 400)}")
                continue
            done = store.append(found.run, source=found.source)
            rows, runs = rows + done.rows, runs + (not done.already)
            said = "was already stored" if done.already else f"{done.rows} measurements of {len(found.run.cases)} cases"
            say(f"{one_line(str(found.path))}: {said}")
            for line in found.skipped:
                say(f"  skipped: {one_line(line, 400)}")
    say(f"{rows} measurements of {runs} new run{'s' * (runs != 1)} added to {store.address}")
    return 0


def _prune(store: HistoryStore, options: argparse.Namespace) -> int:
    pruned = store.prune(keep_days=options.keep_days, keep_runs=options.keep_runs, dry_run=options.dry_run)
    would = "would delete" if options.dry_run else "deleted"
    say(
        f"{would} {pruned.measurements} measurements, and {pruned.runs} runs, {pruned.cases} cases and {pruned.facts} "
        f"environments that no measurement uses any more; {pruned.kept} measurements stay"
    )
    if not options.dry_run and store.transactions.is_sqlite and pruned.measurements:
        say(f"VACUUM freed {store.compact()} bytes on the disk")
    return 0
