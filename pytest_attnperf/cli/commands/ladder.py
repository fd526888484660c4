"""`attnperf ladder`: backends of a workload against each other, with the machine code that each ran, from results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.regular_file import read_regular

if TYPE_CHECKING:
    from pytest_attnperf.records.code import CodeResult, KernelCode, Occupancy
    from pytest_attnperf.records.counters import KernelCounter
    from pytest_attnperf.reports.run.ladder_cases import Ladder
    from pytest_attnperf.reports.text.wide_tables import Table
    from pytest_attnperf.results import RunResult

GROUP = "deeper"
ORDER = 150
SUMMARY = "backends of a workload side by side: times, and the machine code that ran"
DESCRIPTION = "Backends of a workload against each other, with the machine code that each ran."

PAGE_BYTES_MAX = 1 << 24
BASE = "hip.naive"
AGAINST = "native.sdpa_flash"
BEGIN, END = "<!-- ladder:begin -->", "<!-- ladder:end -->"

EPILOG = f"""RESULTS is what pytest --attnperf wrote on a GPU. With --code, results of suites/test_code_objects.py add
tables of the same kernels compiled for other architectures, without times. With --profile, hardware counters of the
kernels are shown as rocprofv3 --pmc ... --output-format csv found them.

exit status: 0 printed or written, 2 the command or a file is off

examples:
  attnperf ladder .attnperf/results.json
  attnperf ladder results.json --workload prefill-b4-s512-h8-d256-f16-causal --against triton.flash
  attnperf ladder results.json --code amd.json --write README.md     between {BEGIN} and {END}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what can be typed behind the command."""
    parser.add_argument("results", type=Path, metavar="RESULTS", help="the results.json of a run that measured")
    parser.add_argument(
        "--workload", action="append", default=[], metavar="ID", help="show this one only; may be repeated"
    )
    parser.add_argument("--base", default=BASE, metavar="BACKEND", help="speedups are over it (default %(default)s)")
    parser.add_argument("--against", metavar="BACKEND", help=f"speeds are relative to it (default {AGAINST})")
    parser.add_argument("--backends", default="", metavar="A,B", help="show these only")
    parser.add_argument(
        "--code", action="append", type=Path, default=[], metavar="RESULTS", help="results of compiled kernels"
    )
    parser.add_argument("--profile", type=Path, metavar="CSV", help="rocprofv3's counter_collection.csv")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help=f"put the Markdown between {BEGIN} and {END} of this file"
    )


def run(options: argparse.Namespace) -> int:
    """Print the ladder, or write it. Raises UsageError, and ResultsFileError for a file that cannot be read."""
    from pytest_attnperf.records.atomic_file import write_atomically
    from pytest_attnperf.reports.run.ladder import LEGEND, header_lines, held_to
    from pytest_attnperf.reports.text.wide_tables import markdown, terminal

    results = _read(options.results)
    ladders = _ladders(results, options)
    tables = _tables(ladders, options)
    lines = [*header_lines(results, ladders), held_to(options.base, options.against or AGAINST), *LEGEND]
    if options.write is not None:
        page = read_regular(options.write, PAGE_BYTES_MAX).decode()
        write_atomically(options.write, with_ladder(page, markdown(lines, tables), str(options.write)).encode())
        said = f"written: {options.write}"
    else:
        said = markdown(lines, tables) if options.markdown else terminal(lines, tables)
    sys.stdout.write(f"{said}\n")
    return 0


def with_ladder(page: str, text: str, where: str) -> str:
    """The page with `text` between the markers. Raises UsageError where there is not exactly one of each, in order."""
    for marker in (BEGIN, END):
        if page.count(marker) != 1:
            raise UsageError(
                f"{where} has {page.count(marker)} times {marker!r}; put one {BEGIN} and one {END} where the ladder is "
                "to stand"
            )
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise UsageError(f"{where} has {END} before {BEGIN}; put the markers in order")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def occupancy(code: KernelCode) -> Occupancy | None:
    """A kernel's occupancy on either vendor's architectures; None where it is not known."""
    from pytest_attnperf.codeobject.nvidia_occupancy import nvidia_occupancy_of
    from pytest_attnperf.session.code_session import known_occupancy

    return nvidia_occupancy_of(code) or known_occupancy(code)


def _read(path: Path) -> RunResult:
    from pytest_attnperf.reports.files import json_results

    return json_results.read(path)


def _ladders(results: RunResult, options: argparse.Namespace) -> list[Ladder]:
    from pytest_attnperf.reports.run.ladder_cases import Selection, ladders_of, refuse_unknown_backends

    if options.against is not None:
        refuse_unknown_backends(results, [options.against])
    names = tuple(name for part in options.backends.split(",") if (name := part.strip()))
    chosen = Selection(options.base, options.against or AGAINST, names, tuple(options.workload))
    return ladders_of(results, chosen, str(options.results))


def _tables(ladders: list[Ladder], options: argparse.Namespace) -> list[Table]:
    from pytest_attnperf.reports.run.ladder import compiled_tables, ladder_tables

    counters = _counters(ladders, options.profile)
    tables = [table for ladder in ladders for table in ladder_tables(ladder, occupancy, counters)]
    for path in options.code:
        results = _compiled(path)
        found = compiled_tables(results, ladders, occupancy)
        if not found:
            kernels = ", ".join(dict.fromkeys(result.key.backend for result in results))
            raise UsageError(f"{path} holds none of the kernels of this ladder; it holds: {kernels}")
        tables += found
    return tables


def _counters(ladders: list[Ladder], path: Path | None) -> tuple[KernelCounter, ...]:
    """Raises UsageError where none of them was read of a kernel of the ladder."""
    if path is None:
        return ()
    from pytest_attnperf.records.counters import of_launches
    from pytest_attnperf.tools.profilers.counters import read_counters

    counters = read_counters(path)
    launches = [launch for ladder in ladders for case in ladder.cases for launch in case.launches]
    if not of_launches(counters, launches):
        seen = ", ".join(dict.fromkeys(counter.kernel for counter in counters))
        ours = ", ".join(dict.fromkeys(launch.name for launch in launches)) or "none that is known"
        raise UsageError(f"{path} counts no launch of this ladder: its kernels are {seen}; launched were: {ours}")
    return counters


def _compiled(path: Path) -> tuple[CodeResult, ...]:
    """Raises UsageError for results of a run that compiled nothing."""
    results = _read(path).code
    if not results:
        raise UsageError(
            f"{path} holds no compiled kernels; make some by pytest --attnperf --attnperf-arch=gfx942 "
            "suites/test_code_objects.py"
        )
    return results
