from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.cli.commands import history as history_command
from pytest_attnperf.cli.option_groups import HISTORY_VARIABLE
from pytest_attnperf.cli.program import build_parser
from pytest_attnperf.errors import AttnperfError, UsageError
from pytest_attnperf.records import Fingerprint, Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools.history import thinning
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_store import open_store

Ran = Callable[..., tuple[int, str, str]]
RUNS = 30
STEP_AT = 22
CASE = "prefill/triton.flash/prefill-b1-s128-h4-d64-f16-causal"


def run_of(number: int, us: float) -> RunResult:
    """Three cases on day `number`; all of them take `us`."""
    run = sample_run(3, started=f"2026-01-{1 + number:02}T00:00:00+00:00", verdicts=[Verdict.SAME])
    software = Fingerprint({"timer": "graph"}, {"torch": "2.11" if number < STEP_AT else "2.12"})
    cases = tuple(replace(case, median_us=us, fingerprint=software) for case in run.cases)
    return replace(run, cases=cases, commit=f"c{number:02}", run_id=f"run {number}")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which every case became 3 % slower in run 22 of 30."""
    path = tmp_path_factory.mktemp("filled") / "history.sqlite"
    draw = random.Random(0)
    with open_store(str(path)) as store:
        for number in range(RUNS):
            store.append(run_of(number, (103 if number >= STEP_AT else 100) * math.exp(draw.gauss(0, 0.003))))
    return path


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ran:
    """Runs `attnperf history` in an empty folder, and gives its status and what it prints in 110 columns."""
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.delenv(HISTORY_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        status = history_command.run(build_parser(["history"]).parse_args(["history", *map(str, arguments)]))
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_a_case_is_shown_with_its_changes(filled: Path, ran: Ran) -> None:
    """Where it changed, between which commits, what else changed there, and its newest runs."""
    status, out, _ = ran("triton.flash", "--history", filled)
    assert status == 0
    assert f"{CASE} on sm_90/sample\n30 runs, 2026-01-01 to 2026-01-30" in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("2026-01-23  ")]
    assert row[1:3] in (["+2.9", "%"], ["+3.0", "%"], ["+3.1", "%"])
    assert row[-2:] == ["c21", "c22"]
    assert "sigmas; what changed with it: torch: 2.11 -> 2.12" in out
    assert "18 earlier runs are not shown" in out


def test_without_a_case_all_are_listed(filled: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the number of runs and the last change of each; the store is taken from the environment."""
    monkeypatch.setenv(HISTORY_VARIABLE, str(filled))
    _, out, _ = ran("--arch", "sm_90/sample")
    assert out.count("2026-01-23 c22") == 3
    assert f"3 cases, in {filled}" in " ".join(out.split())
    _, out, _ = ran("--limit", 1, "--json")
    assert [one["points"] for one in json.loads(out)] == [30]
    _, out, _ = ran("--limit", 2)
    assert "the 2 with the newest runs are shown; --limit 3 shows all" in out
    assert "0 cases" in ran("--arch", "gfx942")[1]


