"""`attnperf list`: prints the backends, op families, workloads and suites of a project, and the timers."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_attnperf.cli.option_groups import add_tests
from pytest_attnperf.cli.output import count_columns
from pytest_attnperf.errors import UnknownNameError, UsageError
from pytest_attnperf.tools.project_list import (
    LISTS,
    BackendRow,
    FamilyRow,
    Filters,
    SuiteRow,
    TimerRow,
    WorkloadRow,
    list_timers,
    require_known,
)

if TYPE_CHECKING:
    from pytest_attnperf.plugin.own_pytest import Project

GROUP = "first hour"
ORDER = 25
SUMMARY = "list backends, op families, workloads, suites and timers"
DESCRIPTION = "Lists the backends, op families, workloads and suites of this project, and the timers. Measures nothing."

EPILOG = """Backends and families are those that conftest files register; workloads and suites are the cases that pytest
collects, of all tiers. A backend is unsupported if it refuses every workload of its cases on this machine; no GPU is
initialised. Compiled kernels are no cases: pytest --co -q -m attnperf_code lists them.

examples:
  attnperf list
  attnperf list backends --family prefill
  attnperf list workloads --backend triton --tests suites/test_prefill.py
  attnperf list suites --json

exit status: 0 listed, 2 the command or the project is invalid
"""

KINDS = tuple(LISTS)
WIDTH, LEAST_WIDTH = 80, 60
GAP = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf list` to its parser."""
    parser.add_argument(
        "kind", nargs="?", default="", metavar="KIND", help=f"{', '.join(KINDS)} (default: an overview)"
    )
    parser.add_argument("--backend", default="", metavar="TEXT", help="only backends with TEXT in their names")
    parser.add_argument("--family", default="", metavar="F", help="only this op family")
    add_tests(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Lists one kind, or counts all. Returns 0. Raises UsageError, also for a project that pytest cannot collect."""
    if options.kind and options.kind not in KINDS:
        raise UnknownNameError("kind", options.kind, KINDS)
    if options.kind == "timers":
        if options.backend or options.family or options.tests:
            raise UsageError("timers belong to no backend, family or suite; drop --backend, --family and --tests")
        _write_rows("timers", list_timers(), as_json=options.json)
        return 0
    from pytest_attnperf.plugin.own_pytest import collect_all

    return collect_all(partial(_print_project, options), options.tests)


def _print_project(options: argparse.Namespace, project: Project) -> int:
    chosen = Filters(options.backend, options.family)
    require_known(project, chosen)
    if options.kind:
        _write_rows(options.kind, LISTS[options.kind](project, chosen), as_json=options.json)
        return 0
    names = {kind: list(map(_copied_name, LISTS[kind](project, chosen))) for kind in KINDS}
    if options.json:
        _write_json({kind: {"count": len(found), "names": found} for kind, found in names.items()})
        return 0
    width = count_columns(WIDTH, LEAST_WIDTH)
    lines = [_format_overview(kind, found, width) for kind, found in names.items()]
    sys.stdout.write("\n".join([*lines, "", f"more: attnperf list {KINDS[0]} (or {', '.join(KINDS[1:])})", ""]))
    return 0


def _copied_name(row: Any) -> str:
    """Returns what is copied of a row: a name, an id, or 'file::test'."""
    return f"{row.file}::{row.test}" if isinstance(row, SuiteRow) else str(row[0])


def _format_overview(kind: str, names: Sequence[str], width: int) -> str:
    """Returns one line: kind, count, and as many first names as fit whole; of tests their files."""
    line = f"{kind:<{max(map(len, KINDS))}}  {len(names):>4}"
    shown = list(dict.fromkeys(name.partition("::")[0] for name in names))
    for number, name in enumerate(shown):
        more = number + 1 < len(shown)
        longer = f"{line}{', ' if number else '  '}{name}"
        if len(longer) + len(", ...") * more > width:
            return f"{line}{', ' if number else '  '}..."
        line = longer
    return line


def _write_rows(kind: str, rows: Sequence[Any], *, as_json: bool) -> None:
    if as_json:
        _write_json([row._asdict() for row in rows])
        return
    lines = FORMATS[kind](rows, count_columns(WIDTH, LEAST_WIDTH)) if rows else [f"no {kind}"]
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _write_json(data: object) -> None:
    from pytest_attnperf.reports.text.figures import printable_json

    sys.stdout.write(f"{printable_json(json.dumps(data, indent=2))}\n")


def _format_backends(rows: Sequence[BackendRow], width: int) -> list[str]:
    """Returns the families beside each name and, below them, why it is unsupported; no name is cut."""
    longest = max(len(row.name) for row in rows)
    lines = _format_beside("backend", longest, "families; below: why it cannot run here", width)
    for row in rows:
        lines += _format_beside(row.name, longest, ", ".join(row.families), width)
        lines += _format_beside("", longest, f"- {row.unsupported}", width) if row.unsupported else []
    return lines


def _format_families(rows: Sequence[FamilyRow], width: int) -> list[str]:
    """Returns an example below each family; a family that is alone is also told with what its lines may contain."""
    longest = max(len(row.name) for row in rows)
    lines = []
    for row in rows:
        count = f"{row.backends} backend{'s' * (row.backends != 1)}"
        told = f"{row.origin}, {count}" + (f": {row.description}" if row.description else "")
        lines += _format_beside(row.name, longest, told, width)
        lines += [f"  {row.example}"] if row.example else []
    if len(rows) == 1 and rows[0].line:
        lines += _wrap_words(f"--attnperf-workload takes {rows[0].line}", width)
    return lines


def _format_workloads(rows: Sequence[WorkloadRow], width: int) -> list[str]:
    """Returns a line for each workload: its id, whole, and the tier by which most runs take it."""
    from pytest_attnperf.reports.text.wide_tables import plain_table

    cells = [(row.id, row.tiers[0]) for row in rows]
    return plain_table(("workload", "tier"), cells, ("left", "left"), width).splitlines()


def _format_suites(rows: Sequence[SuiteRow], width: int) -> list[str]:
    """Returns a line for each file, and below it one for each test."""
    longest = max(len(row.test) for row in rows) + GAP
    lines, file = [], ""
    for row in rows:
        lines += [row.file] if row.file != file else []
        file = row.file
        told = ", ".join(f"{tier} {count}" for tier, count in row.tiers.items())
        cases = f"{row.family}, {row.cases} case{'s' * (row.cases != 1)}: {told}"
        lines += _format_beside(f"{' ' * GAP}{row.test}", longest, cases, width)
    return lines


def _format_timers(rows: Sequence[TimerRow], width: int) -> list[str]:
    cells = [(row.name, row.works_on, row.cache_state, "yes" if row.own_inputs else "no") for row in rows]
    table = [("timer", "works on", "cache", "own inputs in each call"), *cells]
    return ["  ".join(f"{cell:<{wide}}" for cell, wide in zip(row, (11, 8, 5, 0), strict=True)) for row in table]


FORMATS: dict[str, Callable[[Any, int], list[str]]] = {
    "backends": _format_backends,
    "families": _format_families,
    "workloads": _format_workloads,
    "suites": _format_suites,
    "timers": _format_timers,
}


def _format_beside(name: str, longest: int, text: str, width: int) -> list[str]:
    """Returns `text`, wrapped in what is left of `width`, beside a name padded to `longest`."""
    first, *others = _wrap_words(text, max(1, width - longest - GAP))
    return [f"{name:<{longest + GAP}}{first}", *(f"{'':<{longest + GAP}}{other}" for other in others)]


def _wrap_words(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
