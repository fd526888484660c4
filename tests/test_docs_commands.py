from __future__ import annotations

import argparse
import re
import shlex

import pytest

from docs.make_commands import MORE, PAGE, Epilog, parsers_of, renewed, split
from pytest_attnperf.cli.command_files import list_whole_names
from pytest_attnperf.cli.program import build_whole_parser
from pytest_attnperf.plugin.options import OPTIONS
from pytest_attnperf.plugin.switches import SWITCHES

ENDS = {">", ">>", "|", "&&"}
OPTION = re.compile(r"--(?:no-)?attnperf[\w-]*|--update-baselines")


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """Of all commands."""
    return build_whole_parser()


def _words(line: str) -> list[str]:
    """What stands behind `attnperf` in a line of a shell, up to a pipe or a redirection; [] where it is another's."""
    words = shlex.split(line, comments=True)
    ours = words[words.index("attnperf") + 1 :] if "attnperf" in words else []
    return ours[: next((number for number, word in enumerate(ours) if word in ENDS), len(ours))]


@pytest.mark.parametrize("name", list_whole_names())
def test_help_is_whole(name: str, parser: argparse.ArgumentParser) -> None:
    """Every command says what it does and its exit status; each of its examples is taken by the parsers as they are."""
    declared = parsers_of(parser)[name]
    told = split(declared.epilog or "")
    assert declared.description
    assert told.exit_status.startswith("0 ") or name == "worker"
    typed = [words for line in told.examples if (words := _words(line))]
    assert any(words[: name.count(" ") + 1] == name.split() for words in typed)
    for words in typed:
        assert parser.parse_args(words).command == words[0]
    known = {known.flag for known in (*SWITCHES, *OPTIONS)}
    assert [text for line in told.examples for text in OPTION.findall(line) if text not in known] == []


@pytest.mark.parametrize(
    "line", ["attnperf report --reprot DIR r.json", "x -- attnperf kernel run", "attnperf stage r.json"]
)
def test_an_example_that_rots_is_found(
    line: str, parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option, an argument or a command that is not there ends the parser."""
    with pytest.raises(SystemExit):
        parser.parse_args(_words(line))
    assert "error" in capsys.readouterr().err


def test_the_page_is_up_to_date() -> None:
    """docs/commands.md lists the commands as they are."""
    text = PAGE.read_text()
    assert renewed(text) == text, "run `python docs/make_commands.py` to renew docs/commands.md"


def test_a_page_without_marks_is_refused() -> None:
    """Nothing is written over by guess."""
    with pytest.raises(ValueError, match=r"commands\.md needs <!-- commands: begin -->"):
        renewed("# Commands\n")


def test_the_sections_of_an_epilog() -> None:
    """In whatever order they stand; a remark is what two spaces part from the command."""
    epilog = "Of a\nFILE.\n\nexamples:\n  attnperf a   says b\n  attnperf c\n\nexit status: 0 done,\n2 off\n"
    assert split(epilog) == Epilog("Of a\nFILE.", "0 done, 2 off", ("attnperf a  # says b", "attnperf c"))


def test_each_command_leads_to_its_page() -> None:
    """Every command has a page that says more, and no name there is of a command that is gone."""
    assert set(MORE) == set(list_whole_names())
