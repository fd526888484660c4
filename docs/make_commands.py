"""Writes the list of commands in docs/commands.md from their parsers: `python docs/make_commands.py`.

What stands outside the two marks is written by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

from pytest_attnperf.cli.command_files import list_whole_names, read_commands
from pytest_attnperf.cli.program import build_whole_parser

PAGE = Path(__file__).with_name("commands.md")
BEGIN, END = "<!-- commands: begin -->", "<!-- commands: end -->"
COLUMNS = 120

EXAMPLES_MOST = 1
"""Shown of each command; --help prints all."""

EVERYWHERE = {
    "--json": "print JSON",
    "--markdown": "print Markdown",
    "--color": "",
    "--report": "write report.html and the other forms into DIR",
    "--junit": "write JUnit XML",
    "--tests": "tests to collect (default: suites/, else .)",
    "--device": "run on it (default: a GPU if any)",
}
"""Options, and their help where it is the usual one: the page says them once, above the list. '' is any help."""

MORE = {
    "init": "add-to-your-repo.md",
    "doctor": "doctor.md",
    "list": "running.md#tiers",
    "report": "results-format.md#reports",
    "explain": "when-the-gate-is-red.md",
    "judge": "judge.md",
    "baselines check": "baselines.md#entries-beside-the-tree",
    "baselines accept": "baselines.md#accepting-a-change",
    "baselines merge": "baselines.md#merging-branches-that-both-recorded",
    "baselines pool": "baselines.md#several-cards",
    "compare": "baselines.md#comparing-two-results",
    "history": "baselines.md#history",
    "bisect": "how-a-number-is-made.md#which-commit-attnperf-bisect-good-bad-nodeid",
    "blame": "when-the-gate-is-red.md#which-package-attnperf-blame",
    "gate": "ci.md#the-commands",
    "export": "results-format.md#for-other-programs",
    "profile": "profiling.md",
    "occupancy": "occupancy.md",
    "tune": "tuner.md",
    "dispatch": "tuner.md#dispatch",
    "kernel run": "../kernels/hip/BUILD.md#launch",
    "kernel build": "../kernels/hip/BUILD.md#build",
    "completion": "#completion",
    "worker": "worker-protocol.md#behind-a-command",
}
"""Where a command's page is. Its help has the same in short, and is not repeated here."""

HEADINGS = re.compile(r"^(exit status|examples):[ \n]", re.MULTILINE)


class Epilog(NamedTuple):
    """Of a command: what else is said, the exit status, and lines that may be typed, each with its remark behind #."""

    prose: str
    exit_status: str
    examples: tuple[str, ...]


def main() -> int:
    """Renew the page."""
    PAGE.write_text(renewed(PAGE.read_text()))
    sys.stdout.write(f"{PAGE}\n")
    return 0


def renewed(text: str) -> str:
    """The page with the list as the parsers have it now. Raises ValueError where the marks are missing."""
    before, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} needs {BEGIN} and {END}, each on a line of its own")
    return f"{before}{begin}\n{listed()}\n{end}{after}"


def listed() -> str:
    """Every command, or each of its actions, under the heading of its group."""
    parsers, groups, blocks, group = parsers_of(build_whole_parser()), read_commands(), [], ""
    for name in list_whole_names():
        command = groups[name.partition(" ")[0]]
        if command.group != group:
            group = command.group
            blocks.append(f"## {group[0].upper()}{group[1:]}\n")
        blocks.append(section(name, parsers[name]))
    return "\n".join(blocks)


def parsers_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """By name as typed, those of the commands and, in place of a command that has some, of its actions."""
    choices = next((a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)), {})
    return {
        f"{name} {action}" if action else name: found
        for name, own in choices.items()
        for action, found in (parsers_of(own) or {"": own}).items()
    }


def section(name: str, parser: argparse.ArgumentParser) -> str:
    """Purpose, synopsis, arguments, exit status and an example of one command."""
    told = split(parser.epilog or "")
    parts = [f"### attnperf {name}", wrapped(parser.description or "")]
    if (typed := synopsis(name, parser)) != f"attnperf {name} [options]":
        parts.append(f"`{typed}`")
    parts += argument_lists(parser)
    more = f". [More]({MORE[name]})" if name in MORE else ""
    parts.append(wrapped(f"Exit status: {told.exit_status}{more}"))
    parts.append("```console\n" + "\n".join(told.examples[:EXAMPLES_MOST]) + "\n```")
    return "\n\n".join(parts) + "\n"


def argument_lists(parser: argparse.ArgumentParser) -> list[str]:
    """The list of arguments, then a list of each group that needs another option, below what it needs."""
    lists = {"": [], **{group.title: [] for group in parser._action_groups if (group.title or "").startswith("with ")}}
    for group in parser._action_groups:
        lists[group.title if group.title in lists else ""] += [
            said for action in group._group_actions if (said := described(action, parser))
        ]
    return [
        "\n".join([*([f"With `{title[5:].replace(' or ', '` or `')}`:\n"] if title else []), *said])
        for title, said in lists.items()
        if said
    ]


def split(epilog: str) -> Epilog:
    """The sections of an epilog: 'exit status:' runs on to an empty line, 'examples:' has indented lines."""
    found = {"exit status": "", "examples": ""}
    blocks = [block for block in re.split(r"\n\s*\n", epilog.strip("\n")) if block]
    prose = []
    for block in blocks:
        heading = HEADINGS.match(f"{block}\n")
        if heading:
            found[heading[1]] = block[len(heading[1]) + 1 :]
        else:
            prose.append(block)
    lines = [re.sub(r"\s{2,}", "  # ", line.strip(), count=1) for line in found["examples"].splitlines()]
    return Epilog("\n\n".join(prose), " ".join(found["exit status"].split()), tuple(line for line in lines if line))


def synopsis(name: str, parser: argparse.ArgumentParser) -> str:
    """The command with its arguments: what must be there as it is, the options as [options]."""
    if parser.usage:
        return parser.usage
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    required = [f"{a.option_strings[0]} {value_of(a)}" for a in shown if a.option_strings and a.required]
    taken = [positional(action) for action in shown if not action.option_strings]
    return " ".join([f"attnperf {name} [options]", *required, *taken])


def positional(action: argparse.Action) -> str:
    """RESULTS..., [CASE]."""
    value = value_of(action)
    return {"+": f"{value}...", "?": f"[{value}]", "*": f"[{value}...]", "...": f"[{value}...]"}.get(
        str(action.nargs), value
    )


def value_of(action: argparse.Action) -> str:
    """What stands for the value."""
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return action.dest.upper() if action.option_strings else action.dest


def described(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """A line of the list of arguments; '' for what is hidden or is the same everywhere."""
    if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
        return ""
    if any(EVERYWHERE.get(option, action) in ("", action.help) for option in action.option_strings):
        return ""
    more = {"+": "...", "*": "..."}.get(str(action.nargs), "")
    names = ", ".join(f"`{option}`" for option in action.option_strings) or f"`{value_of(action)}`"
    if action.option_strings and action.nargs != 0:
        value = f" {value_of(action)}{more}"
        names = names[:-1] + (f"[={value[1:]}]`" if action.nargs == "?" else f"{value}`")
    known = vars(action) | {"prog": parser.prog}
    said = (action.help or "") % known
    return textwrap.fill(
        f"- {names}: {said}" if said else f"- {names}",
        COLUMNS,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def wrapped(text: str) -> str:
    """As the pages are."""
    return textwrap.fill(" ".join(text.split()), COLUMNS, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    sys.exit(main())
