"""`attnperf baselines accept`: which case is meant, who accepts, and the texts that are kept."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from pytest_attnperf.baselines.acceptance import REASON_MAX, Acceptance, find_problem, require_text
from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.baselines.writing import NewEntry, Replacement, entry_from
from pytest_attnperf.cli.commands.baselines.accept import choose_case, git_name, write_all
from pytest_attnperf.cli.program import main
from pytest_attnperf.errors import BaselineError, UsageError
from pytest_attnperf.records import (
    CaseKey,
    CheckReport,
    ErrorFigures,
    Fingerprint,
    Measurement,
    ProcessSummary,
    Verdict,
)
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.session.accept.accepting import Accepted
from pytest_attnperf.testing.sample_runs import sample_run


def named(run: RunResult, backend: str, label: str = "") -> CaseResult:
    """A case of that backend."""
    key = CaseKey("prefill", backend, "prefill-b1-s64-h1-d16-f16", label)
    return dataclasses.replace(run.cases[0], key=key, nodeid=f"suites/test_p.py::test_p[{backend}{label}]")


@pytest.fixture
def results() -> RunResult:
    """Cases one of whose names is a part of another's, and one compiled kernel."""
    run = sample_run(1)
    cases = tuple(named(run, *name) for name in (("ck",), ("ck", "wide"), ("triton.flash",)))
    code = CodeResult(CaseKey("code_objects", "triton.flash_kernel", "d64"), "c.py::test_c[k]", Verdict.SAME, "")
    return dataclasses.replace(run, cases=cases, code=(code,))


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("prefill/ck/prefill-b1-s64-h1-d16-f16", ""),
        ("ck/prefill-b1-s64-h1-d16-f16", ""),
        ("suites/test_p.py::test_p[ckwide]", "wide"),
        ("/wide", "wide"),
    ],
)
def test_a_case_is_named_whole_or_by_a_part(results: RunResult, name: str, label: str) -> None:
    """A key, an entry or a node id means that case even where it is a part of another; a part must be of one only."""
    assert choose_case(results, name).key == named(results, "ck", label).key


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ck", "'ck' matches 2 cases: prefill/ck/prefill-.*, prefill/ck/.*/wide; give more of the name"),
        (" ", "a CASE is empty; give a key, a node id"),
        ("nothing", "'nothing' matches none of these 3 cases; the first are: prefill/ck/"),
        ("flash_kernel", "is a compiled kernel, which has no time: .* --attnperf-accept"),
    ],
)
def test_no_case_and_several_are_refused(results: RunResult, name: str, text: str) -> None:
    """The message lists what there is."""
    with pytest.raises(UsageError, match=text):
        choose_case(results, name)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("  ", "is empty"),
        ("a\nb", "is not one line of printable characters"),
        ("a\x1b[31m", "is not one line of printable characters"),
        ("a\u202eb", "is not one line of printable characters"),
        ("a" * (REASON_MAX + 1), f"has {REASON_MAX + 1} characters; at most {REASON_MAX} are stored"),
    ],
)
def test_a_reason_is_one_printable_line(reason: str, text: str) -> None:
    """A reason with line breaks, escape sequences or turned writing is refused when given, and when read again."""
    with pytest.raises(UsageError, match=text):
        require_text("--reason", reason, REASON_MAX)
    assert text in find_problem(Acceptance(reason.strip(), "Ada", "2026-12-01", "7 processes", 1.0))
    assert require_text("--reason", " größer, but right ", REASON_MAX) == "größer, but right"


def test_git_says_who_accepts() -> None:
    """The author is git's user.name; without git or a name the message asks for --author."""

    def answers(code: int, text: str) -> str:
        return git_name(lambda command, **_: subprocess.CompletedProcess(command, code, text))

    def missing(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        raise FileNotFoundError("git")

    assert answers(0, "Ada L.\n") == "Ada L."
    for nameless in (lambda: answers(1, ""), lambda: answers(0, "\n"), lambda: git_name(missing)):
        with pytest.raises(UsageError, match="is not set: add --author NAME"):
            nameless()


def test_errors_are_one_line_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file, a file that is none, and a result without an entry end with 2, and nothing is written."""
    path = tmp_path / "results.json"
    asked = ["--reason", "why", "--author", "Ada", "--baselines", str(tmp_path / "baselines")]
    run = sample_run(1, verdicts=(Verdict.SLOWER,))
    refused = []
    for data in (None, b"[]", json_results.encode(run)):
        if data is not None:
            path.write_bytes(data)
        refused.append(main(["baselines", "accept", "prefill", "--results", str(path), *asked]))
        refused.append(capsys.readouterr().err)
    assert refused[::2] == [2, 2, 2]
    assert "is no file; it takes what pytest --attnperf wrote" in refused[1]
    assert "it is not a results file" in refused[3]
    assert "attnperf: " in refused[5]
    assert not (tmp_path / "baselines").exists()


def test_of_several_suites_all_or_none_is_written(results: RunResult, tmp_path: Path) -> None:
    """A file that must not be rewritten keeps the other suite's entry out, too; a dry run finds it as well."""
    key = results.cases[0].key
    cases = {suite: dataclasses.replace(results.cases[0], key=dataclasses.replace(key, suite=suite)) for suite in "ab"}
    report = CheckReport((ErrorFigures("seed 1", "out", 1e-3, 2e-3, 1e-4, 2e-4, elements=64),))
    process = ProcessSummary(1.0, 1.0, 1.0, (1.0,), 1, "graph")
    here = Fingerprint({}, {})
    entry = entry_from(NewEntry(Measurement((process,), (report,)), {}, here, {}, "2026-12-01", "0.1.0"))
    told = Acceptance("why", "Ada", "2026-12-01", "7 processes", 1.0)
    accepted = dict.fromkeys(cases, Accepted(Replacement(None, entry, here, {}), told))
    store = BaselineStore(tmp_path)
    (path,) = write_all(results, {"a": cases["a"]}, accepted, store, dry_run=False)
    path.rename(path.with_name("b.json"))
    path.with_name("b.json").write_text(path.with_name("b.json").read_text().replace('"suite": "a"', '"suite": "b"'))
    for dry_run in (True, False):
        with pytest.raises(BaselineError, match=r"b\.json: entry .* has changed since it was read"):
            write_all(results, cases, accepted, store, dry_run=dry_run)
        assert not path.exists()
    assert write_all(results, {"a": cases["a"]}, accepted, store, dry_run=True) == []
    assert not path.exists()


def test_the_help_names_examples_and_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    """The options and both closing sections are there."""
    with pytest.raises(SystemExit):
        main(["baselines", "accept", "--help"])
    said = capsys.readouterr().out
    for part in ("--results FILE", "--reason TEXT", "--dry-run", "examples:", "exit status: 0 stored"):
        assert part in said
