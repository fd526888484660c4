"""`attnperf baselines pool`: stores baseline entries from recordings of several machines."""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.commit_files import format_commit
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.baselines.store import BaselineStore
    from pytest_attnperf.baselines.writing import NewEntry
    from pytest_attnperf.records import CaseKey, DeviceInfo
    from pytest_attnperf.session.accept.pooling import NamedRun, Pooled, PooledCase

ORDER = 4
SUMMARY = "store recordings of several machines as one baseline"
DESCRIPTION = "Stores one baseline entry per case from recordings of several machines. Nothing is measured."
USAGE = "attnperf baselines pool [options] RESULTS RESULTS..."

BASELINES = Path("baselines")
LINE_LIMIT = 2000
"""Most characters of a line. A command in it must not be cut, and names a case twice."""

KEYS_SHOWN = 3

EPILOG = """A baseline of one card makes gates on another card weak. Each machine of one product records the same clean
commit, and stores nothing:
  pytest --attnperf-calibrate=4 suites --attnperf-report=DIR
An entry gets all processes of its case, at least 7. A case is stored only if its recordings agree in machine state,
workload, policy, what ran, configuration, sources, timer and software, driver and Linux kernel included: a gate calls
a slowdown under another one ENVIRONMENT. The others are listed with the reason.

examples:
  attnperf baselines pool node1/results.json node2/results.json
  attnperf baselines pool node*/results.json --dry-run

exit status: 0 every timed case is stored (or shown by --dry-run), 1 some are not, 2 the command or a file is invalid
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf baselines pool` to its parser."""
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS", help="results.json of each machine's "
                        "recording, at least two")  # fmt: skip
    parser.add_argument(
        "--baselines", type=Path, default=BASELINES, metavar="DIR", help=f"stored baselines (default: {BASELINES})"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be stored, and store nothing")


def run(options: argparse.Namespace) -> int:
    """Stores the pooled entries and prints what they are made of; --dry-run only prints. Returns 1 if a timed case was
    not pooled, else 0. Raises UsageError, ResultsFileError or BaselineError before anything is written."""
    from pytest_attnperf.baselines.store import BaselineStore
    from pytest_attnperf.session.accept.pooling import list_ambiguous_cards, pool_recordings

    if options.baselines.exists() and not options.baselines.is_dir():
        raise UsageError(f"--baselines {options.baselines} is no folder; it takes what pytest --update-baselines wrote")
    recordings = [_read_recording(path) for path in options.results]
    pooled = pool_recordings(recordings)
    device = recordings[0].run.device
    assert device is not None
    store = BaselineStore(options.baselines)
    notes = [
        *(
            f"several cards are named {name}; entries count them as one card"
            for name in list_ambiguous_cards(recordings)
        ),
        *_list_creep(pooled.cases, store, device),
    ]
    paths = write_pooled(pooled.cases, store, device, dry_run=options.dry_run)
    _print_lines([*_list_pooled(pooled), *notes])
    sys.stdout.write(f"{_describe_storing(pooled, paths, dry_run=options.dry_run)}\n")  # a command is never cut
    return 1 if pooled.refused or not pooled.cases else 0


def _read_recording(path: Path) -> NamedRun:
    from pytest_attnperf.records.regular_file import propose_path
    from pytest_attnperf.reports.files import json_results
    from pytest_attnperf.session.accept.pooling import NamedRun

    if not path.exists():
        raise UsageError(
            f"there is no {path}{propose_path(path)}; pytest --attnperf-calibrate=4 --attnperf-report=DIR writes "
            "DIR/results.json"
        )
    return NamedRun(str(path), json_results.read(path))


def write_pooled(cases: Sequence[PooledCase], store: BaselineStore, device: DeviceInfo, *, dry_run: bool) -> list[Path]:
    """Writes the cases' entries, one baseline file per suite, and returns the files' paths. Writes nothing with
    `dry_run`. Raises BaselineError, before writing, if one file would be invalid."""
    from pytest_attnperf.baselines.writing import check_entries, merge_entries

    new: dict[str, dict[str, NewEntry]] = defaultdict(dict)
    for case in cases:
        new[case.result.key.suite][case.result.key.entry] = case.record
    root = store.roots[0]
    for suite in sorted(new):
        check_entries(root, device.arch, device.product, suite, new[suite])
    if dry_run:
        return []
    return [merge_entries(store, root, device.arch, device.product, suite, new[suite]) for suite in sorted(new)]


def _list_creep(cases: Sequence[PooledCase], store: BaselineStore, device: DeviceInfo) -> list[str]:
    """Returns a line per case that is slower than its anchor; the anchor stays where it is."""
    from pytest_attnperf.session.accept.pooling import find_creep_since

    lines = []
    for case in cases:
        key = case.result.key
        found = store.find(device.arch, device.product, key.suite, key.entry)
        lines += [f"{key}: {note}" for note in find_creep_since(case, found)]
    return lines


def _list_pooled(pooled: Pooled) -> list[str]:
    """Returns lines on what entries are made of, on cases that are not pooled, and on those that nothing timed."""
    counts = Counter((case.recordings, case.cards, len(case.result.first)) for case in pooled.cases)
    lines = [
        f"{_count(cases, 'case')} from {_describe_cards(cards)}{_count(recordings, 'recording')}: {processes} processes"
        + " each" * (cases > 1)
        for (recordings, cards, processes), cases in counts.most_common()
    ]
    by_reason: dict[str, list[CaseKey]] = defaultdict(list)
    for one in pooled.refused:
        if one.names_case:
            lines.append(f"not pooled: {one.reason}")
        else:
            by_reason[one.reason].append(one.key)
    lines += [f"not pooled: {_name_cases(keys)}: {reason}" for reason, keys in by_reason.items()]
    return [*lines, *([f"{_count(pooled.untimed, 'case')} timed in no recording"] if pooled.untimed else [])]


def _describe_cards(cards: int) -> str:
    return f"{_count(cards, 'card')} of " if cards else ""


def _name_cases(keys: Sequence[CaseKey]) -> str:
    if len(keys) == 1:
        return str(keys[0])
    more = f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else ""
    return f"{len(keys)} cases ({', '.join(map(str, keys[:KEYS_SHOWN]))}{more})"


def _describe_storing(pooled: Pooled, paths: Sequence[Path], *, dry_run: bool) -> str:
    if not pooled.cases:
        return "nothing was stored: no case could be pooled"
    if dry_run:
        return "dry run: nothing was written"
    return format_commit(paths, f"Pool baselines of {_count(len(pooled.cases), 'case')}")


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _print_lines(lines: Sequence[str]) -> None:
    from pytest_attnperf.reports.text.figures import one_line

    sys.stdout.writelines(f"{one_line(line, LINE_LIMIT)}\n" for line in lines)
