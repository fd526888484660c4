"""Commands in README, docs and the folders' own pages can be typed: they parse, and what they select exists."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from pytest_attnperf.cli.command_files import list_whole_names
from pytest_attnperf.cli.program import build_whole_parser
from pytest_attnperf.plugin.options import OPTIONS
from pytest_attnperf.plugin.switches import SWITCHES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [*sorted((ROOT / "kernels").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
FENCED = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:pytest|attnperf) [^`]+)`")
TYPED = re.compile(r"(?:\$ )?((?:pytest|attnperf) .*)")
REMARK = re.compile(r"  +(?=[^-\s'\"])\S.*$|\s+#.*$")
"""Words behind a command: two spaces part them from it, or a '#'."""
STOPS = {"|", ">", ">>", "&&", "||", ";"}
SKETCHED = re.compile(r"\.\.\.|\{|<|\[options|[A-Z]{2,}|\b[NX]\b")
"""A form to fill in, or a part left out."""

CASES = """
import sys
from pytest_attnperf.plugin.own_pytest import collect_cases
from pytest_attnperf.records import DeviceInfo

def print_ids(cases):
    print("\\n".join(case.nodeid for case in cases(DeviceInfo("cuda", "sm_90", "h200", "h200"))))
    return 0

sys.exit(collect_cases(print_ids))
"""
"""Prints the id of every case of the suites, of every tier."""


@dataclass(frozen=True)
class Command:
    """A command of a page: 'pytest' or 'attnperf', and its words. `whole`: it stands in a block, not in a sentence,
    where arguments may be left out."""

    page: str
    program: str
    words: tuple[str, ...]
    whole: bool

    @property
    def id(self) -> str:
        """For reports of tests."""
        return f"{self.page}: {self.program} {' '.join(self.words)}"


def read_commands(text: str, page: str = "page") -> list[Command]:
    """Every command in code of a page, without remarks, and without forms to fill in."""
    blocks = FENCED.findall(text) + [line[4:] for line in text.splitlines() if line.startswith("    ")]
    lines = [(line.strip(), True) for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += [(line, False) for line in INLINE.findall(text)]
    found = [(REMARK.sub("", match[1]), whole) for line, whole in lines if (match := TYPED.fullmatch(line))]
    return [_split(line, page, whole) for line, whole in found if not SKETCHED.search(line)]


def _split(line: str, page: str, whole: bool) -> Command:
    program, *words = shlex.split(line)
    end = next((number for number, word in enumerate(words) if word in STOPS), len(words))
    return Command(page, program, tuple(words[:end]), whole)


def all_commands(program: str) -> list[Command]:
    """Of every page, each once."""
    found = [
        command
        for page in PAGES
        for command in read_commands(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))
    ]
    return list(dict.fromkeys(command for command in found if command.program == program))


@lru_cache(maxsize=1)
def collected() -> tuple[str, ...]:
    """The id of every test of the suites, in every tier, for every architecture."""
    objects = "--collect-only -q -p no:randomly --attnperf-arch=all suites/test_code_objects.py"
    commands = [["-c", CASES], ["-m", "pytest", *objects.split()]]
    ran = [
        subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
        for words in commands
    ]
    assert [one.returncode for one in ran] == [0, 0], ran
    return tuple(line for one in ran for line in one.stdout.splitlines() if "::" in line)


def selects(words: tuple[str, ...]) -> bool:
    """Whether the paths, ids and the -k of a pytest command select a test of the suites."""
    places = [word for word in words if word.startswith("suites")]
    ids = [one for one in collected() if not places or any(one.startswith(place.rstrip("/")) for place in places)]
    if "-k" in words:
        chosen = Expression.compile(words[words.index("-k") + 1])
        ids = [one for one in ids if chosen.evaluate(lambda name, one=one, **_: name.lower() in one.lower())]
    return bool(ids)


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """Of all commands of attnperf."""
    return build_whole_parser()


@pytest.mark.parametrize("command", all_commands("attnperf"), ids=lambda command: command.id)
def test_commands_of_attnperf_are_taken(command: Command, parser: argparse.ArgumentParser) -> None:
    """Command, options and arguments are those of today; in a sentence at least the command."""
    if command.whole:
        assert parser.parse_args(list(command.words)).command == command.words[0]
    else:
        assert {command.words[0], " ".join(command.words[:2])} & set(list_whole_names())


@pytest.mark.parametrize("command", all_commands("pytest"), ids=lambda command: command.id)
def test_commands_of_pytest_select_something(command: Command) -> None:
    """Their options exist; a path, an id and a -k of this project's suites select at least one test."""
    known = {option.flag for option in (*SWITCHES, *OPTIONS)} | {"--update-baselines", "--attnperf-help"}
    known |= {flag.replace("--", "--no-", 1) for flag in known}
    asked = [word.partition("=")[0] for word in command.words if "attnperf-" in word or word == "--attnperf"]
    assert [word for word in asked if word.startswith("--") and word not in known] == []
    if any(word.startswith("suites") for word in command.words):
        assert selects(command.words)


def test_commands_that_rot_are_found(parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]) -> None:
    """A selection of nothing, a test that was renamed, an option of attnperf that is gone; not a form to fill in."""
    page = "```\n$ pytest suites/ -k nobody    # says\nattnperf report --reprot x r.json\n```\n`pytest suites/ -k X`\n"
    nothing, gone = read_commands(page)
    assert (nothing.words, selects(nothing.words)) == (("suites/", "-k", "nobody"), False)
    assert gone.whole
    assert not selects(("suites/test_prefill.py::test_renamed",))
    assert selects(("suites/test_prefill.py", "-k", "triton and not hip"))
    with pytest.raises(SystemExit):
        parser.parse_args(list(gone.words))
    capsys.readouterr()
