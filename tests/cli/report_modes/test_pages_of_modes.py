"""The pages of `attnperf report --by step` and `--by stage`, as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeResult
from tests.cli.report_modes import test_by_stage, test_by_step

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

COUNTERS = "Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value\n1,flash.kd,SQ_WAVES,12\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Results of backends, of compiled kernels and of counters, and results with stages on a GPU and a CPU, by name."""
    step, stage = test_by_step, test_by_stage
    times = [step.case("native.sdpa_flash", 10.0), step.case("hip.naive", 100.0), step.case("hip.flash", 20.0)]
    key = CaseKey("code_objects", "hip.flash", "d256", "gfx942")
    compiled = CodeResult(key, "node", Verdict.RIGHT, "", code=step.AMD)
    layers = [stage.case(name, stage.LAYER, 62.0, stage.FOUND) for name in ("layer.plain", "layer.hip.best")]
    staged = [stage.case("hip.staged", workload, 10.0) for workload in (*stage.STAGES, stage.PREFILL)]
    (tmp_path / "profile").write_text(COUNTERS)
    on_cpu = stage.case("layer.plain", stage.LAYER, 6200.0)
    return {
        "run": str(step.results(tmp_path / "run.json", *times)),
        "code": str(step.results(tmp_path / "code.json", code=(compiled,))),
        "profile": str(tmp_path / "profile"),
        "layers": stage.results(tmp_path / "layers.json", *layers),
        "gpu": stage.results(tmp_path / "gpu.json", *layers, *staged, stage.case("hip.best", stage.PREFILL, 5.0)),
        "cpu": stage.results(tmp_path / "cpu.json", on_cpu, device=stage.CPU),
    }


def test_the_ladder_as_a_page(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--report writes report.html alone, with the ladder, compiled kernels and counters; Markdown goes beside it."""
    words = ["report", files["run"], "--by", "step", "--code", files["code"], "--profile", files["profile"]]
    assert main([*words, "--report", str(tmp_path / "pages")]) == 0
    assert [path.name for path in (tmp_path / "pages").iterdir()] == ["report.html"]
    assert capsys.readouterr() == ("", f"written: {tmp_path / 'pages/report.html'}\n")
    page = (tmp_path / "pages/report.html").read_text(encoding="utf-8")
    for part in ("Speedup of each backend", "gfx942, compiled, not run", "SQ_WAVES", test_by_step.WORKLOAD):
        assert part in page
    assert main([*words, "--report", str(tmp_path / "pages"), "--markdown", "-"]) == 0
    assert "| hip.flash" in capsys.readouterr().out


def test_ideas_come_from_the_project_here(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A backend that the conftest in the current folder registers with an idea has it in the page that --open opens."""
    (tmp_path / "conftest.py").write_text(
        "from pytest_attnperf.backends import Backend\n\n\nclass Flash(Backend):\n    families = ('prefill',)\n"
        "    idea = 'online softmax'\n\n    def prepare(self, workload, inputs):\n        raise NotImplementedError\n\n"
        "def pytest_attnperf_register_backends(registry):\n    registry.add(Flash('hip.flash'))\n"
    )
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    monkeypatch.chdir(tmp_path)
    assert main(["report", files["run"], "--by", "step", "--open"]) == 0
    page = tmp_path / ".attnperf/pages/steps.html"
    assert opened == [page.as_uri()]
    assert "hip.flash: online softmax" in page.read_text(encoding="utf-8")
    assert capsys.readouterr().out == ""


def test_stages_as_a_page(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--report writes report.html alone, with layers, the CPU and staged attention; nothing else is printed."""
    words = ["report", files["gpu"], "--by", "stage", "--cpu", files["cpu"], "--report", str(tmp_path / "pages")]
    assert main(words) == 0
    assert [path.name for path in (tmp_path / "pages").iterdir()] == ["report.html"]
    assert capsys.readouterr() == ("", f"written: {tmp_path / 'pages/report.html'}\n")
    page = (tmp_path / "pages/report.html").read_text(encoding="utf-8")
    for part in ("Stages of each call", "Staged against fused attention", "layer.hip.best", "over a CPU"):
        assert part in page


def test_open_writes_the_page_where_no_folder_is_named(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is among the pages of .attnperf, so that it never takes the place of a run's page."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    monkeypatch.chdir(tmp_path)
    assert main(["report", files["layers"], "--by", "stage", "--open"]) == 0
    assert opened == [(tmp_path / ".attnperf/pages/stages.html").as_uri()]
