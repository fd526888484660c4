"""`attnperf profile --html`, `--open` and `--trace`, as typed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main
from tests.cli.commands.test_profile import GEMM, profiled_results, write_trace

Typed = Callable[..., tuple[int, str, str]]
CLAIMS = Path(__file__).parents[2] / "data" / "claims" / "corrected.json"


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Type `attnperf profile ARGUMENTS`: exit status, output and messages."""
    monkeypatch.setenv("COLUMNS", "120")

    def type_command(*arguments: object) -> tuple[int, str, str]:
        status = main(["profile", *map(str, arguments)])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return type_command


def test_a_page_is_written_besides_the_text(typed: Typed, tmp_path: Path) -> None:
    """`--html FILE` says where the page is, and changes nothing that is printed."""
    trace = write_trace(tmp_path / "x_kernel_trace.csv")
    plain = typed(trace)
    status, out, err = typed(trace, "--html", tmp_path / "p.html")
    assert (status, out) == plain[:2]
    assert err == f"written: {tmp_path / 'p.html'}\n"
    page = (tmp_path / "p.html").read_text()
    assert f"<h1>Profile {trace}</h1>" in page
    assert GEMM in page
    assert "ui.perfetto.dev" in page


def test_a_page_is_opened(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--open` without a file writes into the folder of pages; --json prints JSON all the same."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    monkeypatch.chdir(tmp_path)
    status, out, _ = typed(write_trace(tmp_path / "x_kernel_trace.csv"), "--open", "--json")
    assert status == 0
    assert json.loads(out)["format"] == 1
    assert opened == [(tmp_path / ".attnperf" / "pages" / "profile.html").as_uri()]


def test_what_binds_a_kernel_is_on_the_page(typed: Typed, tmp_path: Path) -> None:
    """`--workload` adds the bars, the roofline and the reasons."""
    trace = write_trace(tmp_path / "x_kernel_trace.csv")
    work = "flash=prefill-b1-s512-h8-d64-f16-causal"
    status, _, _ = typed(trace, "--workload", work, "--device", "MI300X", "--html", tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert status == 0
    assert "What binds the kernels" in page
    assert "Roofline" in page


def test_two_profiles_are_a_page(typed: Typed, tmp_path: Path) -> None:
    """`--against` writes families before and after, and the kernels that changed."""
    before = write_trace(tmp_path / "a" / "x_kernel_trace.csv")
    after = write_trace(tmp_path / "b" / "x_kernel_trace.csv", gemm_ns=50_000)
    status, out, _ = typed(before, "--against", after, "--html", tmp_path / "p.html")
    assert status == 0
    assert "GPU time per pass" in out
    page = (tmp_path / "p.html").read_text()
    assert "Families before and after" in page
    assert "-50.0 %" in page


@pytest.mark.parametrize(("alone", "expected"), [(True, 0), (False, 1)])
def test_claims_are_on_the_page(typed: Typed, tmp_path: Path, alone: bool, expected: int) -> None:
    """`--claims` adds a table of verdicts, without a profile and with one, which contradicts some of these."""
    path = [] if alone else [write_trace(tmp_path / "x_kernel_trace.csv")]
    status, _, _ = typed(*path, "--claims", CLAIMS, "--html", tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert status == expected
    assert "every claim and its verdict" in page
    assert ("Where the time goes" in page) is not alone


def test_cases_are_a_page(typed: Typed, tmp_path: Path) -> None:
    """A results.json gives what binds each case, and its kernels."""
    results = profiled_results(tmp_path / "results.json")
    status, _, _ = typed(results, "--html", tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert status == 0
    assert "What binds each case" in page
    assert "flash_fwd" in page


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_trace_is_written(typed: Typed, tmp_path: Path, name: str) -> None:
    """`--trace FILE` counts its dispatches and says where to open it."""
    status, _, err = typed(write_trace(tmp_path / "x_kernel_trace.csv"), "--trace", tmp_path / name)
    assert status == 0
    assert err == f"written: {tmp_path / name}, 60 dispatches; open it at https://ui.perfetto.dev\n"
    data = (tmp_path / name).read_bytes()
    events = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 60 + 5


def test_traces_that_cannot_be_are_refused(typed: Typed, tmp_path: Path) -> None:
    """Another ending, two profiles, no profile, and durations without start times; each error names the option."""
    trace, results = write_trace(tmp_path / "x_kernel_trace.csv"), profiled_results(tmp_path / "results.json")
    out = tmp_path / "t.json"
    for arguments, said in (
        ((trace, "--trace", tmp_path / "t.txt"), "the name must end in .json or .json.gz"),
        ((trace, "--against", trace, "--trace", out), "--trace is for one profile only: drop --against"),
        (("--claims", CLAIMS, "--trace", out), "needs a PATH with a profiler's trace"),
        ((results, "--trace", out), "holds durations without start times; give a profiler's trace"),
    ):
        status, printed, err = typed(*arguments)
        assert (status, printed) == (2, "")
        assert said in err
    assert not out.exists()
