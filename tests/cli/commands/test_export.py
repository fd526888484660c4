"""`attnperf export`: what it writes where, what it says beside it, and what it refuses."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools.export.formats import FORMATS, TimesFormat
from tests.tools.export.export_samples import hostile_run, mixed_run

ROOT = Path(__file__).parents[3]
PREFILL = ROOT / "baselines/sm_90/h200/prefill.json"
TRACE = ROOT / "tests/data/profiles/rocprofv3_rocm70/kernel_trace.csv"
OF_RESULTS = [one.name for one in FORMATS if isinstance(one, TimesFormat)]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The last run of the folder where the command is typed: two cases of six with a time."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".attnperf/results.json"
    json_results.write(path, mixed_run())
    return path


@pytest.mark.parametrize("name", OF_RESULTS)
def test_the_last_run_is_printed(name: str, results: Path, capsys: Captured) -> None:
    """Standard output has the file alone, standard error what was left out; verdicts do not change the status 0."""
    if name == "pytest-benchmark":
        pytest.importorskip("pytest_benchmark")
    assert main(["export", "--to", name]) == 0
    out, err = capsys.readouterr()
    if name == "csv":
        assert len([*csv.DictReader(out.splitlines())]) == 6
        assert err == "exported: 6 cases\n"
        return
    json.loads(out)
    assert err == (
        "exported: 2 of 6 cases; left out: 2 not timed, 1 not proven right, 1 with a time that is not believed "
        "(SUSPICIOUS, ENVIRONMENT)\n"
    )


@pytest.mark.parametrize("name", OF_RESULTS)
def test_a_strangers_results_are_safe_to_print(name: str, tmp_path: Path, capsys: Captured) -> None:
    """No escape sequence, no line of a command, no direction of text reaches the terminal."""
    json_results.write(tmp_path / "evil.json", hostile_run())
    assert main(["export", "--to", name, str(tmp_path / "evil.json")]) == 0
    shown = "".join(capsys.readouterr())
    assert all(line.isprintable() for line in shown.splitlines())
    assert not any(line.lstrip().startswith("::") for line in shown.splitlines())


def test_stored_baselines_and_folders_are_results(capsys: Captured) -> None:
    """Every stored case has its time, and its device in its name."""
    assert main(["export", "--to", "bencher", str(PREFILL.parent)]) == 0
    names = [*json.loads(capsys.readouterr().out)]
    assert len(names) > 100
    assert all(name.endswith(" on sm_90/h200") for name in names)


def test_a_file_is_written_whole(results: Path, capsys: Captured) -> None:
    """With --out nothing is printed; a name that ends in .gz makes a packed file."""
    assert main(["export", "--to", "bencher"]) == 0
    printed = capsys.readouterr().out
    assert main(["export", "--to", "bencher", "--out", "b.json"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("written: b.json\nexported: 2 of 6 cases")
    assert Path("b.json").read_text() == printed
    assert main(["export", "--to", "perfetto", str(TRACE), "--out", "t.json.gz"]) == 0
    assert json.loads(gzip.decompress(Path("t.json.gz").read_bytes()))["traceEvents"]


def test_a_case_of_two_runs_is_named_once(results: Path, capsys: Captured) -> None:
    """On one device the worse or later one counts, and standard error says so; of two devices both are there."""
    json_results.write(Path("later.json"), replace(mixed_run(), started="2027-01-01T00:00:00+00:00"))
    json_results.write(Path("other.json"), sample_run(6, product="h200"))
    assert main(["export", "--to", "github-action-benchmark", str(results), "later.json", "other.json"]) == 0
    out, err = capsys.readouterr()
    names = [entry["name"] for entry in json.loads(out)]
    assert len({*names}) == len(names)
    assert {name.rpartition(" on ")[2] for name in names} == {"sm_90/sample", "sm_90/h200"}
    assert err.count(" occurs twice, ") == 6


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--to bencher none.json", "there is no none.json; a run writes .attnperf/results.json: pytest --attnperf"),
        ("--to bencher cut.json", "cut.json is not a results file of this version"),
        ("--to bencher empty.json", "no case of these results has a time to export, of 0; measure with pytest --attn"),
        ("--to perfetto", "--to perfetto takes one profile, and 0 were given; name the file or folder that a profiler"),
        ("--to perfetto a b", "--to perfetto takes one profile, and 2 were given"),
        ("--to perfetto empty.json", "empty.json holds no timeline: it is no profiler's file."),
    ],
)
def test_what_cannot_be_exported(results: Path, capsys: Captured, typed: str, said: str) -> None:
    """One line says what is wrong and what to do; nothing is printed, and the status is 2."""
    data = results.read_bytes()
    Path("cut.json").write_bytes(data[: len(data) // 2])
    json_results.write(Path("empty.json"), replace(mixed_run(), cases=()))
    assert main(["export", *typed.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_an_unknown_format_is_answered_with_all(capsys: Captured) -> None:
    """So is a missing --to."""
    for typed in (["export", "--to", "influx"], ["export"]):
        with pytest.raises(SystemExit) as ended:
            main(typed)
        assert ended.value.code == 2
        err = capsys.readouterr().err
        assert "--to" in err
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    shown = capsys.readouterr().out
    assert all(f"\n  {one.name} " in shown for one in FORMATS)
