"""Each optional package missing: who needs it says so, with what to install; nobody else notices."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.cli.program import main as cli
from pytest_attnperf.codeobject.triton_installation import load_triton
from pytest_attnperf.errors import ToolMissingError, UsageError
from pytest_attnperf.plugin import main
from pytest_attnperf.plugin.config import RUN_CONFIG, RunConfig
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools import plotting
from pytest_attnperf.tools.tuner import optuna_search

OPTIONAL = (
    *("torch", "triton", "numpy", "scipy", "xdist", "matplotlib", "yaml", "optuna", "jinja2", "vl_convert"),
    *("sqlalchemy", "ruptures", "psycopg", "pytest_benchmark", "shtab", "rich"),
)
"""By the name they are imported by."""

COMMANDS: Sequence[tuple[str, str, str]] = [
    ("jinja2", "report results.json --report page", "pytest-attnperf[html]"),
    ("vl_convert", "report results.json --report page", "pytest-attnperf[html]"),
    ("sqlalchemy", "history prefill --history runs.sqlite", "pytest-attnperf[history]"),
    ("psycopg", "history prefill --history postgresql://nobody@localhost/none", "pytest-attnperf[postgresql]"),
    ("yaml", "profile --claims claims.yaml", "pytest-attnperf[yaml]"),
    ("shtab", "completion bash", "pytest-attnperf[completion]"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with results and claims in it."""
    monkeypatch.chdir(tmp_path)
    json_results.write(tmp_path / "results.json", sample_run(3))
    (tmp_path / "claims.yaml").write_text("a: 1\n")
    return tmp_path


def take_away(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make `import NAME` fail as where nothing of that name is installed."""
    for name in names:
        for loaded in [one for one in sys.modules if one.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(("package", "typed", "remedy"), COMMANDS, ids=[f"{one[0]}-{one[1][:9]}" for one in COMMANDS])
def test_a_command_names_what_it_lacks(
    package: str,
    typed: str,
    remedy: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit status 2, one message that names the package or its extra, and no traceback."""
    if package == "psycopg":
        pytest.importorskip("sqlalchemy")
    if package == "vl_convert":
        pytest.importorskip("jinja2")
    take_away(monkeypatch, package)
    assert cli(typed.split()) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert remedy in said
    assert "Traceback" not in said


def test_plots_searches_and_code_objects_name_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extras `plots` and `tune`, and a Triton new enough, where one of the functions behind a command asks."""
    take_away(monkeypatch, "matplotlib", "optuna", "triton")
    with (
        pytest.raises(UsageError, match=r"a plot needs matplotlib .*pytest-attnperf\[plots\]"),
        plotting._lend_matplotlib(),
    ):
        pass
    with pytest.raises(UsageError, match=r"needs Optuna.*pytest-attnperf\[tune\]"):
        optuna_search.require_optuna()
    with pytest.raises(ToolMissingError, match=r"no triton .*pip install 'triton>="):
        load_triton()


def test_without_any_of_them_the_rest_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With no optional package at all results are read and printed, and JUnit XML and Markdown are written."""
    take_away(monkeypatch, *OPTIONAL)
    assert cli(["report", "results.json", "--markdown", "report.md", "--junit", "junit.xml"]) in (0, 1)
    assert "fake.0" in capsys.readouterr().out or (folder / "report.md").read_text()
    assert {"report.md", "junit.xml"} <= {path.name for path in folder.iterdir()}


class _Config:
    """As much of pytest's as the header asks: what is asked for, and whether a conftest brings a device."""

    def __init__(self, asked: RunConfig, *devices: object) -> None:
        self.stash = pytest.Stash()
        self.stash[RUN_CONFIG] = asked
        self.hook = SimpleNamespace(pytest_attnperf_device=SimpleNamespace(get_hookimpls=lambda: list(devices)))


@pytest.mark.parametrize(
    ("config", "lines"),
    [
        (_Config(RunConfig(gate=True)), 1),
        (_Config(RunConfig(update_baselines=True)), 1),
        (_Config(RunConfig()), 0),
        (_Config(RunConfig(gate=True), "a device of the project's own"), 0),
    ],
)
def test_a_run_that_measures_names_torch_once(config: Any, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line above a run that measures; none above others, or where a conftest brings a device of its own."""
    take_away(monkeypatch, "torch")
    said = main.pytest_report_header(config)
    assert len(said) == lines
    assert all("torch is not installed for" in line and "attnperf doctor" in line for line in said)
