from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.cli.commands import dispatch as dispatch_command
from pytest_attnperf.cli.program import build_parser, main
from pytest_attnperf.errors import AttnperfError, BaselineError, UsageError
from pytest_attnperf.records import CaseKey, CheckReport, DeviceInfo, ErrorFigures, Fingerprint, ProcessSummary, Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "baselines/published/mi300x_ck_triton_native.json"
H200 = ROOT / "baselines/sm_90/h200"
RIGHT = CheckReport((ErrorFigures("seed 1", "out", 1e-3, 2e-3, 1e-4, 2e-4),))
DEVICE = DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200")
Printed = Callable[..., str]


def case(backend: str, us: float, seq: int = 512, **fields: object) -> CaseResult:
    """A right and timed case."""
    processes = tuple(
        ProcessSummary(one, one, one, (one,), 10, "graph", f"GPU-{backend}") for one in (us, us * 1.001, us)
    )
    whole = CaseResult(
        CaseKey("prefill", backend, f"prefill-b4-s{seq}-h8-d256-f16-causal"),
        "node",
        Verdict.NO_BASELINE,
        "",
        median_us=us,
        first=processes,
        checks=(RIGHT,),
        fingerprint=Fingerprint({"timer": "graph", "product": "h200"}, {"torch": "2.11.0"}),
    )
    return replace(whole, **fields)  # type: ignore[arg-type]


def results(path: Path, *cases: CaseResult, device: DeviceInfo | None = DEVICE) -> str:
    """A results file."""
    run = RunResult(RESULTS_SCHEMA, "0.1.0", "gate", "2026-01-01T00:00:00Z", "pytest", "c0", device, None, cases)
    json_results.write(path, run)
    return str(path)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Printed:
    """Runs `attnperf dispatch`, and gives what it prints in 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str | Path) -> str:
        assert dispatch_command.run(build_parser(["dispatch"]).parse_args(["dispatch", *map(str, arguments)])) == 0
        said = capsys.readouterr()
        assert ("--out" in arguments) == said.err.startswith("written: ")
        return said.out

    return run


def rows(text: str) -> list[list[str]]:
    """(size, backend, ...) of every row of a table, without shapes."""
    sizes = [line.split("causal ")[-1].replace(" - ", "-").split() for line in text.splitlines()]
    return [cells for cells in sizes if cells and cells[0].replace("-", "").isdigit()]


def test_the_published_table_gives_its_rule(printed: Printed) -> None:
    """After tuning: Triton to 512 at D=256 and CK beyond, a tie at D=64; nothing of it has a known confidence."""
    text = printed(PUBLISHED)
    assert rows(text) == [
        ["1024", "ck", "-1.3", "%", "tie,", "no", "samples", "2", "aiter.triton"],
        ["512", "aiter.triton", "11.7", "%", "no", "samples", "3", "ck"],
        ["1024-4096", "ck", "3.1", "..", "35.7", "%", "no", "samples", "3", "aiter.triton"],
    ]
    assert "seq below 512, 513 to 1023, above 4096" in text
    assert "no samples: confidence unknown" in text
    assert "not used: 'before tuning', choose by --table" in text.replace("\n  ", " ")
    caveats = json.loads(PUBLISHED.read_text())["caveats"]
    assert all(caveat in text.replace("\n  ", " ") for caveat in caveats)


def test_tables_of_a_report_are_not_mixed(printed: Printed) -> None:
    """Before tuning CK wins everywhere; the appendix alone has one shape."""
    assert [row[:2] for row in rows(printed(PUBLISHED, "--table", "before tuning"))] == [["512-4096", "ck"]]
    assert [row[0] for row in rows(printed(PUBLISHED, "--table", "appendix, d_k=64"))] == ["1024"]
    assert "native.eager_fp32" not in {row[1] for table in ("before tuning", "after tuning")
                                      for row in rows(printed(PUBLISHED, "--table", table))}  # fmt: skip
    with pytest.raises(UsageError, match="has no table 'x'; it has: 'before tuning', 'after tuning', 'appendix"):
        printed(PUBLISHED, "--table", "x")


def test_the_published_rule_as_a_function(printed: Printed, tmp_path: Path) -> None:
    """The module says what the table says, and where its figures come from."""
    out = tmp_path / "choose_backend.py"
    assert "written" not in printed(PUBLISHED, "--out", out)
    names = runpy.run_path(str(out))
    shape: dict[str, Any] = {"batch": 4, "heads": 8, "dtype": "f16", "causal": True}
    chosen = {
        (head_dim, seq): names["choose_backend"]("prefill", seq_q=seq, head_dim=head_dim, **shape)
        for head_dim, seq in ((256, 512), (256, 700), (256, 1024), (256, 4096), (256, 8192), (64, 1024))
    }
    assert {where for where, backend in chosen.items() if backend == "aiter.triton"} == {(256, 512)}
    assert set(chosen.values()) == {"aiter.triton", "ck"}
    assert not names["measured"]("prefill", seq_q=700, head_dim=256, **shape)
    assert "AMD Instinct MI300X (gfx942)" in names["__doc__"]
    assert "recorded 2025-12-30" in names["__doc__"]


def test_the_incumbent_takes_the_tie(printed: Printed) -> None:
    """With Triton as the incumbent, D=64 is Triton's."""
    text = printed(PUBLISHED, "--incumbent", "aiter.triton")
    assert rows(text)[0][:4] == ["1024", "aiter.triton", "1.3", "%"]
    assert "incumbent aiter.triton" in text


