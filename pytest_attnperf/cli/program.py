"""The `attnperf` command. Commands that need kernels ask a worker; the others only read files.

A command is one file of commands/, or a folder whose files are its actions; `command_files.py` finds them. GROUP,
SUMMARY and ORDER say how it is listed. DESCRIPTION, EPILOG and USAGE are its --help. `add_arguments` declares its
arguments, and `run` returns the exit status. Only the command that was typed is imported: `attnperf worker` runs where
our dependencies may be missing, and importing the others would take time.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import io
import os
import select
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from pytest_attnperf import __version__
from pytest_attnperf.cli.command_files import (
    has_actions,
    import_command,
    list_names,
    list_whole_names,
    read_commands,
    render_list,
)
from pytest_attnperf.errors import AttnperfError

FAILED, INTERRUPTED, READER_GONE = 2, 130, 141
"""Exit status for invalid input, after Ctrl-C, and when the output's reader has gone (128 plus the signal)."""

USAGE = "attnperf COMMAND [options]"
DESCRIPTION = "Companion of pytest-attnperf. Benchmarks run by: pytest --attnperf suites/"
ERROR_CHARACTERS = 20_000

EPILOG = """`attnperf COMMAND --help` has examples; docs/commands.md lists every option.

examples:
  attnperf report      the tables of the last run
  attnperf explain     why its worst case has its verdict

exit status: 0 done, 1 the results shown have a failure, 2 the command or a file
is invalid, 130 stopped by Ctrl-C, 141 the reader of the output has gone

exit status of pytest --attnperf: 0 nothing failed, 1 a case or marker failed,
or is undecided under --attnperf-strict, or a finding is of the run, 2 Ctrl-C,
3 an error of pytest or a plugin, 4 an invalid option or ini value, 5 no tests
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


def _run_command(words: list[str]) -> int:
    name = next((word for word in words if not word.startswith("-")), "")
    if not words:
        sys.stderr.write(f"usage: {USAGE}\n\n{render_list()}\n\n`attnperf COMMAND --help` has examples\n")
        return FAILED
    if name == "help":
        return _run_command([*(word for word in words if word != name), "--help"])
    if not name:
        build_parser([]).parse_args(words)  # ends the process, by --help, --version or an error
        return FAILED
    if name not in list_names():
        from pytest_attnperf.cli.old_names import OLD_NAMES, run_old_name

        if name in OLD_NAMES:
            return run_old_name(words, name, _run_command)
        build_parser([]).error(_describe_unknown(name))
    if has_actions(name):
        behind = words[words.index(name) + 1 :]
        action = behind[0] if behind and not behind[0].startswith("-") else ""
        if action not in list_names(name):
            return _refuse_action(words, name, action)
        name = f"{name} {action}"
    parser = build_parser([name])
    options, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(_describe_unrecognized(name, unknown))
    status: int = import_command(name).run(options)
    return status


def _refuse_action(words: Sequence[str], name: str, action: str) -> int:
    """Prints the help of a command with actions if it is asked for, else an error with its actions and the nearest one.
    Returns 2; the help ends the process."""
    if {"-h", "--help"} & set(words):
        build_parser([name]).parse_args([name, "--help"])
    said = f"there is no action {_make_safe(repr(action))}" if action else "an action is needed"
    near = _describe_nearest(action, list_names(name))
    sys.stderr.write(
        f"usage: attnperf {name} ACTION [options]\n\n{render_list(name)}\n\nattnperf {name}: {said}{near}\n"
    )
    return FAILED


def build_whole_parser() -> argparse.ArgumentParser:
    """Returns a parser that knows all commands, for completion, documentation and tests. Imports all of them."""
    return build_parser(list_whole_names(), shown=None)


def build_parser(names: Sequence[str], shown: str | None = argparse.SUPPRESS) -> argparse.ArgumentParser:
    """Returns a parser that knows the commands and actions `names`. Its --help lists all commands; `shown` is the help
    of argparse's own list, hidden unless None."""
    parser = _Listing(prog="attnperf", usage=USAGE, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"pytest-attnperf {__version__}")
    kinds = _add_choices(parser, "command", "attnperf", shown)
    folders: dict[str, Any] = {}
    for name in names:
        first, _, action = name.partition(" ")
        if has_actions(first) and first not in folders:
            listed = _declare(kinds, first, first)
            if not action:
                listed.description = f"{listed.description}\n\n{render_list(first)}"
            folders[first] = _add_choices(listed, "action", f"attnperf {first}", argparse.SUPPRESS)
        if first not in folders or action:
            declared = _declare(folders.get(first, kinds), name, action or first)
            import_command(name).add_arguments(declared)
    return parser


def _add_choices(parser: argparse.ArgumentParser, dest: str, typed: str, shown: str | None) -> Any:
    """Adds to the parser a place for the names of commands or actions, and returns it."""
    kinds = argparse.ArgumentParser
    return parser.add_subparsers(
        dest=dest, metavar=dest.upper(), required=True, prog=typed, help=shown, parser_class=kinds
    )


def _declare(kinds: Any, name: str, typed: str) -> argparse.ArgumentParser:
    """Adds a command or an action to its place, with its help, and returns its parser."""
    module = import_command(name)
    usage = f"attnperf {name} ACTION [options]" if has_actions(name) else getattr(module, "USAGE", None)
    parser: argparse.ArgumentParser = kinds.add_parser(
        typed,
        help=module.SUMMARY,
        usage=usage,
        description=module.DESCRIPTION,
        epilog=module.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


class _Listing(argparse.ArgumentParser):
    """A parser whose description is the list of commands. The list is made only when the help is printed."""

    def format_help(self) -> str:
        self.description = f"{DESCRIPTION}\n\n{render_list()}"
        return super().format_help()


GUESSES = {
    "codeobjects": "occupancy",
    "delta": "compare",
    "diff": "compare",
    "disasm": "occupancy",
    "fastest": "dispatch",
    "best": "dispatch",
    "html": "report",
    "inspect": "occupancy",
    "results": "report",
    "roofline": "profile",
    "show": "report",
    "view": "report",
    "why": "explain",
}
"""Words that were typed for a command -> the command. 'run' and 'test' are pytest's."""


def _describe_unknown(name: str) -> str:
    known = list(read_commands())
    word = name.replace("-", "").replace("_", "").lower()
    if word in ("run", "test", "bench", "benchmark"):
        return f"there is no command {_make_safe(repr(name))}; pytest runs benchmarks: pytest --attnperf"
    if word in GUESSES:
        return f"there is no command {_make_safe(repr(name))}; did you mean {GUESSES[word]!r}?"
    actions = {one.partition(" ")[2]: one for one in list_whole_names() if " " in one}
    near = _describe_nearest(name, [*known, *actions], actions)
    return f"there is no command {_make_safe(repr(name))}{near}\ncommands: {', '.join(known)}"


def _describe_nearest(name: str, known: Sequence[str], shown: Mapping[str, str] | None = None) -> str:
    """Returns '; did you mean ...?' with the name among `known` that is nearest, or what `shown` has in its place; ''
    if none is near."""
    import difflib

    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"; did you mean {(shown or {}).get(near[0], near[0])!r}?" if near else ""


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
