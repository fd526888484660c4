"""The `attnperf` command. What needs kernels asks a worker; what is here reads files only."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf import (
    __version__,
    bisect_command,
    build_kernels_command,
    calibrate_device_command,
    dispatch_command,
    ladder_command,
    occupancy_command,
    profile_command,
    run_kernel_command,
    stages_command,
    tune_command,
    worker_command,
)
from pytest_attnperf.errors import AttnperfError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

EPILOG = """examples:
  attnperf report .attnperf/results.json     the tables of a stored run
  pytest --attnperf suites/                  make one
  attnperf bisect v1.2 main NODEID           find the commit that made a case slower
  attnperf ladder .attnperf/results.json     every step's time, registers, LDS, occupancy and loads
  attnperf profile DIR                       where GPU time goes, from rocprofv3's or torch.profiler's files
  attnperf stages .attnperf/results.json     where a layer's time goes; staged attention against fused
  attnperf tune triton.flash --workloads b=4,s=512,h=8,d=256,causal --budget 10m
  attnperf dispatch .attnperf/results.json   which backend is best where, as a table and a function
  attnperf occupancy --arch gfx942 --vgprs 96 --sgprs 40 --lds 8192 --threads 256

exit status: 0 done, 1 the run that is shown had failures, 2 the command or a file is off
"""


def _add_report(commands: Subparsers) -> None:
    report = commands.add_parser("report", help="print the tables and the closing lines of a results.json")
    report.add_argument("results", type=Path)


def _report(options: argparse.Namespace) -> int:
    from pytest_attnperf.code_records import CODE_SUITE
    from pytest_attnperf.reports import json_results
    from pytest_attnperf.reports.code_objects import code_table
    from pytest_attnperf.reports.tables import suite_table
    from pytest_attnperf.reports.terminal import closing_lines

    path: Path = options.results
    run = json_results.decode(path.read_bytes(), str(path))
    width = shutil.get_terminal_size((110, 24)).columns
    for suite in dict.fromkeys(case.key.suite for case in run.cases):
        print(suite)
        print(suite_table([case for case in run.cases if case.key.suite == suite], width=width))
        print()
    if run.code:
        print(f"{CODE_SUITE}\n{code_table(run.code)}\n")
    print("\n".join(closing_lines(run, str(path))))
    failed = [case.fails for case in run.cases] + [result.fails for result in run.code]
    return 1 if any(failed) else 0


COMMANDS: dict[str, tuple[Callable[[Subparsers], None], Callable[[argparse.Namespace], int]]] = {
    "report": (_add_report, _report),
    "bisect": (bisect_command.add_to, bisect_command.run),
    "occupancy": (occupancy_command.add_to, occupancy_command.run),
    "ladder": (ladder_command.add_to, ladder_command.run),
    "profile": (profile_command.add_to, profile_command.run),
    "calibrate-device": (calibrate_device_command.add_to, calibrate_device_command.run),
    "stages": (stages_command.add_to, stages_command.run),
    "tune": (tune_command.add_to, tune_command.run),
    "dispatch": (dispatch_command.add_to, dispatch_command.run),
    "build-kernels": (build_kernels_command.add_to, build_kernels_command.run),
    "run-kernel": (run_kernel_command.add_to, run_kernel_command.run),
    "worker": (worker_command.add_to, worker_command.run),
}
"""By name: what declares the subcommand's arguments, and what runs it and gives the exit status.

All are declared whenever one is typed, and `worker` runs where our dependencies may be missing: import those inside
functions.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    parser = argparse.ArgumentParser(
        prog="attnperf",
        description="Companion of pytest-attnperf.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pytest-attnperf {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add, _ in COMMANDS.values():
        add(commands)
    options = parser.parse_args(arguments)
    _, run = COMMANDS[options.command]
    try:
        return run(options)
    except (AttnperfError, OSError) as error:
        print(f"attnperf: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
