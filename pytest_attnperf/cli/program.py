"""The `attnperf` command. Commands that need kernels ask a worker; the others only read files.

A command is one file of commands/. Its name is the file's, with hyphens. GROUP, SUMMARY and ORDER say how it is listed.
DESCRIPTION, EPILOG and USAGE are its --help. `add_arguments` declares its arguments, and `run` returns the exit status.
Only the command that was typed is imported: `attnperf worker` runs where our dependencies may be missing, and importing
the others would take time.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import io
import os
import re
import select
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import NamedTuple, TextIO

from pytest_attnperf import __version__
from pytest_attnperf.cli import commands
from pytest_attnperf.errors import AttnperfError, UsageError

FAILED, INTERRUPTED, READER_GONE = 2, 130, 141
"""Exit status for invalid input, after Ctrl-C, and when the output's reader has gone (128 plus the signal)."""

USAGE = "attnperf COMMAND [options]"
DESCRIPTION = "Companion of pytest-attnperf. Benchmarks run in pytest: pytest --attnperf suites/"
NAME_COLUMNS, WIDTH = 18, 80
ERROR_CHARACTERS = 20_000


FACT = re.compile(r"^(GROUP|ORDER|SUMMARY) = (.+)$", re.MULTILINE)
LAST = 1000
NEEDED = ("GROUP", "SUMMARY", "DESCRIPTION", "EPILOG", "add_arguments(parser)", "run(options)")
"""Names that the file of a command must define."""


class Command(NamedTuple):
    """A command as the list shows it. `group` is its heading, `summary` one line, also the `help` of its parser, and
    `order` its place in the list. Groups stand in the order of their first commands."""

    group: str
    summary: str
    order: int


EPILOG = """`attnperf COMMAND --help` has examples; docs/commands.md lists every command and option.

examples:
  attnperf report .attnperf/results.json    the tables of the last run
  attnperf history                          the cases of many runs, and when each last changed

exit status: 0 done, 1 the results shown have a failure, 2 the command or a file is invalid, 130 stopped by Ctrl-C,
141 the reader of the output has gone (attnperf ... | head)

exit status of pytest --attnperf: 0 nothing failed, 1 a case failed or, under --attnperf-strict, could not be
decided, or a finding concerns the run, 2 stopped by Ctrl-C, 3 an error of pytest or a plugin, 4 an option, an ini
value or a marker is invalid, 5 no test was collected
"""

