"""`attnperf history --html` and `--open`, as a user types them."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.cli.option_groups import HISTORY_VARIABLE
from pytest_attnperf.cli.program import main
from tests.tools.history.site.made_history import CASES, ELSEWHERE, RUNS, fill_store

pytest.importorskip("jinja2", reason="the site needs jinja2")
Ran = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made history."""
    return fill_store(tmp_path_factory.mktemp("filled") / "history.sqlite")


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ran:
    """Runs `attnperf history` in an empty folder, and gives its status and what it prints."""
    monkeypatch.delenv(HISTORY_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        status = main(["history", *map(str, arguments)])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_the_site_of_all_cases(filled: Path, ran: Ran) -> None:
    """The command says where it is, and how much it holds."""
    status, out, err = ran("--history", filled, "--html", "site")
    assert (status, out) == (0, "")
    said = rf"written: site/index.html: {CASES + ELSEWHERE} cases, {RUNS + 1} commits, \d+ files of [\d.]+ MB\n"
    assert re.search(rf"(?m)^{said}\Z", err)
    assert Path("site/index.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "cases", "commits"),
    [
        (["triton.flash"], 2, RUNS),
        (["--arch", "gfx942"], ELSEWHERE, 10),
        (["--arch", "sm_90/sample", "--limit", "4"], CASES, 4),
        (["--since", "2026-01-28"], CASES + ELSEWHERE, 3),
        (["hip.flash", "--limit", "1"], 1, 1),
    ],
)
def test_options_narrow_the_site(filled: Path, ran: Ran, arguments: list[str], cases: int, commits: int) -> None:
    """A part of names, a device, a date, and the newest runs of each case."""
    _, _, err = ran(*arguments, "--history", filled, "--html", "site")
    plural = "s" * (commits != 1)
    assert f"{cases} case{'s' * (cases != 1)}, {commits} commit{plural}, " in err
    assert len(list(Path("site/cases").iterdir())) == cases


def test_open_shows_the_first_page(filled: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --html the site is in the folder of pages; a second call replaces it."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    ran("--history", filled, "--open")
    ran("hip.flash", "--history", filled, "--open")
    index = Path(".attnperf/pages/history/index.html").resolve()
    assert opened == [index.as_uri()] * 2
    assert len(list((index.parent / "cases").iterdir())) == 1


def test_a_foreign_folder_is_refused(filled: Path, ran: Ran) -> None:
    """Exit status 2; the folder keeps what it had."""
    Path("notes").mkdir()
    Path("notes/todo.txt").write_text("x")
    status, _, err = ran("--history", filled, "--html", "notes")
    assert status == 2
    assert "notes holds files that no history site wrote: 'todo.txt'. Nothing was written; give a new or empty" in err
    assert [path.name for path in Path("notes").iterdir()] == ["todo.txt"]


@pytest.mark.parametrize(
    "others", [["--json"], ["a", "--plot", "a.svg"], ["a", "--fail-on-change"], ["--import", "a.json"], ["--migrate"]]
)
@pytest.mark.parametrize("site", [["--html", "site"], ["--open"]])
def test_a_site_is_not_written_beside_other_work(filled: Path, ran: Ran, site: list[str], others: list[str]) -> None:
    """The error names the option that does not go with it."""
    status, _, err = ran(*others, *site, "--history", filled)
    assert status == 2
    name = next(text for text in others if text.startswith("--"))
    assert f"--html and --open write a site and print nothing else; call {name} apart from them" in err
    assert not Path("site").exists()


def test_a_case_that_is_not_there(filled: Path, ran: Ran) -> None:
    """The error says what was asked and what there is."""
    status, _, err = ran("nothing", "--history", filled, "--html", "site")
    assert status == 2
    assert "contains 'nothing', so no site was written" in err


def test_without_a_store_there_is_no_site(ran: Ran) -> None:
    """The error says how to make one; no folder is made."""
    status, _, err = ran("--history", "missing.sqlite", "--html", "site")
    assert status == 2
    assert "does not exist yet; make it from the last run" in err
    assert not Path("site").exists()
