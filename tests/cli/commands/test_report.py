"""`attnperf report`: what it prints, what it writes, and what it answers."""

from __future__ import annotations

import csv
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.records import CaseKey, DeviceInfo, Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.forms import FORMS
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.sample_runs import sample_run

ROOT = Path(__file__).parents[3]
PREFILL = ROOT / "baselines/sm_90/h200/prefill.json"
FORM_FILES = {form.filename for form in FORMS}
EVIL = "\x1b[2J\x1b[31m4000 same\nPASSED <script>alert(1)</script> | `*@team \u202e" + "z" * 100_000

Captured = pytest.CaptureFixture[str]
Written = Callable[..., Path]


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eighty columns, and nothing that asks for colours or forbids them."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Writes a results file of six cases with these verdicts."""

    def write(name: str = "results.json", *verdicts: Verdict, **fields: object) -> Path:
        run = replace(sample_run(6, verdicts=verdicts or [Verdict.SAME]), **fields)  # type: ignore[arg-type]
        json_results.write(tmp_path / name, run)
        return tmp_path / name

    return write


def test_one_file(written: Written, capsys: Captured) -> None:
    """A table and the closing lines; nothing failed, so 0."""
    path = written()
    assert main(["report", str(path)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "prefill"
    assert lines[-3] == "6 same on sm_90/sample against 4f2c1ab90d11; slowest: " + lines[-3].partition("slowest: ")[2]
    assert lines[-1] == f"results: {path}"
    assert (err, "\x1b" in out) == ("", False)


def test_several_files(written: Written, capsys: Captured) -> None:
    """Devices have tables of their own, each run its closing lines; one failure anywhere makes the status 1."""
    other = DeviceInfo("hip", "gfx942", "mi300x")
    paths = [written("a.json"), written("b.json", Verdict.SLOWER, device=other, started="2026-02-01T00:00:00Z")]
    assert main(["report", *map(str, paths)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("prefill on ")] == [
        "prefill on sm_90/sample",
        "prefill on gfx942/mi300x",
    ]
    assert [line for line in lines if line.startswith("results: ")] == [f"results: {path}" for path in paths]


def test_a_case_that_is_there_twice(written: Written, capsys: Captured) -> None:
    """A failure is not hidden by a later run in which it passed; that both were there is said."""
    paths = [written("a.json", Verdict.SLOWER), written("b.json", started="2026-02-01T00:00:00Z")]
    assert main(["report", *map(str, paths), "-q"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("prefill/triton.flash/prefill-b1-s128-h4-d64-f16-causal SLOWER") == 1
    assert "occurs twice, SLOWER in " in out


def test_degrees_of_detail(written: Written, capsys: Captured) -> None:
    """-qq is one line, -q has no table of what is well, -v more columns."""
    path = str(written())
    counts = []
    for flags in (["-qq"], ["-q"], [], ["-v"]):
        assert main(["report", path, *flags]) == 0
        counts.append(capsys.readouterr().out)
    assert counts[0].startswith(f"{path}: 6 same on ")
    assert counts[0].count("\n") == 1
    assert "verdict" not in counts[1]
    assert counts[1].startswith("6 same on ")
    assert "detectable" not in counts[2]
    assert "detectable" in counts[3]


@pytest.mark.parametrize(
    ("choice", "variables", "coloured"),
    [
        ("always", {}, True),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
        ("auto", {}, False),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours(
    written: Written,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
    variables: dict[str, str],
    coloured: bool,
) -> None:
    """As asked for; else as the environment says, and none into a file."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    main(["report", str(written("r.json", Verdict.SLOWER)), "--color", choice])
    assert ("\x1b[" in capsys.readouterr().out) is coloured


def test_every_form_at_once(written: Written, capsys: Captured, tmp_path: Path) -> None:
    """A folder, JUnit and Markdown are written, and said on stderr; no table is printed; the status is the run's."""
    pytest.importorskip("vl_convert", reason="the page needs vl-convert-python")
    out, junit, text = tmp_path / "out", tmp_path / "made" / "j.xml", tmp_path / "made" / "r.md"
    path = str(written("r.json", Verdict.SLOWER))
    assert main(["report", path, "--report", str(out), "--junit", str(junit), "--markdown", str(text)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.split(": ")[0] for line in said.err.splitlines()] == ["report", "written", "written"]
    assert {file.name for file in out.iterdir()} == {"report.html", "results.json", *FORM_FILES}
    assert ET.parse(junit).getroot().get("failures") == "6"
    assert text.read_text().startswith("### attnperf: FAILED: 6 slower on ")


def test_markdown_for_a_pipe(written: Written, capsys: Captured) -> None:
    """`--markdown -` prints it and nothing else."""
    assert main(["report", str(written()), "--markdown", "-"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("### attnperf: PASSED: 6 same on ")
    assert err == ""


def test_stored_baselines(capsys: Captured, tmp_path: Path) -> None:
    """In no form have they passed: each says that nothing was measured."""
    assert main(["report", str(PREFILL), "-q"]) == 0
    assert "stored baselines: nothing was measured for this report" in capsys.readouterr().out
    junit = tmp_path / "j.xml"
    assert main(["report", str(PREFILL), "--markdown", "-", "--junit", str(junit)]) == 0
    assert capsys.readouterr().out.startswith("### attnperf: STORED BASELINES: ")
    root = ET.parse(junit).getroot()
    assert root.get("skipped") == root.get("tests") != "0"


def test_a_page_of_stored_baselines(tmp_path: Path) -> None:
    """It is headed by what it is, in its title, too."""
    pytest.importorskip("vl_convert", reason="the page needs vl-convert-python")
    assert main(["report", str(PREFILL), "--report", str(tmp_path)]) == 0
    html = (tmp_path / "report.html").read_text()
    assert "<title>stored baselines: " in html
    assert '<span class="outcome open">Stored baselines</span>' in html


@pytest.mark.parametrize("flags", [[], ["-v"], ["-q"], ["-qq"], ["--markdown", "-"]])
def test_hostile_text(written: Written, capsys: Captured, flags: list[str]) -> None:
    """Nothing that a file says moves the cursor, begins a line of its own, or makes any line endless."""
    run = sample_run(6)
    keys = (CaseKey(EVIL, EVIL, f"{number}{EVIL}", EVIL) for number in range(6))
    cases = tuple(
        replace(case, key=key, summary=EVIL, notes=(EVIL,)) for case, key in zip(run.cases, keys, strict=True)
    )
    named = {"commit": EVIL, "against": EVIL, "command": EVIL, "findings": (EVIL,), "notes": (EVIL,)}
    path = written(cases=cases, device=DeviceInfo(EVIL, EVIL, EVIL, EVIL), baseline_paths=(EVIL,), **named)
    main(["report", str(path), *flags])
    out = capsys.readouterr().out
    assert not any(character in out for character in "\x1b\u202e")
    assert not any(line.startswith("PASSED") for line in out.splitlines())
    assert max(map(len, out.splitlines())) < 5_000


def test_a_hostile_file_name(written: Written, capsys: Captured, tmp_path: Path) -> None:
    """The name of a file is a stranger's text, too."""
    path = written("a\x1b[31m\n.json")
    assert main(["report", str(path), "-qq"]) == 0
    assert main(["report", str(path), "--junit", str(tmp_path / "b\x1b[31m.xml")]) == 0
    assert "\x1b" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("us", ["0", "1e-320", "1e308"])
def test_times_that_cannot_be(written: Written, capsys: Captured, us: str) -> None:
    """A file may hold any number: none of them ends a report by an exception."""
    run = sample_run(2, verdicts=[Verdict.SAME])
    times = {"median_us": float(us), "baseline_us": float(us), "ratio": float(us), "floor_us": float(us)}
    path = written(cases=tuple(replace(case, **times) for case in run.cases))  # type: ignore[arg-type]
    assert main(["report", str(path), "-v"]) == 0
    assert main(["report", str(path), "--markdown", "-"]) == 0
    assert "2 same" in capsys.readouterr().out


def test_a_missing_extra(written: Written, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without jinja2 the other forms are written, an older page does not stay beside them, and the status is 2."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.html").write_text("of yesterday")
    assert main(["report", str(written()), "--report", str(tmp_path / "out")]) == 2
    assert "pip install 'pytest-attnperf[html]'" in capsys.readouterr().err
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"results.json", *FORM_FILES}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--report", "{path}"], "results.json"),
        (["--junit", "{path}/x.xml"], "results.json"),
        (["--history", "h.sqlite"], "--history is shown only in the page: add --report DIR"),
        (["--report", "{folder}/out", "--history", "{folder}/none.sqlite"], "none.sqlite"),
        (["{folder}/absent.json"], "absent.json"),
    ],
)
def test_what_is_off(written: Written, capsys: Captured, tmp_path: Path, arguments: list[str], message: str) -> None:
    """One line on stderr, status 2, and no table."""
    path = written()
    typed = [text.format(path=path, folder=tmp_path) for text in arguments]
    assert main(["report", str(path), *typed]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("attnperf: ")
    assert message in said.err
    assert said.err.count("\n") == 1


def test_an_unfinished_run(written: Written, capsys: Captured) -> None:
    """It has not passed, and how much of it is there is said."""
    path = written(complete=False, selected=9)
    assert main(["report", str(path)]) == 0
    assert "incomplete: 6 of 9 selected cases have a result" in capsys.readouterr().out
    main(["report", str(path), "--markdown", "-"])
    assert capsys.readouterr().out.startswith("### attnperf: INCOMPLETE: ")


def test_results_are_given_back_as_they_were(written: Written, tmp_path: Path) -> None:
    """The results beside the page are the ones that it was made of."""
    pytest.importorskip("vl_convert", reason="the page needs vl-convert-python")
    path = written()
    main(["report", str(path), "--report", str(tmp_path / "out")])
    copy: RunResult = json_results.decode((tmp_path / "out" / "results.json").read_bytes(), "copy")
    assert copy == json_results.decode(path.read_bytes(), "original")


def test_the_last_run_is_meant(written: Written, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without RESULTS it reads .attnperf/results.json; without that file one line says what writes it, status 2."""
    folder = written().parent
    monkeypatch.chdir(folder)
    assert main(["report"]) == 2
    assert capsys.readouterr().err == (
        "attnperf: there is no .attnperf/results.json; a run writes .attnperf/results.json: pytest --attnperf\n"
    )
    written(".attnperf/results.json")
    assert main(["report"]) == 0
    assert capsys.readouterr().out.endswith("results: .attnperf/results.json\n")


@pytest.mark.parametrize("has_browser", [True, False])
def test_the_page_is_opened(
    written: Written, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_browser: bool
) -> None:
    """`--open` writes the folder, by default .attnperf/report, and opens its page; without a browser it says so, and
    where the page is."""
    pytest.importorskip("vl_convert", reason="the page needs vl-convert-python")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or has_browser)
    path = written()
    monkeypatch.chdir(tmp_path)
    page = tmp_path / ".attnperf/report/report.html"
    assert main(["report", str(path), "--open"]) == 0
    said = capsys.readouterr().err
    assert opened == [page.as_uri()]
    assert page.is_file()
    assert (f"there is no browser here; open this file in one: {page}\n" in said) is not has_browser


def test_no_page_is_opened_that_was_not_made(written: Written, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the extra that makes it, --open ends with 2 and asks for no browser."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr("webbrowser.open", lambda url: pytest.fail(url))
    assert main(["report", str(written()), "--open", "--report", str(tmp_path / "out")]) == 2


def test_csv_for_a_pipe(written: Written, capsys: Captured) -> None:
    """`--csv -`, an old spelling of `attnperf export --to csv` that no help shows, prints a header and a row per case;
    with --out, too."""
    path = written("r.json", Verdict.SLOWER)
    assert main(["report", str(path), "--csv", "-"]) == 1
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["verdict"] for row in rows] == ["SLOWER"] * 6
    assert main(["report", str(path), "--out", str(path.with_name("m.json")), "--csv", "-"]) == 1
    assert list(csv.DictReader(capsys.readouterr().out.splitlines())) == rows
    assert main(["export", "--to", "csv", str(path)]) == 0
    assert list(csv.DictReader(capsys.readouterr().out.splitlines())) == rows
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    assert "--csv" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--cpu c.json", "--cpu needs --by stage; add that, or drop --cpu"),
        ("--by step --cpu c.json", "--cpu needs --by stage; add that, or drop --cpu"),
        ("--by stage --over x", "--over needs --by step; add that, or drop --over"),
        ("--relative-to x", "--relative-to needs --by step; add that, or drop --relative-to"),
        ("--workload x", "--workload needs --by stage or --by step; add that, or drop --workload"),
        ("--expect 3", "--expect needs --out FILE; add that, or drop --expect"),
        ("--no-strict", "--strict needs --out FILE; add that, or drop --strict"),
        ("--comment --allow-commits", "--allow-commits needs --out FILE; add that, or drop --allow-commits"),
        ("--pull 7", "--pull needs --comment; add that, or drop --pull"),
        ("--out m.json --comment", "--out and --comment are two different reports; give one of them"),
        ("--by step --out m.json", "--by step and --out are two different reports; give one of them"),
        ("--by stage -v", "--verbose has no effect with --by stage; drop one of the two"),
        ("--by step --csv -", "--csv has no effect with --by step; drop one of the two"),
        ("--out m.json --history h", "--history has no effect with --out; drop one of the two"),
        ("--comment --open", "--open has no effect with --comment; drop one of the two"),
        ("--comment --markdown t.md", "--markdown writes a report; the text of a comment is --comment-text FILE"),
        ("{path} --by stage", "--by stage shows one file, and 2 were given; name one RESULTS"),
    ],
)
def test_an_option_of_another_mode(written: Written, capsys: Captured, typed: str, said: str) -> None:
    """One line on stderr names the option and what it needs, or what it contradicts; status 2, nothing written."""
    path = written()
    assert main(["report", str(path), *(word.format(path=path) for word in typed.split())]) == 2
    assert capsys.readouterr() == ("", f"attnperf: {said}\n")
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_folders_of_stored_baselines(capsys: Captured, tmp_path: Path) -> None:
    """A product's folder, an architecture's and all of `baselines` are read; ceilings, published figures and compiled
    kernels are no runs, and a folder with compiled kernels alone says which command shows them."""
    stored = Path(__file__).parents[3] / "baselines"
    for folder in (stored / "sm_90" / "h200", stored / "sm_90", stored):
        assert main(["report", str(folder), "-qq"]) == 0
        assert "rope.json: " in capsys.readouterr().out
    assert main(["report", str(stored / "gfx942")]) == 2
    assert "no stored times but compiled kernels, which attnperf occupancy shows" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no results and no stored times; name a results file" in capsys.readouterr().err


def test_the_steps_of_stored_baselines(capsys: Captured) -> None:
    """The ladder of a GPU that is not here: `--by step` reads stored times."""
    stored = Path(__file__).parents[3] / "baselines" / "sm_90" / "h200" / "hip_ladder.json"
    assert main(["report", str(stored), "--by", "step"]) == 0
    assert "hip.best" in capsys.readouterr().out
