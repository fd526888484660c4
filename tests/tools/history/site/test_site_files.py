from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.history.site.site_files import (
    CASES,
    MARKER,
    PAGE,
    claim_folder,
    make_page_name,
    remove_others,
)

HOSTILE = [
    "", ".", "..", "../../etc/passwd", "a/b", "a\\b", "a\0b", "CON", "nul.html", "a" * 10_000, "<script>", "\ud800",
    "ü/ß", "-", "--", "\x1b[31m", "%2e%2e", " ", "index.html", "A", "a",
]  # fmt: skip


def lay(folder: Path, *paths: str) -> None:
    """Makes files below a folder."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x")


def test_a_new_and_an_empty_folder_are_claimed(tmp_path: Path) -> None:
    """The marker says whose it is, and the second claim finds it."""
    assert claim_folder(tmp_path / "a" / "b") == set()
    assert claim_folder(tmp_path / "a" / "b") == {MARKER}
    (tmp_path / "empty").mkdir()
    assert claim_folder(tmp_path / "empty") == set()


@pytest.mark.parametrize(
    "path",
    [
        "notes.md",
        "cases/Upper.html",
        "cases/inner/a.html",
        ".git/HEAD",
        "index.htm",
        "other/a.html",
    ],
)
def test_a_folder_with_foreign_files_is_refused(tmp_path: Path, path: str) -> None:
    """Even if a site is there, too; nothing is written, and the error names the file and what to do."""
    folder = tmp_path / "deep" / "site"
    claim_folder(folder)
    (folder / "cases").mkdir()
    lay(folder, path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        UsageError, match=r"holds files that no history site wrote: .*give a new or empty folder"
    ) as raised:
        claim_folder(folder)
    assert repr(path.split("/")[0])[:-1] in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_own_names_without_a_marker_are_foreign(tmp_path: Path) -> None:
    """An index.html that somebody else wrote is not replaced; of many names, five are in the error."""
    lay(tmp_path, "index.html", *(f"cases/a{number}.html" for number in range(6)))
    with pytest.raises(UsageError, match="and 2 more"):
        claim_folder(tmp_path)
    assert not (tmp_path / MARKER).exists()


def test_links_are_foreign(tmp_path: Path) -> None:
    """A link in place of a page or of the pages' folder would lead writing elsewhere."""
    for name in ("index.html", "cases"):
        folder = tmp_path / name.replace(".", "-")
        claim_folder(folder)
        (tmp_path / f"there-{name}").mkdir()
        (folder / name).symlink_to(tmp_path / f"there-{name}")
        with pytest.raises(UsageError, match="no history site wrote"):
            claim_folder(folder)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    """A report's usual name is a file: the error says that this one is a folder."""
    (tmp_path / "page.html").write_text("x")
    with pytest.raises(UsageError, match="is a file, but --html of a history writes a folder"):
        claim_folder(tmp_path / "page.html")


def test_only_own_files_are_removed(tmp_path: Path) -> None:
    """Pages that are not wanted any more and unfinished ones go; the marker and foreign paths stay."""
    claim_folder(tmp_path)
    unfinished = "cases/.a-1.html.0123abcd-7.89abcdef.tmp"
    lay(tmp_path, "cases/a-1.html", "cases/b-2.html", "commits/c.html", unfinished, "foreign.txt")
    there = {MARKER, "cases/a-1.html", "cases/b-2.html", "commits/c.html", unfinished, "foreign.txt", "../x"}
    assert remove_others(tmp_path, there, {MARKER, "cases/a-1.html"}) == 3
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert left == sorted([MARKER, "cases/a-1.html", "foreign.txt"])


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_in_their_folder(name: str) -> None:
    """Whatever a case is called, its page is a short plain name that every file system takes."""
    path = make_page_name(CASES, name, name)
    assert PAGE.fullmatch(path)
    assert len(path) < 100


def test_names_do_not_collide() -> None:
    """Names that differ in a sign that is not shown, in case, or in where their parts end, have different pages."""
    assert len({make_page_name(CASES, name, name) for name in HOSTILE}) == len(HOSTILE)
    assert make_page_name(CASES, "x", "a", "bc") != make_page_name(CASES, "x", "ab", "c")
