"""`attnperf compare`: what it prints, what it refuses, and what it answers."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.records import ProcessSummary, Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.merged import encode_merged
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.sample_runs import sample_run

ROPE = Path(__file__).parents[3] / "baselines/sm_90/h200/rope.json"
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Eighty columns, no colours, and files by short names."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def timed(factors: tuple[float, ...], card: str = "GPU-a", seed: int = 1, day: int = 1) -> RunResult:
    """A recording whose cases take 100 us times these, of seven processes that scatter by 0.2 %."""
    draw, run = random.Random(seed), sample_run(len(factors), verdicts=[Verdict.SAME])
    made = []
    for case, factor in zip(run.cases, factors, strict=True):
        times = [100 * factor * draw.gauss(1, 0.002) for _ in range(7)]
        first = tuple(ProcessSummary(us, us, us, (us,), 1, "graph", device_id=card) for us in times)
        made.append(replace(case, first=first, stored_us=()))
    started = f"2026-01-0{day}T00:00:00+00:00"
    return replace(run, mode="update", cases=tuple(made), started=started, run_id=f"{card}{seed}")


def write(name: str, run: RunResult) -> str:
    """Into the working folder."""
    json_results.write(Path(name), run)
    return name


def test_case_by_case(capsys: Captured) -> None:
    """Worst first, with a summary below; what one side lacks is listed; it is no gate, so the status is 0."""
    first = write("a.json", timed((1.0, 1.0, 1.0, 1.0)))
    assert main(["compare", first, write("b.json", timed((1.0, 1.05, 0.94), seed=2, day=2))]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[3:8:2]] == ["slower", "same", "faster"]
    assert "3 cases compared, these look: 1 slower, 1 same, 1 faster; geometric mean -0." in lines[11]
    assert "only in the first: 1 case" in lines
    assert "first: a.json (2026-01-01, commit 4f2c1ab90d11)" in lines
    assert lines[-1].startswith("a comparison, not a gate")
    assert max(len(line) for line in lines if len(line.split()) > 1) <= 80
    assert (err, "\x1b" in out) == ("", False)


def test_order_limit_and_failing(capsys: Captured) -> None:
    """The fastest first, one line of three; --fail-above fails by a change alone, and where nothing is compared."""
    sides = [write("a.json", timed((1.0, 1.0, 1.0))), write("b.json", timed((1.0, 1.05, 0.94), seed=2))]
    assert main(["compare", *sides, "--sort", "best", "--limit", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].startswith("faster")
    assert lines[6] == "and 2 more cases"  # below two lines of legend
    assert main(["compare", *sides, "--fail-above", "3"]) == 1
    assert main(["compare", *sides, "--fail-above", "8"]) == 0
    empty = write("c.json", replace(timed((1.0,)), cases=()))
    assert main(["compare", sides[0], empty, "--fail-above", "8"]) == 1
    assert "no case could be compared" in capsys.readouterr().out


def test_two_timers_are_a_table_of_their_own(capsys: Captured) -> None:
    """What another timer says of the same cases stands beside ours, in text and JSON, and is compared with nothing."""
    ours, theirs = timed((1.0, 1.0)), timed((3.0, 4.0), seed=2)
    cases = tuple(
        replace(case, first=tuple(replace(one, timer="report_002") for one in case.first)) for case in theirs.cases
    )
    sides = [write("a.json", ours), write("b.json", replace(theirs, cases=cases))]
    assert main(["compare", *sides]) == 0
    out = capsys.readouterr().out
    assert "first, graph us  second, report_002 us" in out
    assert "no case could be compared\ncannot be compared: 2 cases, timer: graph and report_002" in out
    assert main(["compare", *sides, "--limit", "1"]) == 0
    assert "and 1 more cases" in capsys.readouterr().out
    assert main(["compare", *sides, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)["two_timers"]
    assert [(case["first_timer"], case["second_timer"]) for case in values] == [("graph", "report_002")] * 2
    assert [round(case["second_us"] / 100) for case in values] == [3, 4]


def test_json_and_groups(capsys: Captured) -> None:
    """The same figures for a program, and a line per backend."""
    sides = [write("a.json", timed((1.0, 1.0))), write("b.json", timed((1.0, 1.05), seed=2))]
    assert main(["compare", *sides, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [case["looks"] for case in values["cases"]] == ["slower", "same"]
    assert values["cases"][0]["ratio"] == pytest.approx(1.05, abs=0.003)
    assert main(["compare", *sides, "--by", "backend"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:2] == ["native.sdpa_flash", "1"]


def test_baselines_and_merged_files_are_results_too(capsys: Captured) -> None:
    """Stored baselines against themselves: every case the same; a merged file is all of its runs."""
    assert main(["compare", str(ROPE), str(ROPE), "--sort", "name"]) == 0
    assert "11 cases compared, these look: 11 same; geometric mean 0.0 %" in capsys.readouterr().out
    runs = [timed((1.0,)), replace(timed((1.0,), seed=3), device=replace(sample_run(1).device, product="x"))]  # type: ignore[type-var]
    Path("m.json").write_bytes(encode_merged(runs))
    assert main(["compare", "m.json", "m.json"]) == 0
    assert "2 cases compared" in capsys.readouterr().out


def test_a_slow_card_among_several_files(capsys: Captured) -> None:
    """Two machines of one card each, one 3 % slower: named, with the table above; as JSON, too."""
    files = [write("a.json", timed((1.0, 2.0, 3.0, 4.0, 5.0)))]
    files.append(write("b.json", timed((1.03, 2.06, 3.09, 4.12, 5.15), card="GPU-b", seed=2)))
    assert main(["compare", "--by", "gpu", *files]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[3].split()[:3] == ["SLOW", "GPU-b", "5"]
    assert "card GPU-b is slow: +" in out
    assert main(["compare", "--by", "gpu", "--json", *files]) == 0
    cards = json.loads(capsys.readouterr().out)["sm_90/sample"]["cards"]
    assert [(card["device_id"], card["offset"]["slow"]) for card in cards] == [("GPU-b", True), ("GPU-a", False)]
    assert main(["compare", "--by", "gpu", files[0]]) == 0
    assert "one card measured all cases: there is no other to compare it with" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.json"], "compare takes two results, got 1; --by gpu takes one or more"),
        (["a.json", "gone.json"], "gone.json"),
        (["a.json", "a.json", "--limit", "-1"], "--limit is -1"),
        (["a.json", "a.json", "--fail-above", "nan"], "--fail-above is nan"),
        (["--by", "gpu", "a.json", "--fail-above", "1"], "--fail-above is for two results"),
    ],
)
def test_what_is_refused(words: list[str], said: str, capsys: Captured) -> None:
    """In a line, with status 2."""
    write("a.json", timed((1.0,)))
    assert main(["compare", *words]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert (out, "Traceback" in err) == ("", False)


def test_comparison_as_a_page(capsys: Captured) -> None:
    """--html writes the cases, with --fail-above, beside what is printed; --by gpu writes the cards."""
    sides = [write("a.json", timed((1.0, 1.0, 1.0))), write("b.json", timed((1.0, 1.05), seed=2))]
    assert main(["compare", *sides, "--fail-above", "3", "--html", "page.html"]) == 1
    out, err = capsys.readouterr()
    assert "2 cases compared" in out
    assert err == "written: page.html\n"
    page = Path("page.html").read_text()
    for words in ("--fail-above 3 %", "2 cases compared, these look: 1 slower", "Only in the first", "b.json"):
        assert words in page
    assert main(["compare", *sides, "--by", "backend", "--json", "--html", "page.html"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert "Mean change by backend" in Path("page.html").read_text()
    cards = write("c.json", timed((1.0, 1.0), card="GPU-b", seed=3))
    assert main(["compare", "--by", "gpu", sides[0], cards, "--html", "cards.html"]) == 0
    assert "GPU-b" in Path("cards.html").read_text()


def test_open_writes_the_page_where_no_file_is_named(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under .attnperf/pages, and the browser gets its address."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    side = write("a.json", timed((1.0,)))
    assert main(["compare", side, side, "--open"]) == 0
    page = Path(".attnperf/pages/compare.html")
    assert opened == [page.resolve().as_uri()]
    assert capsys.readouterr().err == f"written: {page}\n"
