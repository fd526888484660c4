"""docs/index.md lists every page, links of pages lead somewhere, and the pages stay few."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
BESIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
BESIDE += [
    ROOT / "tests/judges/README.md",
    *sorted((ROOT / "kernels").rglob("*.md")),
    ROOT / "examples/claims/README.md",
    ROOT / "examples/COVERAGE.md",
]
PAGES_MOST = 25
WORDS_MOST = 45_000
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[tuple[str, str]]:
    """(file, anchor) of each relative link; the file is '' where a link stays in its page."""
    return [(file, anchor) for file, anchor in LINK.findall(prose(page)) if ":" not in file]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_index_lists_every_page() -> None:
    """And no other one."""
    listed = {file for file, _ in links(DOCS / "index.md") if file.endswith(".md") and "/" not in file}
    assert listed == {page.name for page in PAGES} - {"index.md"}


@pytest.mark.parametrize("page", [*PAGES, *BESIDE], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Each file exists, and each section of a page."""
    missing = []
    for file, anchor in links(page):
        target = page.parent / file if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            missing.append(f"{file}#{anchor}")
    assert missing == []


def test_there_are_few_pages() -> None:
    """A new page replaces or joins another one."""
    assert len(PAGES) <= PAGES_MOST, f"{len(PAGES)} pages: put the text into one that is there"


def test_the_pages_are_short() -> None:
    """What is new replaces what it makes needless; blocks of code count, too."""
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in PAGES)
    assert words <= WORDS_MOST, f"{words:,} words: say it in fewer, or leave it to a docstring"


def test_every_program_of_benchmarks_is_named() -> None:
    """By a page that says what it is for; the change log does not."""
    text = "".join(page.read_text(encoding="utf-8") for page in [*PAGES, *BESIDE] if page.name != "CHANGELOG.md")
    programs = {
        path for path in (ROOT / "benchmarks").rglob("*.py") if '"__main__"' in path.read_text(encoding="utf-8")
    }
    named = set(re.findall(r"[\w/]+\.py", text))
    assert {path.name for path in programs} <= {Path(name).name for name in named}
