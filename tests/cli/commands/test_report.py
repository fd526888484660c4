"""`attnperf report`: what it prints, what it writes, and what it answers."""

from __future__ import annotations

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
    assert out.count("SLOWER triton.flash") == 1
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
    assert "finds" not in counts[2]
    assert "finds" in counts[3]


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
