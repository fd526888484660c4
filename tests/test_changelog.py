"""CHANGELOG.md: short, of the version that is built, and each command and option of its newest section exists."""

from __future__ import annotations

import argparse
import re

import pytest

from pytest_attnperf import __version__
from pytest_attnperf.cli.command_files import list_whole_names
from pytest_attnperf.cli.old_names import OLD_NAMES
from pytest_attnperf.cli.program import build_parser
from pytest_attnperf.plugin.options import OPTIONS
from pytest_attnperf.plugin.switches import SWITCHES
from pytest_attnperf.plugin.unknown_names import refuse_old_options
from tests.elsewhere import ROOT

LINES_MOST = 40
SECTION = re.compile(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = SECTION.findall((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
WAS = re.compile(r"\(was ([^)]*)\)")
CODE = re.compile(r"`([^`]+)`")
FLAG = re.compile(r"--[a-z][a-z-]+")
PLUGIN_FLAGS = {switch.flag for switch in SWITCHES} | {option.flag for option in OPTIONS if not option.key}
PLUGIN_FLAGS |= {"--update-baselines", "--attnperf-help"}


def list_lines(text: str) -> list[str]:
    """Returns the entries of a section, which are a line each."""
    return [line for line in text.splitlines() if line.startswith("- ")]


def find_problems(text: str) -> list[str]:
    """Returns what a section names and does not exist: options of the plugin, commands, and options that follow their
    command. What it names in '(was ...)' must be gone, and answered."""
    return [*_find_missing(CODE.findall(WAS.sub("", text))), *_find_unanswered(WAS.findall(text))]


def _find_missing(spans: list[str]) -> list[str]:
    flags = {flag for span in spans for flag in FLAG.findall(span) if "attnperf" in flag}
    missing = sorted(flags - PLUGIN_FLAGS)
    for words in (span.split() for span in spans if span.startswith("attnperf ")):
        name = next((name for name in (" ".join(words[1:3]), words[1]) if name in list_whole_names()), "")
        if name:
            missing += [f"attnperf {name} {flag}" for flag in FLAG.findall(" ".join(words)) if not _takes(name, flag)]
        elif not any(one.startswith(f"{words[1]} ") for one in list_whole_names()):
            missing.append(f"attnperf {words[1]}")
    return missing


def _takes(name: str, flag: str) -> bool:
    return any(flag in parser.format_help() for parser in _list_parsers(build_parser([name])))


def _list_parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [parser, *(found for one in below for choice in one.choices.values() for found in _list_parsers(choice))]


def _find_unanswered(old: list[str]) -> list[str]:
    found = []
    for span in (span for names in old for span in CODE.findall(names)):
        if span.startswith("attnperf ") and span.split()[1] not in OLD_NAMES:
            found.append(f"{span} is not answered")
        if span.startswith("--attnperf-"):
            try:
                refuse_old_options([span])
            except pytest.UsageError:
                continue
            found.append(f"{span} is not answered")
    return found


def test_the_newest_section_is_of_this_version() -> None:
    """Behind an [Unreleased] one, if there is any; each release has a date, and the newest is first."""
    released = [(version, date) for version, date, _ in SECTIONS if version != "Unreleased"]
    assert released[0][0] == __version__
    assert all(date for _, date in released)
    assert [date for _, date in released] == sorted((date for _, date in released), reverse=True)


@pytest.mark.parametrize("text", [text for *_, text in SECTIONS], ids=[version for version, *_ in SECTIONS])
def test_a_section_is_short(text: str) -> None:
    """A user reads it: at most 40 entries, of a line each, which say nothing twice."""
    lines = list_lines(text)
    assert len(set(lines)) == len(lines) <= LINES_MOST
    assert [line for line in lines if len(line) > 300] == []


def test_what_the_newest_section_names_exists() -> None:
    """Options, commands, and options of commands are those of today; old ones are answered with the new spelling."""
    assert find_problems(SECTIONS[0][2]) == []


def test_what_does_not_exist_is_found() -> None:
    """An option of the plugin, a command, an option of a command, and an old name that nothing answers."""
    text = "- `--attnperf-nope=1`, `attnperf nope`, `attnperf gate --nope` (was `attnperf was`, `--attnperf-was`)\n"
    assert find_problems(text) == [
        *("--attnperf-nope", "attnperf nope", "attnperf gate --nope"),
        *("attnperf was is not answered", "--attnperf-was is not answered"),
    ]
