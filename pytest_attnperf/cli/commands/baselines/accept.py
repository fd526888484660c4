"""`attnperf baselines accept`: takes an intended slowdown or another identity into a baseline, from results."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.commit_files import format_commit
from pytest_attnperf.cli.option_groups import add_old_spelling, add_results
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.baselines.store import BaselineStore
    from pytest_attnperf.results import CaseResult, RunResult
    from pytest_attnperf.session.accept.accepting import Accepted, Request

ORDER = 2
SUMMARY = "accept an intended slowdown or another identity, with a reason"
DESCRIPTION = "Accepts a change of the named cases from stored results. The reason is stored in the entry."

BASELINES = Path("baselines")
LISTED = 8
LINE_LIMIT = 600

EPILOG = """CASE is a case's key (prefill/triton.flash/prefill-b4-...), its node id, or a part that only one case has.

--results names the results.json of a run that measured the change in at least 7 processes or pairs:
  pytest --attnperf --attnperf-second-look=7 NODEID          a second look of 7 fresh processes
  pytest --attnperf --attnperf-against=origin/main --attnperf-pairs=14 NODEID
                                                             pairs; their ratio scales the stored processes
  pytest --attnperf-calibrate=7 NODEID                       7 processes, nothing is stored or gated
From fewer, a case whose time is SAME gives only its launches and its configuration. Nothing is measured again. A result
that is wrong, suspicious or older than the entry is refused. The creep guard counts from the accepted time.

examples:
  attnperf baselines accept triton.flash/prefill-b4-s512 --reason "exact softmax, issue 41"
  attnperf baselines accept CASE --results results.json --reason "wider tiles, same time" --dry-run
  attnperf baselines accept CASE --results results.json --reason "noisy since 2026-11" --policy   settings, no times

exit status: 0 stored (or shown by --dry-run), 2 the command, the results or the entry are invalid
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf baselines accept` to its parser."""
    parser.add_argument("cases", nargs="+", metavar="CASE", help="key, node id, or a part that only one case has")
    add_old_spelling(parser, "--from", add_results(parser))
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why the change is wanted, one line")
    parser.add_argument("--author", default="", metavar="NAME", help="who accepts (default: git's user.name)")
    parser.add_argument(
        "--baselines", type=Path, default=BASELINES, metavar="DIR", help=f"stored baselines (default: {BASELINES})"
    )
    parser.add_argument("--policy", action="store_true", help="store only the settings that the run judged by")
    parser.add_argument("--dry-run", action="store_true", help="print what would be stored, and store nothing")


def run(options: argparse.Namespace) -> int:
    """Stores the cases' new times (or policy) in their baselines, and prints them; --dry-run only prints. Returns 0.
    Raises UsageError, ResultsFileError or BaselineError before anything is written."""
    from pytest_attnperf.baselines.acceptance import AUTHOR_MAX, REASON_MAX, require_text
    from pytest_attnperf.baselines.store import BaselineStore
    from pytest_attnperf.session.accept.accepting import Request

    reason = require_text("--reason", options.reason, REASON_MAX)
    author = require_text("--author", options.author or git_name(), AUTHOR_MAX)
    request = Request(reason, author, date.today().isoformat(), options.policy)
    results = _read_results(options.results)
    cases = {str(case.key): case for case in (choose_case(results, name) for name in options.cases)}
    if options.baselines.exists() and not options.baselines.is_dir():
        raise UsageError(f"--baselines {options.baselines} is no folder; it takes what pytest --update-baselines wrote")
    store = BaselineStore(options.baselines)
    accepted = {key: _accept_case(results, case, store, request) for key, case in cases.items()}
    paths = write_all(results, cases, accepted, store, dry_run=options.dry_run)
    _print_accepted(accepted, paths, reason)
    return 0


def choose_case(results: RunResult, name: str) -> CaseResult:
    """Returns the case whose key or node id is `name`, or else the only one that contains it. Raises UsageError if none
    or several do."""
    if not name.strip():
        raise UsageError("a CASE is empty; give a key, a node id, or a part that only one case has")
    exact = [case for case in results.cases if name in (str(case.key), case.key.entry, case.nodeid)]
    found = exact or [case for case in results.cases if name in str(case.key) or name in case.nodeid]
    if len(found) == 1:
        return found[0]
    if found:
        more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
        listed = ", ".join(str(case.key) for case in found[:LISTED])
        raise UsageError(f"{name[:200]!r} matches {len(found)} cases: {listed}{more}; give more of the name")
    if any(name in str(code.key) or name in code.nodeid for code in results.code):
        raise UsageError(
            f"{name[:200]!r} is a compiled kernel, which has no time: accept what it spills with "
            'pytest --update-baselines --attnperf-accept="WHY"'
        )
    listed = ", ".join(str(case.key) for case in results.cases[:LISTED]) or "none"
    raise UsageError(f"{name[:200]!r} matches none of these {len(results.cases)} cases; the first are: {listed}")


def git_name(run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run) -> str:
    """Returns git's user.name, the default author. Raises UsageError if it is not set. Tests replace `run`."""
    from pytest_attnperf.workers.revisions import read_user_name

    name = read_user_name(run)
    if not name:
        raise UsageError("an acceptance needs an author, and git's user.name is not set: add --author NAME")
    return name


def _read_results(path: Path) -> RunResult:
    from pytest_attnperf.records.regular_file import propose_path
    from pytest_attnperf.reports.files import json_results

    if not path.is_file():
        raise UsageError(
            f"--results {path} is no file{propose_path(path)}; it takes what pytest --attnperf wrote, "
            ".attnperf/results.json"
        )
    return json_results.read(path)


def _accept_case(results: RunResult, case: CaseResult, store: BaselineStore, request: Request) -> Accepted:
    from pytest_attnperf.session.accept.accepting import accept

    device = results.device
    found = store.find(device.arch, device.product, case.key.suite, case.key.entry) if device is not None else None
    return accept(results, case, found, request)


def write_all(
    results: RunResult,
    cases: dict[str, CaseResult],
    accepted: dict[str, Accepted],
    store: BaselineStore,
    *,
    dry_run: bool,
) -> list[Path]:
    """Writes the accepted entries, one baseline file per suite, and returns the files' paths. Writes nothing with
    `dry_run`. Raises BaselineError, before writing, if one file would be invalid."""
    from pytest_attnperf.baselines.writing import check_replacements, replace_entries

    device = results.device
    assert device is not None
    new = {
        suite: {case.key.entry: accepted[key].replacement for key, case in cases.items() if case.key.suite == suite}
        for suite in sorted({case.key.suite for case in cases.values()})
    }
    for suite, replacements in new.items():
        check_replacements(store.roots[0], device.arch, device.product, suite, replacements)
    if dry_run:
        return []
    return [replace_entries(store, store.roots[0], device.arch, device.product, suite, new[suite]) for suite in new]


def _print_accepted(accepted: dict[str, Accepted], paths: Sequence[Path], reason: str) -> None:
    from pytest_attnperf.reports.text.figures import one_line

    lines = []
    for key, one in accepted.items():
        lines.append(one_line(one.describe_acceptance(key), LINE_LIMIT))
        lines += [f"  {one_line(text, LINE_LIMIT)}" for text in (*one.acceptance.changes, *one.notes)]
    if paths:
        what = next(iter(accepted)) if len(accepted) == 1 else f"{len(accepted)} cases"
        lines.append(format_commit(paths, one_line(f"Accept {what}: {reason}", LINE_LIMIT)))
    else:
        lines.append("dry run: nothing was written")
    sys.stdout.write("\n".join(lines) + "\n")