def test_stored_baselines_are_read(printed: Printed, tmp_path: Path) -> None:
    """A folder or one of its files; every measured workload of the folder is answered by the module as by the table."""
    out = tmp_path / "choose.py"
    found = json.loads(printed(H200, "--json", "--out", out))
    names = runpy.run_path(str(out))
    asked = 0
    for group in found["groups"]:
        shape = {name: tuple(value) if isinstance(value, list) else value for name, value in group["fields"].items()}
        for point in (point for region in group["regions"] for point in region["points"]):
            fields = {**shape, **({group["axis"]: point["size"]} if group["axis"] else {})}
            assert names["choose_backend"](group["family"], **fields) == point["backend"]
            assert names["measured"](group["family"], **fields)
            assert min(point["times_us"].values()) > 0
            asked += 1
    assert asked > 60
    text = printed(H200 / "decode.json")
    assert text.startswith("h200 (sm_90)\nrecorded 20")
    assert "decode, by kv; incumbent " in text


def test_results_of_a_run(printed: Printed, tmp_path: Path) -> None:
    """Header, the winner with its confidence, and a fast case that is wrong left out."""
    wrong = case("fast", 0.1, verdict=Verdict.INCORRECT, summary="out is off")
    text = printed(results(tmp_path / "run.json", case("a", 1.0), case("b", 2.0), wrong))
    assert rows(text) == [["512", "a", "100.0", "%", "clear", "2", "b"]]
    assert text.startswith("NVIDIA H200 (sm_90)\nrecorded 2026-01-01\n")
    assert "commit c0" in text
    assert "times are of 2 cards of this product" in text
    assert "- fast on prefill-b4-s512-h8-d256-f16-causal: INCORRECT: out is off" in text


def test_several_files_of_one_device_join(printed: Printed, tmp_path: Path) -> None:
    """Also results with stored baselines."""
    first = results(tmp_path / "1.json", case("a", 1.0), case("b", 2.0))
    second = results(tmp_path / "2.json", case("a", 2.0, 1024), case("b", 1.0, 1024))
    assert [row[:2] for row in rows(printed(first, second))] == [["512", "a"], ["1024", "b"]]
    assert "by kv" in printed(first, H200 / "decode.json")


def test_devices_are_not_mixed(printed: Printed, tmp_path: Path) -> None:
    """Two archs or two products are named, unless one is chosen."""
    ours = results(tmp_path / "1.json", case("a", 1.0), case("b", 2.0))
    amd = results(tmp_path / "2.json", case("a", 2.0), case("b", 1.0), device=DeviceInfo("rocm", "gfx942", "mi300x"))
    other = results(tmp_path / "3.json", case("a", 2.0), device=replace(DEVICE, product="h100"))
    with pytest.raises(UsageError, match=r"results are from several devices: sm_90/h200 \(.*gfx942/mi300x \("):
        printed(ours, amd)
    with pytest.raises(UsageError, match="Choose one with --arch ARCH/PRODUCT"):
        printed(ours, other, "--arch", "sm_90")
    assert rows(printed(ours, amd, "--arch", "gfx942"))[0][1] == "b"
    assert rows(printed(ours, other, "--arch", "sm_90/h200"))[0][1] == "a"
    with pytest.raises(UsageError, match="no results are from --arch 'gfx950'; they are from: sm_90/h200"):
        printed(ours, "--arch", "gfx950")
    with pytest.raises(UsageError, match="give it alone"):
        printed(PUBLISHED, ours)


@pytest.mark.parametrize("device", [DeviceInfo("cpu", "cpu-x86_64", "x"), replace(DEVICE, interpreted=True), None])
def test_times_that_are_of_no_gpu_are_refused(printed: Printed, tmp_path: Path, device: DeviceInfo | None) -> None:
    """A CPU's, an interpreter's, and a run without a device."""
    with pytest.raises(UsageError, match=r"of a CPU|from an interpreter|names no device"):
        printed(results(tmp_path / "run.json", case("a", 1.0), device=device))


