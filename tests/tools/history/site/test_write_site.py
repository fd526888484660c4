from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.history.bulk_reading import BulkFilter
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_store import HistoryStore, open_store
from pytest_attnperf.tools.history.site import write_site as writing
from pytest_attnperf.tools.history.site.site_files import MARKER
from tests.reports.html.conftest import HOSTILE
from tests.tools.history.site.made_history import CASES, ELSEWHERE, RUNS, fill_store, write_made_site

pytest.importorskip("jinja2", reason="the site needs jinja2")
Visit = Callable[..., Any]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Links(HTMLParser):
    """The addresses that a page links or loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps addresses, and refuses what the policy would."""
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), f"{tag} {name}"
            assert name != "style", tag
            if name in ("href", "src"):
                self.found.append(value or "")


def test_a_site_has_a_page_for_each_case_and_commit(site: Path) -> None:
    """Cases count once per device, and a commit without a name once per run; style and script are there once."""
    assert len(list((site / "cases").iterdir())) == CASES + ELSEWHERE
    assert len(list((site / "commits").iterdir())) == RUNS + 1
    others = sorted(path.name for path in site.iterdir() if path.is_file())
    assert others == sorted([MARKER, "cases.js", "index.html", "runs.js", "site.css", "site.js"])


def test_every_link_leads_somewhere(site: Path) -> None:
    """Links are to files of the site or to the source repository over https; no page holds a script of its own."""
    for page in site.rglob("*.html"):
        links = Links(page.read_text())
        for address in links.found:
            if address.startswith(("https://github.com/example/kernels/commit/", "data:,")):
                continue
            target = (page.parent / address.partition("#")[0]).resolve() if not address.startswith("#") else page
            assert target.is_file(), f"{page.name}: {address}"
        assert "style" not in links.tags


