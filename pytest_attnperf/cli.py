"""The `attnperf` command. What needs kernels asks a worker; what is here reads files only."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pytest_attnperf import (
    __version__,
    bisect_command,
    build_kernels_command,
    calibrate_device_command,
    comment_command,
    dispatch_command,
    gate_command,
    history_command,
    ladder_command,
    occupancy_command,
    profile_command,
    report_command,
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
  attnperf report results.json --html DIR    a page that opens offline, Markdown, JUnit
  attnperf history CASE --plot FILE.svg      where a case's time changed, and between which commits
  attnperf gate --results R --base main      judge what another machine measured
  attnperf occupancy --arch gfx942 --vgprs 96 --sgprs 40 --lds 8192 --threads 256

exit status: 0 done, 1 the run that is shown had failures, 2 the command or a file is off
"""


COMMANDS: dict[str, tuple[Callable[[Subparsers], None], Callable[[argparse.Namespace], int]]] = {
    "report": (report_command.add_to, report_command.run),
    "bisect": (bisect_command.add_to, bisect_command.run),
    "occupancy": (occupancy_command.add_to, occupancy_command.run),
    "ladder": (ladder_command.add_to, ladder_command.run),
    "profile": (profile_command.add_to, profile_command.run),
    "calibrate-device": (calibrate_device_command.add_to, calibrate_device_command.run),
    "stages": (stages_command.add_to, stages_command.run),
    "tune": (tune_command.add_to, tune_command.run),
    "dispatch": (dispatch_command.add_to, dispatch_command.run),
    "history": (history_command.add_to, history_command.run),
    "gate": (gate_command.add_to, gate_command.run),
    "comment": (comment_command.add_to, comment_command.run),
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
        print(f"attnperf: {_shown(error)}", file=sys.stderr)
        return 2


def _shown(error: Exception) -> str:
    """Its text without what a terminal would obey: a file's name or content may stand in it."""
    return "".join(c if c == "\n" or c.isprintable() else "?" for c in str(error))


if __name__ == "__main__":
    sys.exit(main())
