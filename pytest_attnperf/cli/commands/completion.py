"""`attnperf completion SHELL`: prints a script with which a shell completes commands, options, files and case keys."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_attnperf.errors import AttnperfError, UsageError

GROUP = "also"
ORDER = 220
SUMMARY = "print a script with which a shell completes these commands"
DESCRIPTION = "Prints a script with which a shell completes commands, options, files and case keys."

SHELLS = ("bash", "zsh", "tcsh", "fish")
RESULTS = Path(".attnperf") / "results.json"
CASES = "attnperf completion --cases 2>/dev/null"

HARMLESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./+@,-]*")
"""Pattern of keys that are offered. A results file may come from anywhere, and shells expand what they complete."""

EPILOG = """In .bashrc:  eval "$(attnperf completion bash)"
For zsh, as a file _attnperf in a folder of $fpath, before compinit runs:
             attnperf completion zsh > ~/.zfunc/_attnperf
For fish:    attnperf completion fish > ~/.config/fish/completions/attnperf.fish
For tcsh:    attnperf completion tcsh > ~/.attnperf.tcsh, and in .tcshrc: source ~/.attnperf.tcsh
Case keys come from .attnperf/results.json in the current folder. docs/commands.md says how pytest's own options
are completed.

exit status: 0 printed, 2 the command is invalid, or shtab is not installed

examples:
  attnperf completion bash
  attnperf completion zsh > ~/.zfunc/_attnperf
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds SHELL, and hidden options for the completion script, to the parser of `attnperf completion`."""
    parser.add_argument("shell", nargs="?", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    parser.add_argument("--cases", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=RESULTS, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Prints the completion script of a shell or, with --cases, the case keys that the script offers. Returns 0.
    Raises UsageError if no shell is given, or shtab is not installed."""
    if options.cases:
        sys.stdout.writelines(f"{key}\n" for key in case_keys(options.results))
        return 0
    if options.shell is None:
        raise UsageError(f"no shell is given; name one of {', '.join(SHELLS)}, e.g. attnperf completion bash")
    sys.stdout.write(f"{render_script(options.shell)}\n")
    return 0


def render_script(shell: str) -> str:
    """Returns the completion script for a shell. Raises UsageError if shtab is not installed."""
    try:
        import shtab
    except ImportError:
        raise UsageError(
            "attnperf completion needs shtab, which is not installed: pip install 'pytest-attnperf[completion]'"
        ) from None
    from pytest_attnperf.cli.program import build_whole_parser

    parser = build_whole_parser()
    for action in list_actions(parser):
        kind = find_completion(action)
        if kind is not None:
            action.complete = {"file": shtab.FILE, "folder": shtab.DIRECTORY, "case": OF_CASES}[kind]  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))


OF_CASES = {
    "bash": "_attnperf_cases",
    "zsh": "_attnperf_cases",
    "tcsh": f"`{CASES.partition(' 2>')[0]}`",
    "fish": f"({CASES})",
    "preamble": {
        "bash": f"""
_attnperf_cases() {{
  local key
  while IFS= read -r key; do [[ "$key" == "$1"* ]] && printf '%s\\n' "$key"; done < <({CASES})
}}
""",
        "zsh": f"""
_attnperf_cases() {{
  compadd -- ${{(f)"$({CASES})"}}
}}
""",
    },
}
"""How each shell asks for the case keys, only when they are wanted."""


def list_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yields every argument and option of the parser and, recursively, of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from list_actions(inner)


def find_completion(action: argparse.Action) -> str | None:
    """Returns what a shell offers for an argument: 'file', 'folder' or 'case', by its metavar and type; None if
    nothing, or if argparse knows the choices."""
    names = (action.metavar,) if isinstance(action.metavar, str) else action.metavar or ()
    words = set(re.findall(r"[A-Z]+", " ".join(names)))
    if action.choices is not None or action.nargs == 0:
        return None
    if words & {"CASE", "WHAT"} or action.dest in ("case", "cases"):
        return "case"
    if words & {"FILE", "PATH", "NODEID"} or (action.type is Path and not words & {"DIR", "ROOT"}):
        return "file"
    return "folder" if words & {"DIR", "ROOT"} else None


def case_keys(results: Path) -> list[str]:
    """Returns the sorted case keys of a results file; [] if it is unreadable, because messages would disturb typing."""
    from pytest_attnperf.records.regular_file import read_regular
    from pytest_attnperf.reports.files.json_results import BYTES_MAX

    try:
        held: Any = json.loads(read_regular(results, BYTES_MAX))
    except (AttnperfError, OSError, ValueError, RecursionError):
        return []
    listed = [held.get(name) for name in ("cases", "code")] if isinstance(held, dict) else []
    cases = [case for some in listed if isinstance(some, list) for case in some]
    keys = (_format_key(case.get("key")) for case in cases if isinstance(case, dict))
    return sorted({key for key in keys if HARMLESS.fullmatch(key)})


def _format_key(parts: Any) -> str:
    """Returns 'suite/backend/workload[/label]' of a key as JSON object; '' if it is not an object."""
    found = [parts.get(name) for name in ("suite", "backend", "workload", "label")] if isinstance(parts, dict) else []
    return "/".join(part for part in found if isinstance(part, str) and part)
