"""The `attnperf` command. What needs kernels asks a worker; what is here reads files only.

Only the command that is typed is imported: `attnperf worker` runs where our dependencies may be missing, and nobody
should wait for commands that they did not type.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import io
import os
import select
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import NamedTuple, TextIO

from pytest_attnperf import __version__
from pytest_attnperf.errors import AttnperfError

FAILED, INTERRUPTED, READER_GONE = 2, 130, 141
"""Exit status of a command or file that is off, after Ctrl-C, and when nobody reads what is printed any more: the last
two as a shell has them, 128 and the number of the signal."""

USAGE = "attnperf COMMAND [options]"
DESCRIPTION = "Companion of pytest-attnperf. Measuring is done by pytest: pytest --attnperf suites/"
NAME_COLUMNS, WIDTH = 18, 80
ERROR_CHARACTERS = 20_000


class Command(NamedTuple):
    """group: the heading it is listed under; summary: one line, the `help` of its own parser."""

    group: str
    summary: str


FIRST, DAILY, CI, DEEPER, REST = "first hour", "every day", "in CI", "deeper", "shells and machines"

COMMANDS: dict[str, Command] = {
    "doctor": Command(
        FIRST, "what this machine and these packages do to the numbers, and what mends it; a bundle for bug reports"
    ),
    "warm": Command(FIRST, "build, compile and tune every selected case ahead of a timed run"),
    "report": Command(FIRST, "results again: tables, a page, Markdown or JUnit"),
    "explain": Command(
        DAILY, "why a case has its verdict: words, every figure, what changed, and what would decide it"
    ),
    "accept": Command(
        DAILY, "take a wanted slowdown or another identity into the baseline, from results, with a reason"
    ),
    "compare": Command(DAILY, "two results side by side, or the GPUs of a run: which card is slow"),
    "history": Command(DAILY, "a case over time: where it changed, by commit; importing and pruning"),
    "bisect": Command(DAILY, "find the first slow commit between two revisions"),
    "gate": Command(CI, "judge results of another machine, against the baselines of a revision"),
    "merge": Command(CI, "results of several machines or shards as one file, one report and one exit status"),
    "comment": Command(CI, "one comment on a GitHub pull request, updated by later runs"),
    "merge-baselines": Command(CI, "merge baseline files entry by entry, as git's merge driver or after a conflict"),
    "profile": Command(DEEPER, "where GPU time goes, what binds kernels, and what contradicts itself"),
    "stages": Command(DEEPER, "where a call's time goes: stages, launches, first call; staged against fused"),
    "ladder": Command(DEEPER, "backends of a workload side by side: times, and the machine code that ran"),
    "occupancy": Command(DEEPER, "how many waves of a kernel fit a SIMD, why, and what would raise it"),
    "calibrate-device": Command(DEEPER, "measure what this device reaches, for rooflines"),
    "tune": Command(DEEPER, "search a backend's configuration, and write the files that its kernel reads"),
    "dispatch": Command(DEEPER, "which backend to take where, from measured results"),
    "run-kernel": Command(DEEPER, "run one backend on one workload, for profilers and debuggers"),
    "build-kernels": Command(DEEPER, "compile the registered HIP kernels into a folder of objects"),
    "completion": Command(REST, "print what makes a shell complete these commands"),
    "worker": Command(REST, "serve a pytest of another tree or machine over stdin and stdout; not typed by hand"),
}
"""By name; each lies in commands/<name>.py, whose `add_to` declares its arguments and whose `run` gives the status."""

EPILOG = """`attnperf COMMAND --help` has examples; docs/commands.md has everything.

examples:
  attnperf report .attnperf/results.json    the tables of the run before
  attnperf history                          the cases of many runs, and where each last changed

exit status: 0 done, 1 what is shown is a failure, 2 the command or a file is off, 130 stopped by Ctrl-C,
141 whoever read the output has gone (attnperf ... | head)

