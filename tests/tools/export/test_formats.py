from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from pytest_attnperf.tools.export.formats import FORMATS, TimesFormat
from tests.tools.export.export_samples import export, mixed_run

PAGE = Path(__file__).parents[3] / "docs" / "results-format.md"


def test_formats_are_told_apart() -> None:
    """By names of one word, in the order of the alphabet."""
    names = [one.name for one in FORMATS]
    assert names == sorted({*names})
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)


def test_the_page_has_every_format() -> None:
    """In its table, in their order."""
    section = PAGE.read_text(encoding="utf-8").partition("## For other programs")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w[\w-]*)` \|", section, re.MULTILINE) == [one.name for one in FORMATS]


@pytest.mark.parametrize("name", ["bencher", "github-action-benchmark-rates", "pytorch-hud"])
def test_a_format_renders_what_was_chosen(name: str) -> None:
    """The same text for the same results."""
    (chosen,) = (one for one in FORMATS if one.name == name)
    assert isinstance(chosen, TimesFormat)
    assert chosen.render(export(mixed_run())) == chosen.render(export(mixed_run()))
    assert [*inspect.signature(chosen.render).parameters] == ["exported"]
