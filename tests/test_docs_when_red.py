"""The page on red gates shows what `attnperf explain` prints, and names commands and verdicts that there are.

To renew its samples: ATTNPERF_RENEW_DOCS=1 python -m pytest tests/test_docs_when_red.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.cli.commands import explain as explain_command
from pytest_attnperf.cli.program import main
from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import CaseResult
from tests import recorded_cases as recorded

PAGE = Path(__file__).parents[1] / "docs" / "when-the-gate-is-red.md"
RENEW = "ATTNPERF_RENEW_DOCS"
SHOWN = re.compile(r"<!-- explain: (\w+) -->\n```\n(.*?)\n```", re.DOTALL)

WORDS = slice(0, 2)
SAMPLES: dict[str, tuple[Callable[[], CaseResult], Callable[[list[str]], list[str]]]] = {
    "slower": (recorded.slower, lambda parts: parts[WORDS]),
    "options": (recorded.undecided, lambda parts: [p for p in parts if p.startswith("What would decide it")]),
}
"""By the name in the page: the case, and which parts of its explanation are shown."""


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_what_the_command_prints(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each block of the page, of cases measured on H200s, in a run of as many cases as they were judged in."""
    make, choose = SAMPLES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(explain_command, "look_around", lambda told, folder: recorded.HERE)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    more = [recorded.same()] * (recorded.CASES - 1)
    json_results.write(Path(".attnperf/results.json"), recorded.run_of(make(), *more))
    main(["explain", "--results", ".attnperf/results.json"])
    printed = capsys.readouterr().out.partition("\n\n")[2].rstrip("\n")
    wanted = "\n\n".join(choose(printed.split("\n\n")))
    page = PAGE.read_text(encoding="utf-8")
    shown = dict(SHOWN.findall(page))
    if os.environ.get(RENEW):
        PAGE.write_text(page.replace(shown[name], wanted) if shown[name] else page, encoding="utf-8")
        return
    assert shown[name] == wanted, f"run {RENEW}=1 python -m pytest {Path(__file__).name} to renew the page"


def test_every_verdict_that_can_stop_anybody_has_a_section() -> None:
    """And every link within the page, and to other pages, leads somewhere."""
    page = PAGE.read_text(encoding="utf-8")
    headings = [line.lstrip("# ") for line in page.splitlines() if line.startswith("## ")]
    silent = {Verdict.SAME, Verdict.FASTER, Verdict.RIGHT, Verdict.RECORDED}
    for verdict in set(Verdict) - silent:
        assert any(heading.startswith(verdict.value) for heading in headings), verdict
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page)
    assert {anchor for file, anchor in links if not file} <= anchors
    assert all((PAGE.parent / file).exists() for file, _ in links if file)
