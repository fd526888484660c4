"""`attnperf report --out`: one file, one report and one exit status of several results."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.plugin.report_inputs import read_runs
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.testing.sample_runs import sample_run

ROPE = Path(__file__).parents[3] / "baselines/sm_90/h200/rope.json"
WHOLE = sample_run(6, verdicts=[Verdict.SAME])
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two shards of a suite and a run of another device in the working folder; no CI."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    for name, begin, end in (("1.json", 0, 3), ("2.json", 3, 6)):
        write(name, cases=WHOLE.cases[begin:end], gated=3, selected=3, run_id=name)
    json_results.write(Path("other.json"), sample_run(2, product="other", seed=9, verdicts=[Verdict.SLOWER]))


def write(name: str, **fields: object) -> str:
    """A run with these fields."""
    json_results.write(Path(name), replace(WHOLE, **fields))  # type: ignore[arg-type]
    return name


def test_shards_become_an_ordinary_results_file(capsys: Captured) -> None:
    """Which every reader of results takes, with all cases; a line for the run, and 0."""
    assert main(["report", "1.json", "2.json", "--out", "m.json", "--expect", "2", "--strict"]) == 0
    merged = json_results.decode(Path("m.json").read_bytes(), "m.json")
    assert merged.cases == WHOLE.cases
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("1.json, 2.json (2 shards): 6 same on sm_90/sample")
    assert first.endswith(": passed")
    assert last == "written: m.json"
    assert main(["report", "m.json", "-qq"]) == 0


def test_devices_stand_beside_each_other(capsys: Captured) -> None:
    """In one file, which reports read as if they had been given both; one failure anywhere is status 1."""
    words = ["--out", "m.json", "--junit", "j.xml", "--markdown", "-", "--report", "page"]
    status = main(["report", "1.json", "2.json", "other.json", *words])
    out, err = capsys.readouterr()
    assert status == (1 if Path("page/report.html").exists() else 2)
    assert "exit status 1: other.json: failed: 2 slower" in err
    assert "sm_90/other" in out
    assert sum(1 for _ in ET.parse("j.xml").iter("testcase")) == 8
    joined = read_runs([Path("m.json")])
    assert joined.sources == ("m.json (1 of 2)", "m.json (2 of 2)")
    assert len(joined.cases) == 8
    assert main(["report", "m.json", "-qq"]) == 1
    assert main(["gate", "--results", "m.json", "--mode", "warn"]) == 0
    assert main(["explain", "--results", "m.json"]) == 2
    assert "holds the runs of several devices" in capsys.readouterr().err
    assert main(["report", "m.json", "--out", "again.json"]) == 1
    assert Path("again.json").read_bytes() == Path("m.json").read_bytes()


ANOTHER = Note(NoteKind.OTHER_COMMIT, "of another commit: x")


@pytest.mark.parametrize(
    ("fields", "words", "status", "said"),
    [
        ({}, ["--expect", "3"], 1, "exit status 1: shards missing: 2 of 3 runs are there"),
        ({"complete": False}, [], 1, "incomplete: a shard ended before"),
        ({"commit": "f" * 40}, [], 1, "shards of different commits: "),
        ({"commit": "f" * 40}, ["--allow-commits", "--strict"], 0, "passed"),
        ({"run_id": "1.json", "complete": False}, [], 1, "has the id of 1.json, but another content: both count"),
        (
            {"findings": (ANOTHER,)},
            ["--allow-commits"],
            1,
            "of another commit: x",
        ),
        ({"findings": ("crept",)}, [], 0, "passed"),
        ({"findings": ("crept",)}, ["--strict"], 1, "strict: 1 findings"),
    ],
)
def test_the_status_of_the_whole(
    fields: dict[str, object], words: list[str], status: int, said: str, capsys: Captured
) -> None:
    """What one shard is, the whole is; what they should share and do not is said and fails."""
    write("2.json", **{"cases": WHOLE.cases[3:], "gated": 3, "selected": 3, "run_id": "2", **fields})
    assert main(["report", "1.json", "2.json", "--out", "m.json", *words]) == status
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "words"), [({"commit": "f" * 40}, []), ({"commit": WHOLE.commit}, ["--expect", "3"])]
)
def test_what_shards_lack_stays_in_the_file(fields: dict[str, object], words: list[str]) -> None:
    """Merged once more, without the words that found it, they fail again."""
    write("2.json", cases=WHOLE.cases[3:], selected=3, run_id="2", **fields)
    assert main(["report", "1.json", "2.json", "--out", "m.json", *words]) == 1
    assert main(["report", "m.json", "--out", "again.json"]) == 1


def test_ci_is_strict(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """As pytest --attnperf is; --no-strict takes it back."""
    monkeypatch.setenv("CI", "true")
    write("2.json", run_id="2", gated=0)
    words = ["report", "2.json", "--out", "m.json"]
    assert main(words) == 1
    assert "exit status 1: 2.json: strict: gated 0 of 6" in capsys.readouterr().out
    assert main([*words, "--no-strict"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gone.json", "--out", "m.json"], "there is no gone.json; a run writes .attnperf/results.json"),
        ([str(ROPE), "--out", "m.json"], "holds stored baselines"),
        (["1.json", "2.json", "--out", "./2.json"], "is one of the files to be merged"),
        (["1.json", "--out", "m.json", "--expect", "0"], "--expect is 0, must be 1 or more"),
    ],
)
def test_what_is_refused(words: list[str], said: str, capsys: Captured) -> None:
    """In a line, with status 2, and nothing is written."""
    assert main(["report", *words]) == 2
    assert said in capsys.readouterr().err
    assert not Path("m.json").exists()
