"""docs/add-to-your-repo.md on pytest-benchmark is what happens: files are written, commands typed, options exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main as cli
from pytest_attnperf.testing.project import FakeProject

pytest.importorskip("pytest_benchmark", reason="needs pytest-benchmark: pip install 'pytest-attnperf[benchmark]'")

pytestmark = pytest.mark.usefixtures("outside_xdist")

PAGE = (Path(__file__).parents[4] / "docs" / "add-to-your-repo.md").read_text()
SECTION = PAGE.partition("\n## From pytest-benchmark\n")[2]
KERNELS = """
def make_inputs(seq, seed): return (seq, seed)
def attention(*tensors): return tensors
def plain_attention(*tensors): return tensors
def synchronize(): pass
"""
"""What the section says is yours; on the scripted device nothing of it is called for a case."""

QUICK_MACHINE = """
import pytest

@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_benchmark_generate_machine_info():
    return {"node": "a test", "machine": "x86_64", "cpu": {"brand_raw": "a CPU", "count": 2}}
"""
"""Asking the processor takes half a second, as often as pytest-benchmark asks."""

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"--(?:benchmark|attnperf|update)[a-z-]*")


def shown(text: str) -> str:
    """A line as it is compared: whatever was measured and the width of rules left out."""
    return re.sub(r"\s+", " ", re.sub(r"-{3,}", "---", re.sub(r"\d+(?:\.\d+)?s\b", "*", text))).strip()


def missing_lines(expected: list[str], printed: str) -> list[str]:
    """Lines of the page that no line printed begins with; '*' is anything."""
    lines = [shown(line).strip("= ") for line in printed.splitlines()]
    patterns = {line: re.escape(shown(line).strip("= ")).replace(r"\*", ".*") for line in expected}
    return [line for line, pattern in patterns.items() if not any(re.match(pattern, seen) for seen in lines)]


@pytest.fixture
def project(attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> FakeProject:
    """A project with kernels and no tests, in which a benchmark takes no second."""
    (attnperf_project.path / "suites" / "test_prefill.py").unlink()
    (attnperf_project.path / "mykernels.py").write_text(KERNELS)
    attnperf_project.conftest(QUICK_MACHINE)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--benchmark-max-time=0.001")
    attnperf_project.backend("mine", time_us=100.0)
    monkeypatch.chdir(attnperf_project.path)
    return attnperf_project


def typed(project: FakeProject, line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit status and output of one command of the section."""
    program, *words = shlex.split(line)
    if program == "attnperf":
        status = cli(words)
    else:
        assert program == "pytest"
        plugins = ("-p", "pytest_benchmark.plugin", "-p", "no:randomly")
        status = int(project.pytester.runpytest_subprocess(*plugins, *words).ret)
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_the_page_happens(project: FakeProject, capsys: pytest.CaptureFixture[str]) -> None:
    """Every file of the section is written and every command typed, in order: each ends with 0 and prints what is
    shown of it."""
    pytest.importorskip("sqlalchemy", reason="needs the history store: pip install 'pytest-attnperf[history]'")
    commands = 0
    for language, block in BLOCK.findall(SECTION):
        first, _, rest = block.partition("\n")
        if language in ("python", "ini"):
            path = project.path / first.removeprefix("# ")
            path.parent.mkdir(exist_ok=True)
            path.write_text(rest)
            continue
        assert (language, first[:2]) == ("console", "$ ")
        status, printed = typed(project, first.removeprefix("$ "), capsys)
        assert status == 0, f"{first}\n{printed}"
        assert missing_lines(rest.splitlines(), printed) == [], f"{first}\n{printed}"
        commands += 1
    assert commands == 6
    assert project.verdicts() == {"gate": "SAME"}


def test_its_options_exist(pytester: pytest.Pytester) -> None:
    """Every option that the section names is one of pytest-benchmark's or ours."""
    known = pytester.runpytest_subprocess("-p", "pytest_benchmark.plugin", "--help").stdout.str()
    named = set(OPTION.findall(SECTION))
    assert len(named) > 30
    assert sorted(named - set(OPTION.findall(known))) == []
