from __future__ import annotations

import pytest

from pytest_attnperf.tools.history.site.page_names import CASES, PAGE, make_page_name

HOSTILE = [
    "", ".", "..", "../../etc/passwd", "a/b", "a\\b", "a\0b", "CON", "nul.html", "a" * 10_000, "<script>", "\ud800",
    "ü/ß", "-", "--", "\x1b[31m", "%2e%2e", " ", "index.html", "A", "a",
]  # fmt: skip


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
