"""docs/baselines.md says what the code does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from pytest_attnperf.baselines.schema import Entry
from pytest_attnperf.cli.commands.baselines.merge import ATTRIBUTES, PREFERENCES
from pytest_attnperf.records import Verdict
from pytest_attnperf.session.accept.acceptable import NEVER

PAGE = (Path(__file__).parents[1] / "docs" / "baselines.md").read_text()


def test_the_page_names_every_field_of_an_entry() -> None:
    """The table of fields is the entry's, all of it and nothing else."""
    table = PAGE.partition("| field |")[2].partition("\n\n")[0]
    firsts = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert {name for first in firsts for name in re.findall(r"`(\w+)`", first)} == {
        part.name for part in dataclasses.fields(Entry)
    }


def test_the_page_names_what_the_commands_take_and_refuse() -> None:
    """The line of .gitattributes, the preferences, and the verdicts that are never accepted are those of the code."""
    assert f"`{ATTRIBUTES}`" in PAGE
    assert all(f"`{name}`" in PAGE for name in PREFERENCES)
    (sentence,) = re.findall(r"a result that is ([A-Z, or]+);", PAGE)
    assert {Verdict(word) for word in re.findall(r"[A-Z]{2,}", sentence)} == set(NEVER)