@pytest.mark.parametrize("us", [0.0, -1.0])
def test_a_time_that_is_none_is_refused(printed: Printed, tmp_path: Path, us: float) -> None:
    """With file and case."""
    with pytest.raises(UsageError, match=r"run.json: a on 'prefill-b4-s512.* holds a time of"):
        printed(results(tmp_path / "run.json", case("a", us)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not readable as JSON"),
        ("[1]", "name a file of one of these kinds"),
        ("{}", "name a file of one of these kinds"),
        ('{"schema": 1, "cases": [{"median_us": NaN}]}', "not readable as JSON"),
        ('{"schema": 99, "cases": []}', "this version reads up to"),
        ('{"schema": 1, "cases": 3}', "not a results file of this version"),
        ('{"schema": 9, "suite": "s", "entries": {}, "policies": {}}', "this version reads 1"),
        ('{"schema": 1, "rows": 3, "method": ""}', "is not a published report"),
    ],
)
def test_a_file_that_is_off_is_named(printed: Printed, tmp_path: Path, text: str, said: str) -> None:
    """Torn, of another kind, or of a newer schema."""
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(AttnperfError, match=rf"file\.json.*{said}"):
        printed(tmp_path / "file.json")


@pytest.mark.parametrize(("field", "value", "said"), [("schema", 9, "this version reads 1"), ("rows", [], "no case")])
def test_a_report_that_is_off_is_refused(
    printed: Printed, tmp_path: Path, field: str, value: object, said: str
) -> None:
    """Of a newer schema, or without rows."""
    (tmp_path / "report.json").write_text(json.dumps({**json.loads(PUBLISHED.read_text()), field: value}))
    with pytest.raises(UsageError, match=said):
        printed(tmp_path / "report.json")


def test_a_published_time_that_is_none_is_refused(printed: Printed, tmp_path: Path) -> None:
    """As of a measured one."""
    report = json.loads(PUBLISHED.read_text())
    report["rows"][-1]["time_us"] = -1.0
    (tmp_path / "report.json").write_text(json.dumps(report))
    with pytest.raises(UsageError, match=r"report.json: aiter.triton on .* holds a time of -1"):
        printed(tmp_path / "report.json")


def test_a_folder_without_baselines_says_what_it_holds(printed: Printed, tmp_path: Path) -> None:
    """The folder above a product's names the product; what cannot be a baseline there is no error by itself."""
    with pytest.raises(UsageError, match=r"no file of stored baselines, only h100-80gb-hbm3, h200; name"):
        printed(H200.parent)
    with pytest.raises(UsageError, match="holds nothing; name baselines"):
        printed(tmp_path)
    (tmp_path / "prefill.json").write_text('{"schema": 1, "suite": "s", "entries": 3, "policies": {}}')
    with pytest.raises(BaselineError, match=r"prefill\.json"):
        printed(tmp_path)


def test_empty_results_and_misplaced_options_are_refused(printed: Printed, tmp_path: Path) -> None:
    """With what to do."""
    with pytest.raises(UsageError, match="no case was proven right and timed"):
        printed(results(tmp_path / "empty.json"))
    with pytest.raises(UsageError, match="--table is for published reports"):
        printed(results(tmp_path / "run.json", case("a", 1.0)), "--table", "x")
    with pytest.raises(UsageError, match="--margin is 200 %"):
        printed(tmp_path / "run.json", "--margin", "200")


def test_a_hostile_workload_and_backend(printed: Printed, tmp_path: Path) -> None:
    """Neither repaints the terminal nor runs in the module."""
    hostile = case('"; import os; \x1b[2J', 1.0)
    unread = case("b", 1.0, key=CaseKey("s", "b", "prefill-\x1b[2J; import os"))
    out = tmp_path / "choose.py"
    text = printed(results(tmp_path / "run.json", hostile, case("b", 2.0), unread), "--out", out)
    assert "\x1b" not in text
    assert "Left out of all decisions: 1 case" in text
    names = runpy.run_path(str(out))
    shape = {"batch": 4, "seq_q": 512, "heads": 8, "head_dim": 256, "dtype": "f16", "causal": True}
    assert names["choose_backend"]("prefill", **shape) == '"; import os; \x1b[2J'


def test_markdown_and_margin(printed: Printed, tmp_path: Path) -> None:
    """A page with a heading, and a margin that turns a win into a tie."""
    run = results(tmp_path / "run.json", case("a", 1.0), case("b", 1.1))
    assert "### prefill, by seq; incumbent a" in printed(run, "--markdown")
    assert "below 20 %" in printed(run, "--margin", "20")
    assert "tie" in rows(printed(run, "--margin", "20"))[0]
    assert "clear" in rows(printed(run, "--family", "prefill"))[0]


def test_the_table_as_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--html writes maps beside what is printed, of stored baselines and of a published report."""
    page = tmp_path / "page.html"
    for source in (H200, PUBLISHED):
        assert main(["dispatch", str(source), "--html", str(page)]) == 0
        out, err = capsys.readouterr()
        assert "incumbent: chosen at ties" in out
        assert err == f"written: {page}\n"
        assert "prefill: the backend to use" in page.read_text(encoding="utf-8")


def test_open_opens_the_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --html the page is among the pages of .attnperf; JSON is printed nevertheless."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    monkeypatch.chdir(tmp_path)
    assert main(["dispatch", str(PUBLISHED), "--json", "--open"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "attnperf.dispatch/1"
    assert opened == [(tmp_path / ".attnperf/pages/dispatch.html").as_uri()]