def test_equal_stores_give_equal_bytes(
    site: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written again, over the first or elsewhere, by one process or by several: the same files with the same bytes."""
    first = contents(site)
    again = tmp_path / "again"
    write_made_site(store, again)
    write_made_site(store, again)
    assert contents(again) == first
    monkeypatch.setattr(writing, "PARALLEL_FROM", 1)
    monkeypatch.setattr(writing, "BATCH", 3)
    monkeypatch.setattr(writing.os, "cpu_count", lambda: 2)
    write_made_site(store, tmp_path / "parallel")
    assert contents(tmp_path / "parallel") == first


def test_pages_of_cases_that_are_gone_are_removed(store: Path, tmp_path: Path) -> None:
    """A narrower site over a wider one leaves none of its pages behind."""
    folder = tmp_path / "site"
    write_made_site(store, folder)
    done = write_made_site(store, folder, BulkFilter(pattern="hip.flash", limit=5))
    fresh = tmp_path / "fresh"
    write_made_site(store, fresh, BulkFilter(pattern="hip.flash", limit=5))
    assert contents(folder) == contents(fresh)
    assert (done.cases, done.commits) == (1, 5)
    assert done.removed == CASES + ELSEWHERE - 1 + RUNS + 1 - 5
    assert done.size_bytes == sum(len(data) for data in contents(folder).values())


def test_a_foreign_folder_is_left_alone(store: Path, tmp_path: Path) -> None:
    """Nothing is written beside a file that no site wrote."""
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match=r"holds files that no history site wrote: 'thesis.tex'"):
        write_made_site(store, tmp_path)
    assert list(contents(tmp_path)) == ["thesis.tex"]


def test_what_matches_nothing_is_an_error(store: Path, tmp_path: Path) -> None:
    """The error has what was asked, and what there is; no folder is made."""
    for asked, said in (
        (BulkFilter(pattern="nothing"), "contains 'nothing'"),
        (BulkFilter(arch="gfx90a"), "is of gfx90a"),
        (BulkFilter(pattern="hip", since=4e9), "contains 'hip' and has a run so late"),
    ):
        with pytest.raises(UsageError, match=f"no case of history .* {re.escape(said)}, so no site") as raised:
            write_made_site(store, tmp_path / "site", asked)
        assert f"known are {CASES + ELSEWHERE} cases such as prefill/" in str(raised.value)
        assert "gfx942/mi300x, sm_90/sample" in str(raised.value)
    assert not (tmp_path / "site").exists()


def test_an_empty_store_gives_a_page_that_says_so(tmp_path: Path, visit: Visit) -> None:
    """One page, without complaint, that says what to do."""
    store = fill_store(tmp_path / "a.sqlite", runs=0)
    done = write_made_site(store, tmp_path / "site")
    assert (done.cases, done.commits) == (0, 0)
    browser = visit("index.html", folder=tmp_path / "site")
    assert "No run is in this history yet" in browser.find_element("tag name", "main").text
    assert browser.get_log("browser") == []


def test_one_run_gives_pages_that_say_so(tmp_path: Path, visit: Visit) -> None:
    """A case of one run has a chart of one mark, and is told to be too short for changes."""
    store = fill_store(tmp_path / "a.sqlite", runs=1, cases=1)
    write_made_site(store, tmp_path / "site")
    browser = visit("index.html", folder=tmp_path / "site")
    assert "No lasting change was found" in browser.find_element("tag name", "main").text
    (commit,) = (tmp_path / "site" / "commits").iterdir()
    for page in (f"commits/{commit.name}", *(f"cases/{one.name}" for one in (tmp_path / "site" / "cases").iterdir())):
        browser = visit(page, folder=tmp_path / "site")
        assert browser.get_log("browser") == []
        assert browser.find_element("id", "trouble").text == ""
    assert "too few points to look for changes: 1" in browser.find_element("tag name", "main").text


def test_hostile_names_are_texts(tmp_path: Path, visit: Visit) -> None:
    """Names, commits and branches full of markup neither run, nor leave the folder, nor break a page."""
    store = fill_store(tmp_path / "a.sqlite", runs=9, cases=len(HOSTILE) + 1, names=HOSTILE)
    change_runs(store)
    folder = tmp_path / "site"
    write_made_site(store, folder)
    assert {path.name for path in tmp_path.iterdir()} >= {"site", "a.sqlite"}
    assert len(list((folder / "cases").iterdir())) == len(HOSTILE) + 1 + ELSEWHERE
    pages = ["index.html", *(f"cases/{one.name}" for one in (folder / "cases").iterdir())]
    pages += [f"commits/{one.name}" for one in (folder / "commits").iterdir()][:4]
    for page in pages:
        Links((folder / page).read_text())
        browser = visit(page, folder=folder)
        assert browser.execute_script("return window.pwned") is None
        assert browser.get_log("browser") == []
        assert browser.execute_script("return document.querySelectorAll('script').length") <= 3
    visit("index.html", folder=folder)
    assert len(browser.find_elements("css selector", "#table tbody tr")) == len(HOSTILE) + 1 + ELSEWHERE


def change_runs(path: Path) -> None:
    """Gives the runs of a store hostile texts."""
    from sqlalchemy import update

    from pytest_attnperf.tools.history.history_tables import define_tables

    table = define_tables().runs
    with open_store(str(path)) as store, store.transactions.engine.begin() as connection:
        for number, text in enumerate(HOSTILE, 1):
            plain = text.encode("utf-8", "replace").decode()
            values = {"commit_id": plain, "branch": plain, "mode": plain, "version": plain, "source": plain}
            values |= {"provenance": {"ci_url": plain, "pull_request": plain}, "started_text": plain}
            connection.execute(update(table).where(table.c.id == number).values(**values))


def test_a_store_that_is_pruned_meanwhile_is_an_error(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case that lost its runs between two batches would be a link to nothing; the error says to write again."""
    monkeypatch.setattr(writing, "load_case_runs", lambda *_: [])
    with pytest.raises(HistoryError, match=f"{CASES + ELSEWHERE} cases lost all their runs while .* write it again"):
        write_made_site(store, tmp_path / "site")


def test_long_ones_tell_how_far_they_are(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one line in EVERY_SECONDS; none for a short one."""
    told: list[str] = []

    def write(opened: HistoryStore) -> None:
        writing.write_site(opened, str(store), tmp_path / "site", BulkFilter(), told.append)

    with open_store(str(store), read_only=True) as opened:
        monkeypatch.setattr(writing, "EVERY_SECONDS", 1e9)
        write(opened)
        assert told == []
        monkeypatch.setattr(writing, "EVERY_SECONDS", 0.0)
        write(opened)
    total = CASES + ELSEWHERE
    assert told[0] == f"written: pages of {total} of {total} cases"
    assert told[-1] == f"written: pages of {RUNS + 1} of {RUNS + 1} commits"


def test_the_first_page_holds_every_case_as_data(site: Path) -> None:
    """A row per case in the order of their names, which its script shares with the pages of commits."""
    text = (site / "index.html").read_text()
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    shared = (site / "cases.js").read_text()
    names = json.loads(shared.removeprefix("window.attnperfCases=").removesuffix(";\n"))
    assert len(data["cases"]) == len(names["rows"]) == CASES + ELSEWHERE
    assert all((site / row[4]).is_file() for row in names["rows"])