PLAIN = {"…": "...", "≥": ">=", "≤": "<=", "≈": "~", "±": "+-", "\xd7": "x", "µ": "u", "·": "-", "→": "->"}
"""Replacements for letters that a stream's encoding lacks."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the arguments (default: those of the process) name, and returns its exit status. Prints
    expected errors; raises SystemExit for --help, --version and invalid arguments."""
    _write_any_letter()
    try:
        try:
            return _run_command(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # now: at exit the interpreter could only print an error
    except KeyboardInterrupt:
        return INTERRUPTED
    except (AttnperfError, OSError) as error:
        gone = isinstance(error, BrokenPipeError) and (_nobody_reads(sys.stdout) or _nobody_reads(sys.stderr))
        with contextlib.suppress(OSError):
            if not gone:
                print(f"attnperf: {_make_safe(_describe_error(error))}", file=sys.stderr)
        _drop_what_cannot_be_written()
        return READER_GONE if gone else FAILED


def command_names() -> list[str]:
    """Returns the name of every command as it is typed, sorted: the files of commands/ with hyphens for underscores."""
    files = sorted(file for folder in commands.__path__ for file in os.listdir(folder))
    return [file[:-3].replace("_", "-") for file in files if file.endswith(".py") and not file.startswith("_")]


def read_commands() -> dict[str, Command]:
    """Returns name -> Command in the order of the list. Reads the commands' files as text, without importing them."""
    found = {name: _read_command(name) for name in command_names()}
    first = {one.group: one.order for one in sorted(found.values(), key=lambda one: one.order, reverse=True)}
    return dict(sorted(found.items(), key=lambda item: (first[item[1].group], item[1].order, item[0])))


def _read_command(name: str) -> Command:
    """Returns GROUP, SUMMARY, ORDER, read from lines of a command's file. Raises UsageError without the first two."""
    from ast import literal_eval

    paths = (os.path.join(folder, f"{name.replace('-', '_')}.py") for folder in commands.__path__)
    path = next(path for path in paths if os.path.exists(path))
    with open(path, encoding="utf-8") as file:
        facts = {fact: literal_eval(value) for fact, value in FACT.findall(file.read())}
    if not facts.keys() >= {"GROUP", "SUMMARY"}:
        raise UsageError(f"{path}:1: a command needs GROUP = ... and SUMMARY = ..., each on its own line")
    return Command(facts["GROUP"], facts["SUMMARY"], facts.get("ORDER", LAST))


def render_command_list() -> str:
    """Returns the list of all commands with their summaries, under group headings, for 80 columns."""
    import textwrap

    lines: list[str] = []
    group = ""
    for name, command in read_commands().items():
        if command.group != group:
            group = command.group
            lines += ["", f"{group}:"] if lines else [f"{group}:"]
        first = f"  {name:<{NAME_COLUMNS}}"
        lines += textwrap.wrap(command.summary, WIDTH, initial_indent=first, subsequent_indent=" " * len(first))
    return "\n".join(lines)


def import_command(name: str) -> ModuleType:
    """Imports and returns a command's module. Raises UsageError if one of the names that a command needs is missing."""
    module = import_module(f"pytest_attnperf.cli.commands.{name.replace('-', '_')}")
    for lacking in ("DESCRIPTION", "EPILOG", "add_arguments", "run"):
        if not hasattr(module, lacking):
            raise UsageError(f"{module.__file__}:1: a command needs {', '.join(NEEDED)}; {lacking} is missing")
    return module


def _run_command(words: list[str]) -> int:
    name = next((word for word in words if not word.startswith("-")), "")
    if not words:
        sys.stderr.write(f"usage: {USAGE}\n\n{render_command_list()}\n\n`attnperf COMMAND --help` has examples\n")
        return FAILED
    if name not in command_names():
        parser = build_parser([])
        if name:
            parser.error(_describe_unknown(name))
        parser.parse_args(words)
        return FAILED
    parser = build_parser([name])
    options, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(_describe_unrecognized(name, unknown))
    status: int = import_command(name).run(options)
    return status


def build_whole_parser() -> argparse.ArgumentParser:
    """Returns a parser that knows all commands, for completion, documentation and tests. Imports all of them."""
    return build_parser(list(read_commands()), shown=None)


def build_parser(names: Sequence[str], shown: str | None = argparse.SUPPRESS) -> argparse.ArgumentParser:
    """Returns a parser that knows the commands `names`. Its --help lists all commands; `shown` is the help of
    argparse's own list, hidden unless None."""
    parser = _Listing(prog="attnperf", usage=USAGE, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"pytest-attnperf {__version__}")
    kinds = parser.add_subparsers(
        dest="command",
        metavar="COMMAND",
        required=True,
        prog="attnperf",
        help=shown,
        parser_class=argparse.ArgumentParser,
    )
    for name in names:
        module = import_command(name)
        declared = kinds.add_parser(
            name,
            help=module.SUMMARY,
            usage=getattr(module, "USAGE", None),
            description=module.DESCRIPTION,
            epilog=module.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(declared)
    return parser


class _Listing(argparse.ArgumentParser):
    """A parser whose description is the list of commands. The list is made only when the help is printed."""

    def format_help(self) -> str:
        self.description = f"{DESCRIPTION}\n\n{render_command_list()}"
        return super().format_help()


def _describe_unknown(name: str) -> str:
    import difflib

    known = list(read_commands())
    near = difflib.get_close_matches(name, known, 1, 0.5)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no command {_make_safe(repr(name))}{meant}\ncommands: {', '.join(known)}"


def _describe_unrecognized(name: str, words: Sequence[str]) -> str:
    """Returns the message on words that a command does not take: the nearest option, all its options, and the file in
    which the forms of a report are listed."""
    import difflib

    declared = argparse.ArgumentParser()
    import_command(name).add_arguments(declared)
    known = [word for shown in declared._actions for word in shown.option_strings if shown.help != argparse.SUPPRESS]
    known = [word for word in known if word.startswith("--")]
    found = (difflib.get_close_matches(word.partition("=")[0], known, 1, 0.7) for word in words)
    near = "".join(f"; did you mean {', '.join(meant)}?" for meant in found if meant)
    listed = declared.get_default("forms_listed_in")
    forms = f"\nforms of a report are listed in FORMS of {listed}" if listed else ""
    return f"unrecognized arguments: {_make_safe(' '.join(words))}{near}\noptions: {', '.join(known)}{forms}"


def _describe_error(error: Exception) -> str:
    """Returns the text of an expected error; of one of the system what is wrong with which file."""
    from pytest_attnperf.records.regular_file import describe_os_error

    return describe_os_error(error) if isinstance(error, OSError) else str(error)


def _write_any_letter() -> None:
    """Makes standard output replace letters that its encoding lacks by plain ones, instead of raising an error."""
    codecs.register_error("attnperf", _in_plain)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="attnperf")


def _in_plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def _nobody_reads(stream: TextIO | None) -> bool:
    """Returns whether the stream is a pipe whose reader has closed it; False for None, a file or a terminal."""
    try:
        poller = select.poll()
        poller.register(stream.fileno() if stream is not None else -1, 0)
        return any(event & select.POLLERR for _, event in poller.poll(0))
    except (OSError, ValueError):
        return False


def _drop_what_cannot_be_written() -> None:
    """Redirects standard output and error to /dev/null if they cannot be flushed. Otherwise the interpreter fails at
    exit, with a message and status 120."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not _can_flush(stream):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _can_flush(stream: TextIO) -> bool:
    try:
        stream.flush()
    except OSError:
        return False
    return True


def _make_safe(error: object) -> str:
    """Returns an error's text without control characters: it may quote a file, and a terminal would obey them."""
    from pytest_attnperf.reports.text.figures import one_line

    return "\n".join(one_line(line, ERROR_CHARACTERS) for line in str(error).split("\n"))