def test_a_long_history_is_shown_by_a_sample(filled: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its change; JSON holds every point. A list searches the newest runs only, and says so."""
    monkeypatch.setattr(thinning, "MOST_POINTS", 10)
    monkeypatch.setattr(thinning, "NEWEST_POINTS", 4)
    monkeypatch.setattr(history_command, "LISTED_RUNS", 8)
    _, out, _ = ran("triton.flash", "--history", filled)
    assert "30 runs, of which 18 are read, 2026-01-01 to 2026-01-30" in out
    assert any(line.startswith("2026-01-23  ") and line.split()[-2:] == ["c21", "c22"] for line in out.splitlines())
    assert len(json.loads(ran("triton.flash", "--history", filled, "--json")[1])[0]["points"]) == 30
    listed = " ".join(ran("--history", filled)[1].split())
    assert "changes are those of each case's newest 8 runs; CASE shows earlier ones" in listed


def test_the_last_change_is_the_latest_in_time(ran: Ran) -> None:
    """Of two machines whose zones differ, not the one whose day looks later."""
    east = datetime(2026, 2, 1, 0, 30, tzinfo=timezone(timedelta(hours=14)))
    west = datetime(2026, 1, 31, 23, 0, tzinfo=timezone(timedelta(hours=-11)))
    with open_store("a.sqlite") as store:
        for machine, first in (("east", east), ("west", west)):
            for number in range(8):
                run = run_of(1, 100.0 if number < 4 else 110.0)
                cases = tuple(replace(case, fingerprint=Fingerprint({"timer": machine}, {})) for case in run.cases)
                started = (first + timedelta(days=number)).isoformat()
                run = replace(run, cases=cases, started=started, commit=f"{machine}{number}")
                store.append(replace(run, run_id=f"{machine} {number}"))
    _, out, _ = ran("--history", "a.sqlite", "--limit", 1, "--json")
    assert [one["change"]["first_after"] for one in json.loads(out)] == ["west4"]


def test_json_holds_every_point(filled: Path, ran: Ran) -> None:
    """And the ratio of every change."""
    _, out, _ = ran(CASE, "--history", filled, "--json")
    (found,) = json.loads(out)
    assert (found["case"], len(found["points"])) == (CASE, RUNS)
    assert found["changes"][0]["index"] == STEP_AT
    assert found["changes"][0]["ratio"] == pytest.approx(1.03, abs=0.003)


def test_the_newest_runs_only(filled: Path, ran: Ran) -> None:
    """By number and by date; what leaves too few says so."""
    _, out, _ = ran(CASE, "--history", filled, "--limit", 5)
    assert "5 runs, 2026-01-26" in out
    assert "too few points to look for changes: 5, at least 8" in out
    assert "8 runs, 2026-01-23" in ran(CASE, "--history", filled, "--since", "2026-01-23")[1]
    with pytest.raises(UsageError, match="has no run since 2026-12-01"):
        ran(CASE, "--history", filled, "--since", "2026-12-01")
    with pytest.raises(HistoryError, match="time in `since` started at 'soon', which is no date"):
        ran(CASE, "--history", filled, "--since", "soon")


def test_days_count_back_from_now(ran: Ran) -> None:
    """A run of an hour ago is within the last day, one of two days ago is not."""
    now = datetime.now(timezone.utc)
    with open_store("a.sqlite") as store:
        for number, hours in enumerate((48, 1)):
            store.append(replace(run_of(number, 100.0), started=(now - timedelta(hours=hours)).isoformat()))
    assert "1 run," in ran(CASE, "--history", "a.sqlite", "--since", "1d")[1]
    assert "2 runs," in ran(CASE, "--history", "a.sqlite", "--since", "3d")[1]


def test_a_slowdown_is_a_failure_where_asked_for(filled: Path, ran: Ran) -> None:
    """Within the last N runs, 10 by default; an older one is history."""
    status, _, err = ran(CASE, "--history", filled, "--fail-on-change")
    assert status == 1
    assert err.startswith("slower: +")
    assert "between c21 and c22, 2026-01-23; torch: 2.11 -> 2.12" in err
    assert ran(CASE, "--history", filled, "--fail-on-change", 7)[0] == 0
    assert ran(CASE, "--history", filled)[0] == 0


def test_a_plot_is_written(filled: Path, ran: Ran) -> None:
    """As SVG or PNG; another suffix is an error."""
    pytest.importorskip("matplotlib")
    _, out, err = ran(CASE, "--history", filled, "--plot", "a.svg")
    assert ("written" in out, err) == (False, "written: a.svg\n")
    assert "c22" in Path("a.svg").read_text()
    with pytest.raises(UsageError, match=r"cannot be written as 'a\.gif'"):
        ran(CASE, "--history", filled, "--plot", "a.gif")


def test_files_are_imported_once(ran: Ran) -> None:
    """Into the store of the working folder, which is made; what is skipped is said."""
    json_results.write(Path("in/results.json"), run_of(1, 100.0))
    Path("in/notes.json").write_text("{}")
    _, out, _ = ran("--import", "in")
    assert "in/results.json: 3 measurements of 3 cases" in out
    assert "skipped: in/notes.json holds no run" in out
    assert out.endswith("3 measurements of 1 new run added to .attnperf/history.sqlite\n")
    _, out, _ = ran("--import", "in/results.json")
    assert "was already stored" in out
    assert "1 run, 2026-01-02" in ran("triton.flash")[1]


def test_pruning_says_first_and_then_does(ran: Ran) -> None:
    """A dry run deletes nothing; the space of a file is given back."""
    with open_store("a.sqlite") as store:
        for number in range(4):
            store.append(run_of(number, 100.0))
    rule = ("--history", "a.sqlite", "--prune", "--keep-runs", 1)
    unused = "3 runs, 0 cases and 0 environments that no measurement uses any more"
    expected = f"9 measurements, and {unused}; 3 measurements stay\n"
    assert ran(*rule, "--dry-run")[1] == f"would delete {expected}"
    _, out, _ = ran(*rule)
    assert out.startswith(f"deleted {expected}VACUUM freed ")
    assert ran(*rule)[1].startswith("deleted 0 measurements")


def test_migrating_a_store_of_today_changes_nothing(ran: Ran) -> None:
    """It says so."""
    open_store("a.sqlite").close()
    assert ran("--history", "a.sqlite", "--migrate") == (0, "a.sqlite has this version's schema\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prune"], "--prune needs --keep-days N, --keep-runs N, or both"),
        (["--keep-days", 5], "belong to --prune, which was not given"),
        (["--dry-run"], "belong to --prune"),
        (["--plot", "a.svg"], "need one case; name it"),
        (["--fail-on-change"], "need one case; name it"),
        (["case", "--prune", "--keep-runs", 5], "'case' is given, but"),
        (["--prune", "--keep-runs", 5], "does not exist, so there is nothing to prune"),
        (["--migrate", "--history", "x.sqlite"], "x.sqlite does not exist"),
        (["case"], r"\.attnperf/history\.sqlite does not exist yet"),
        (["--history", "mysql://u:secret@h/d"], "unknown scheme 'mysql'"),
    ],
)
def test_what_does_not_go_is_said(ran: Ran, arguments: list[Any], said: str) -> None:
    """Before anything is made."""
    with pytest.raises(AttnperfError, match=said):
        ran(*arguments)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("text", ["0", "-1", "many"])
def test_a_number_that_is_none_is_refused(ran: Ran, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """argparse says so and ends with 2."""
    with pytest.raises(SystemExit):
        ran("case", f"--limit={text}")
    assert f"'{text}' is not a whole number of at least 1" in capsys.readouterr().err
