"""`attnperf export`: results, or a profile, in the form that another program reads."""

from __future__ import annotations

import argparse
import gzip
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.option_groups import RESULTS
from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.export.formats import FORMATS, TimesFormat, TraceFormat

if TYPE_CHECKING:
    from pytest_attnperf.tools.export.exported_cases import Exported

GROUP = "in CI"
ORDER = 95
SUMMARY = "write results or a profile in the form another program reads"
DESCRIPTION = "Writes measured results, or a profile, in the form that another program reads."

USAGE = "attnperf export --to FORMAT [--out FILE] [RESULTS ...]"

EPILOG = f"""formats:
{chr(10).join(f"  {one.name:<30} {one.title}" for one in FORMATS)}

RESULTS are files that pytest --attnperf wrote, stored baselines, or folders of these; for perfetto, what a profiler
wrote. Only cases that were proven right and timed have a time; the others are counted on standard error. Names hold the
device. Of a case that occurs twice on a device the worse result counts, or the later of two equal ones.

exit status: 0 written, whatever the verdicts are; 2 the command or a file is invalid, or no case has a time

examples:
  attnperf export --to github-action-benchmark --out times.json
  attnperf export --to bencher mi300x.json h200.json
  attnperf export --to csv baselines/sm_90/h200/prefill.json
  attnperf export --to perfetto rocprof_out/ --out trace.json.gz
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf export` to its parser."""
    parser.add_argument(
        "results", type=Path, nargs="*", metavar="RESULTS", help=f"results, or a profile (default: {RESULTS})"
    )
    parser.add_argument(
        "--to", required=True, choices=[one.name for one in FORMATS], metavar="FORMAT", help="one of the formats below"
    )
    parser.add_argument(
        "--out", default="-", metavar="FILE", help="write it into FILE, packed if it ends in .gz (default: print it)"
    )


def run(options: argparse.Namespace) -> int:
    """Writes the export. Returns 0. Raises UsageError, and what reading a file raises."""
    chosen = next(one for one in FORMATS if one.name == options.to)
    if isinstance(chosen, TraceFormat):
        _write(_export_profile(chosen, options.results), options.out)
        return 0
    from pytest_attnperf.plugin.report_inputs import read_runs
    from pytest_attnperf.tools.export.exported_cases import choose_cases

    exported = choose_cases(read_runs(options.results or [RESULTS]))
    _write(chosen.render(exported).encode("utf-8", "replace"), options.out)
    for line in [*exported.joined.notes, *_describe_counts(chosen, exported)]:
        _tell(line)
    return 0


def _export_profile(chosen: TraceFormat, paths: list[Path]) -> bytes:
    if len(paths) != 1:
        raise UsageError(
            f"--to {chosen.name} takes one profile, and {len(paths)} were given; name the file or folder that a "
            "profiler wrote"
        )
    return chosen.render(paths[0])


def _describe_counts(chosen: TimesFormat, exported: Exported) -> list[str]:
    """Returns a line with the number of cases in the file and of those left out, with reasons."""
    from pytest_attnperf.tools.export.exported_cases import describe_left_out

    count = len(exported.joined.cases)
    if chosen.every_case:
        compiled = len(exported.joined.code)
        return [f"exported: {count} cases{f' and {compiled} compiled kernels' if compiled else ''}"]
    left_out = f"; left out: {describe_left_out(exported.left_out)}" if exported.left_out else ""
    return [f"exported: {len(exported.cases)} of {count} cases{left_out}"]


def _write(content: bytes, file: str) -> None:
    """Writes the file, or prints it if it is '-'."""
    from pytest_attnperf.records.atomic_file import write_atomically

    if file == "-":
        sys.stdout.write(content.decode())
        return
    write_atomically(Path(file), gzip.compress(content, mtime=0) if file.lower().endswith(".gz") else content)
    _tell(f"written: {file}")


def _tell(line: str) -> None:
    from pytest_attnperf.reports.text.figures import one_line

    sys.stderr.write(f"{one_line(line, 1000)}\n")