exit status of pytest --attnperf: 0 nothing failed, 1 a case failed or, under --attnperf-strict, could not be
decided, or a finding concerns the run, 2 stopped by Ctrl-C, 3 an error of pytest or a plugin, 4 an option, an ini
value or a marker is off, 5 no test was collected
"""

PLAIN = {"…": "...", "≥": ">=", "≤": "<=", "≈": "~", "±": "+-", "\xd7": "x", "µ": "u", "·": "-", "→": "->"}
"""For a stream that cannot write such letters."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console script. The exit status; SystemExit for --help, --version and a command line that
    is off."""
    _write_any_letter()
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # now, for at its end the interpreter can only complain
    except KeyboardInterrupt:
        return INTERRUPTED
    except (AttnperfError, OSError) as error:
        gone = isinstance(error, BrokenPipeError) and (_nobody_reads(sys.stdout) or _nobody_reads(sys.stderr))
        with contextlib.suppress(OSError):
            if not gone:
                print(f"attnperf: {_shown(error)}", file=sys.stderr)
        _drop_what_cannot_be_written()
        return READER_GONE if gone else FAILED


def whole_parser() -> argparse.ArgumentParser:
    """With every command declared: what is completed, documented and tested."""
    return _parser(COMMANDS)


def listing() -> str:
    """The commands under their headings, as a terminal shows them."""
    import textwrap

    lines: list[str] = []
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines += ["", f"{group}:"] if lines else [f"{group}:"]
        for name, command in COMMANDS.items():
            if command.group == group:
                first = f"  {name:<{NAME_COLUMNS}}"
                lines += textwrap.wrap(command.summary, WIDTH, initial_indent=first, subsequent_indent=" " * len(first))
    return "\n".join(lines)


def module_of(name: str) -> ModuleType:
    """The file of a command."""
    return import_module(f"pytest_attnperf.cli.commands.{name.replace('-', '_')}")


def _run(words: list[str]) -> int:
    name = next((word for word in words if not word.startswith("-")), "")
    if not words:
        sys.stderr.write(f"usage: {USAGE}\n\n{listing()}\n\n`attnperf COMMAND --help` has examples\n")
        return FAILED
    if name not in COMMANDS:
        parser = _parser([])
        if name:
            parser.error(_unknown(name))
        parser.parse_args(words)
        return FAILED
    options = _parser([name]).parse_args(words)
    status: int = module_of(name).run(options)
    return status


def _parser(names: Sequence[str] | dict[str, Command]) -> argparse.ArgumentParser:
    """Of these commands; --help lists all."""
    parser = argparse.ArgumentParser(
        prog="attnperf",
        usage=USAGE,
        description=f"{DESCRIPTION}\n\n{listing()}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pytest-attnperf {__version__}")
    shown = None if names is COMMANDS else argparse.SUPPRESS  # in the description they stand under headings
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, prog="attnperf", help=shown)
    for name in names:
        module_of(name).add_to(commands)
    return parser


def _unknown(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, 1, 0.5)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no command {_shown(repr(name))}{meant}\ncommands: {', '.join(COMMANDS)}"


def _write_any_letter() -> None:
    """A terminal or pipe of another encoding gets something legible, not a traceback; standard error always does."""
    codecs.register_error("attnperf", _in_plain)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="attnperf")


def _in_plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def _nobody_reads(stream: TextIO | None) -> bool:
    """Whether the stream is a pipe whose other end is closed. Another pipe of ours may break, too, and that is said."""
    try:
        poller = select.poll()
        poller.register(stream.fileno() if stream is not None else -1, 0)
        return any(event & select.POLLERR for _, event in poller.poll(0))
    except (OSError, ValueError):
        return False


def _drop_what_cannot_be_written() -> None:
    """Else the interpreter tries again when it ends, says so on standard error, and exits with 120."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not _flushed(stream):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _flushed(stream: TextIO) -> bool:
    try:
        stream.flush()
    except OSError:
        return False
    return True


def _shown(error: object) -> str:
    """Its text without what a terminal or a CI system would obey: a file's name or content may stand in it."""
    from pytest_attnperf.reports.text.figures import one_line

    return "\n".join(one_line(line, ERROR_CHARACTERS) for line in str(error).split("\n"))
