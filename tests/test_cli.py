from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf import __version__
from pytest_attnperf.cli import COMMANDS, main
from pytest_attnperf.records import CaseKey, DeviceInfo, Verdict
from pytest_attnperf.reports import json_results
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

WORKLOAD = "prefill-b1-s64-h1-d16-f16"
Written = Callable[..., Path]


def _case(suite: str, verdict: Verdict, ratio: float, *, fails: bool) -> CaseResult:
    key = CaseKey(suite, "fake.a", WORKLOAD)
    return CaseResult(
        key, "test_prefill", verdict, "", fails=fails, median_us=100 * ratio, baseline_us=100.0, ratio=ratio
    )


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Writes the results.json of a gating run over two suites; `fails` says whether its last case failed."""

    def write(*, fails: bool) -> Path:
        last = Verdict.SLOWER if fails else Verdict.SAME
        ratio = 1.061 if fails else 1.0
        run = RunResult(
            schema=RESULTS_SCHEMA,
            version=__version__,
            mode="gate",
            started="2026-01-01T00:00:00Z",
            command="pytest --attnperf",
            commit="c0",
            device=DeviceInfo("cpu", "fake", "fake1"),
            fingerprint=None,
            cases=(_case("prefill", Verdict.SAME, 1.0, fails=False), _case("varlen", last, ratio, fails=fails)),
            gated=2,
            selected=2,
        )
        path = tmp_path / "results.json"
        json_results.write(path, run)
        return path

    return write


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`attnperf --version` prints the package's version."""
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"pytest-attnperf {__version__}\n"


def test_report_of_a_clean_run(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    """`attnperf report FILE` prints a table per suite and the closing line, and exits 0 where nothing failed."""
    path = written(fails=False)
    assert main(["report", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line in ("prefill", "varlen")] == ["prefill", "varlen"]
    assert sum("fake.a" in line and "SAME" in line for line in lines) == 2
    assert lines[-2] == "2 same on fake/fake1"
    assert lines[-1] == f"results: {path}"


def test_report_of_a_failed_run(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    """A failed case makes the exit status 1, and its row says by how much."""
    assert main(["report", str(written(fails=True))]) == 1
    printed = capsys.readouterr().out
    assert "+6.1 %" in printed
    assert "1 slower, 1 same on fake/fake1" in printed


def _newer(text: str) -> str:
    return text.replace(f'"schema": {RESULTS_SCHEMA}', f'"schema": {RESULTS_SCHEMA + 1}')


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_newer, f"field 'schema' is {RESULTS_SCHEMA + 1}, this version reads up to {RESULTS_SCHEMA}; upgrade"),
        (lambda text: text[: len(text) // 2], "is no results file of this version"),
        (lambda text: "[]", "has no integer field 'schema'"),
    ],
)
def test_unreadable_results(
    written: Written, capsys: pytest.CaptureFixture[str], change: Callable[[str], str], message: str
) -> None:
    """A file that cannot be read exits 2 with one line that names it, and prints no table."""
    path = written(fails=False)
    path.write_text(change(path.read_text()))
    assert main(["report", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"attnperf: {path}")
    assert message in printed.err


def test_a_missing_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """No such file: exit status 2, the path in the message."""
    assert main(["report", str(tmp_path / "absent.json")]) == 2
    assert "absent.json" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["explode"], ["report"]])
def test_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No command, an unknown command and a missing file name exit 2 with the usage."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: attnperf" in capsys.readouterr().err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`attnperf --help` lists what can be typed, and says of `worker` that it is not."""
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert all(name in printed for name in COMMANDS)
    assert "worker serve a pytest of another tree or machine over stdin and stdout; not typed by hand" in printed


def test_a_worker_needs_none_of_our_dependencies() -> None:
    """A far interpreter that has pytest only can run `attnperf worker`: no command imports msgspec when declared."""
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['msgspec', 'tabulate', 'filelock', 'torch']))\n"
        "from pytest_attnperf.cli import main\n"
        "sys.exit(main(['worker']))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], input="", capture_output=True, text=True, check=False)
    assert result.stderr.startswith("attnperf: standard input ended before the start line")
    assert result.returncode == 2


def test_an_error_repaints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The name of a file that is not there may hold an escape sequence."""
    assert main(["report", "no\x1b[2Jfile.json"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("attnperf: ")
    assert "\x1b" not in said
