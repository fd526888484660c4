"""`attnperf gate`: what it reads of another revision, its modes, and its errors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.cli.commands.gate import MODE_VARIABLE, SHOWN, run
from pytest_attnperf.cli.program import build_parser
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import (
    DeviceInfo,
    Verdict,
)
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.files import folder, json_results
from pytest_attnperf.reports.files.json_results import ResultsFileError
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.rejudge import findings
from tests.timed_cases import run_of, store_baselines, timed_case

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
Gate = Callable[..., int]


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Write results.json of these cases into an empty folder, which is the current one, and type `attnperf gate`."""
    for variable in ("CI", MODE_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)

    def typed(*words: str, cases: tuple[CaseResult, ...] = (), results: str = "results.json") -> int:
        if cases:
            json_results.write(tmp_path / "results.json", run_of(*cases))
        return run(build_parser(["gate"]).parse_args(["gate", "--results", results, *words]))

    return typed


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two baselines in the working tree."""
    store_baselines(tmp_path / "baselines", "fake.a", "fake.b")
    return tmp_path


def _git(folder: Path, *words: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")
    command = ["git", *identity, *words]
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(project: Path) -> Path:
    """The project's baselines committed on `main`; the working tree is a pull request's."""
    _git(project, "init", "-q")
    _git(project, "add", "baselines")
    _git(project, "commit", "-q", "-m", "base")
    _git(project, "checkout", "-q", "-b", "change")
    return project


SAME = (timed_case(100.2, "fake.a"), timed_case(100.3, "fake.b"))
SLOW = (timed_case(110.0, "fake.a"), timed_case(100.3, "fake.b"))


def test_a_slowdown_fails_with_its_reason(project: Path, gate: Gate, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1, the case, what is not known of it, and one closing line; unchanged code passes."""
    assert gate(cases=SLOW) == 1
    said = capsys.readouterr().out
    assert "SLOWER" in said
    assert "can invent samples" in said
    assert said.splitlines()[-1] == "gate (block) against the baselines of the working tree: failed: 1 slower"
    assert gate(cases=SAME) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(": passed")


@needs_git
def test_an_edited_baseline_does_not_change_what_the_base_says(
    repository: Path, gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change that stores its own slowdown passes against itself, and fails against the base revision."""
    store_baselines(repository / "baselines", "fake.a", us=110.0)
    assert gate(cases=SLOW) == 0
    assert gate("--against", "main", cases=SLOW) == 1
    commit = _git(repository, "rev-parse", "main")[:12]
    assert f"against the baselines of main ({commit}): failed: 1 slower" in capsys.readouterr().out
    _git(repository, "commit", "-qam", "my own baseline")
    assert gate("--against", "main...HEAD") == 1
    assert gate("--against", "change") == 0


@needs_git
def test_a_deleted_baseline_and_its_case_are_missed(
    repository: Path, gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without entry and case nothing is missed in the tree; against the base it is a finding, and fails strict."""
    shutil.rmtree(repository / "baselines")
    store_baselines(repository / "baselines", "fake.b")
    kept = (timed_case(100.3, "fake.b"),)
    assert gate("--strict", cases=kept) == 0
    assert gate("--strict", "--against", "main") == 1
    assert "prefill/fake.a/w has a baseline but no case" in capsys.readouterr().out
    assert gate("--strict", "--against", "main", "--filtered") == 0
    assert gate("--against", "main") == 0


@needs_git
def test_no_folder_takes_a_revisions_place(repository: Path, gate: Gate) -> None:
    """A folder that a change calls `main` is not what --against main reads; dir: and ./ say that a folder is meant."""
    store_baselines(repository / "main" / "baselines", "fake.a", "fake.b", us=110.0)
    assert gate("--against", "main", cases=SLOW) == 1
    for named in ("dir:main", "./main", str(repository / "main"), "./main/baselines"):
        assert gate("--against", named) == 0


@needs_git
def test_a_link_in_the_base_is_refused(repository: Path, gate: Gate) -> None:
    """What a symbolic link points at is not what was reviewed; neither is a folder that is one itself."""
    (repository / "baselines" / "fake" / "fake1" / "decode.json").symlink_to("/etc/passwd")
    _git(repository, "add", "baselines")
    _git(repository, "commit", "-q", "-m", "a link")
    with pytest.raises(UsageError, match="other than regular files"):
        gate("--against", "change", cases=SAME)
    (repository / "linked").symlink_to("baselines")
    _git(repository, "add", "linked")
    _git(repository, "commit", "-q", "-m", "another")
    with pytest.raises(UsageError, match="other than regular files"):
        gate("--against", "change", "--baselines", "linked", cases=SAME)


@needs_git
def test_only_baselines_are_read_of_the_base(
    repository: Path, tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other files, odd names and what is marked export-ignore change nothing; too large a folder is refused."""
    stored = repository / "baselines"
    (stored / "fake" / "fake1" / "-odd name.json").write_text("{")
    (stored / "README.md").write_text("not JSON")
    (repository / ".gitattributes").write_text("baselines export-ignore\n")
    _git(repository, "add", ".gitattributes", "baselines")
    _git(repository, "commit", "-q", "-m", "more files")
    assert gate("--against", "change", cases=SLOW) == 1
    monkeypatch.setattr(findings, "BYTES_MAX", 100)
    with pytest.raises(UsageError, match="larger than 100 bytes"):
        gate("--against", "change")
    monkeypatch.setattr(findings, "FILES_MAX", 1)
    with pytest.raises(UsageError, match="at most 1 are read"):
        gate("--against", "change")


@needs_git
def test_a_base_that_is_none_is_refused(repository: Path, gate: Gate) -> None:
    """A revision that does not exist, one without the folder, a folder outside of the repository."""
    (repository / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no commit 'mian'.*close: main"):
        gate("--against", "mian", cases=SAME)
    with pytest.raises(UsageError, match="has no folder stored; name it with --baselines"):
        gate("--against", "main", "--baselines", "stored")
    with pytest.raises(UsageError, match="is no folder in the repository"):
        gate("--against", "main", "--baselines", "../baselines")
    with pytest.raises(UsageError, match="holds no baselines"):
        gate("--against", "dir:empty")


def test_without_git_only_a_folder_can_be_the_base(project: Path, gate: Gate) -> None:
    """A folder's name is enough where there is no repository; another name is refused."""
    (project / "checkout").mkdir()
    (project / "baselines").rename(project / "checkout" / "baselines")
    assert gate("--against", "checkout", cases=SAME) == 0
    with pytest.raises(UsageError, match="is not in a git repository"):
        gate("--against", "main")


def test_reasons_are_printed_of_the_worst(project: Path, gate: Gate, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody else says why a case fails here: figures of the first ten, a line of what is not resolved, and how many
    more there are."""
    broken = tuple(replace(timed_case(100.0, f"fake.{number}"), checks=()) for number in range(12))
    assert gate("--filtered", cases=(*SLOW, *broken, timed_case(100.0, "fake.new"))) == 1
    said = capsys.readouterr().out
    assert said.count("ERROR: prefill/fake.") == SHOWN
    assert "no output was compared with a reference" in said
    assert "and 3 more failing cases" in said
    assert "NO_BASELINE: 1 case has no baseline on fake/fake1\n  prefill/fake.new/w\nstore with:\npytest " in said
    assert gate("--filtered", cases=SLOW) == 1
    assert "second look: 110" in capsys.readouterr().out


def test_modes_decide_what_a_failure_does(
    project: Path, gate: Gate, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """warn prints the same and exits 0; shadow prints one line; the variable is the default, the option wins."""
    assert gate("--mode", "warn", cases=SLOW) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("would fail: 1 slower")
    monkeypatch.setenv(MODE_VARIABLE, "Shadow")
    assert gate() == 0
    assert capsys.readouterr().out == (
        "gate (shadow): would fail: 1 slower: 1 slower, 1 same, against the baselines of the working tree\n"
    )
    assert gate("--mode", "block") == 1
    monkeypatch.setenv(MODE_VARIABLE, "loud")
    with pytest.raises(UsageError, match="ATTNPERF_GATE is 'loud'; set it to one of: block, warn, shadow"):
        gate()


def test_strict_fails_by_what_was_not_gated(
    project: Path, gate: Gate, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strict is the default where CI is set: unresolved cases, findings, and a run that compared nothing."""
    new = (*SAME, timed_case(100.0, "fake.new"))
    assert gate(cases=new) == 0
    monkeypatch.setenv("CI", "true")
    assert gate() == 1
    assert "strict: 1 cases are NO_BASELINE" in capsys.readouterr().out
    assert gate("--no-strict") == 0
    assert gate("--filtered", cases=new[2:]) == 1
    assert "strict: gated 0 of 1" in capsys.readouterr().out


def test_an_empty_file_does_not_pass_behind_a_full_one(
    project: Path, gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each file must have gated something, whatever device it claims."""
    empty = replace(run_of(), device=DeviceInfo("cpu", "fake", "unheard-of"))
    json_results.write(project / "empty.json", empty)
    json_results.write(project / "results.json", run_of(*SAME))
    typed = ["gate", "--results", "empty.json", "results.json", "--filtered", "--strict", "--markdown", "out.md"]
    assert run(build_parser(["gate"]).parse_args(typed)) == 1
    assert "failed: strict: gated 0 of 0 in empty.json" in capsys.readouterr().out
    text = (project / "out.md").read_text()
    assert text.startswith("### attnperf: FAILED: ")
    assert "No case failed, but the gate did: strict: gated 0 of 0 in empty.json." in text


def test_results_of_another_commit_fail_strict_or_not(
    project: Path, gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    """An honest file of an older commit is not handed in for this one."""
    json_results.write(project / "results.json", replace(run_of(*SAME), commit="a" * 12))
    assert gate("--commit", "b" * 40, "a" * 40) == 0
    assert gate("--commit", "b" * 40, "--no-strict") == 1
    assert "failed: of another commit: the results are of 'aaaaaaaaaaaa', expected bbbb" in capsys.readouterr().out


def test_what_must_be_there_is_asked_for(project: Path, gate: Gate, capsys: pytest.CaptureFixture[str]) -> None:
    """A device, architectures: findings, by which strict runs fail."""
    assert gate("--strict", "--device", "fake/fake1", cases=SAME) == 0
    assert gate("--strict", "--device", "gfx942/mi300x") == 1
    assert gate("--strict", "--arch", "gfx942, gfx950") == 1
    assert "failed: strict: 3 findings" in capsys.readouterr().out


@needs_git
def test_pairs_must_be_against_a_commit_of_the_base(
    repository: Path, gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    """A measuring job that compares a change with itself proves nothing; of a folder nobody knows the history."""
    base = _git(repository, "rev-parse", "--short=8", "main").strip()
    _git(repository, "commit", "-q", "--allow-empty", "-m", "change")
    own = _git(repository, "rev-parse", "--short=8", "HEAD").strip()
    pairs = tuple(PairSummary(1.0 + share, 100.0, 100.0, 1, "host", (1.0 + share,)) for share in (0.0, 1e-4, 2e-4))
    for label, status in ((f"main ({base})", 0), (f"HEAD ({own})", 1), ("main (deadbeef)", 1)):
        cases = tuple(replace(case, pairs=pairs, against=label) for case in SAME)
        assert gate("--strict", "--against", "main", cases=cases) == status, label
    assert "measured against another base: 'main (deadbeef)'" in capsys.readouterr().out
    assert gate("--strict", "--against", "./baselines") == 0


def test_the_policy_is_the_bases_unless_it_is_given(project: Path, gate: Gate) -> None:
    """--threshold, --floor-us and --fail-on replace what is stored; a verdict that cannot fail is refused."""
    assert gate("--threshold", "20", cases=SLOW) == 0
    assert gate("--floor-us", "50") == 0
    assert gate("--fail-on", "incorrect, error") == 0
    with pytest.raises(UsageError, match="FASTER"):
        gate("--fail-on", "FASTER")


def test_what_is_judged_can_be_written(project: Path, gate: Gate) -> None:
    """--json is a results file with the judge's verdicts, of each of several files one."""
    assert gate("--json", "judged.json", cases=SLOW) == 1
    judged = json_results.decode((project / "judged.json").read_bytes(), "judged.json")
    assert [case.verdict for case in judged.cases] == [Verdict.SLOWER, Verdict.SAME]
    assert judged.cases[0].fails
    shutil.copy("results.json", "again.json")
    assert gate("again.json", "--json", "both.json") == 1
    assert (project / "both-2.json").is_file()


def test_reports_are_written(
    project: Path, gate: Gate, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markdown, JUnit and a folder of all reports; `--markdown -` prints it, and the verdict beside it."""
    monkeypatch.setattr(folder, "write_html", lambda *args, **options: None)  # seconds, and libraries of an extra
    assert gate("--markdown", "c.md", "--junit", "j.xml", "--report", "out", cases=SLOW) == 1
    assert "SLOWER" in (project / "c.md").read_text()
    assert b"<failure" in (project / "j.xml").read_bytes()
    assert {"results.json", "report.md", "junit.xml"} <= {path.name for path in (project / "out").iterdir()}
    capsys.readouterr()
    assert gate("--markdown", "-") == 1
    printed = capsys.readouterr()
    assert printed.out == (project / "c.md").read_text()
    assert "failed: 1 slower" in printed.err


def test_a_file_that_cannot_be_judged_is_refused(project: Path, gate: Gate) -> None:
    """None, no file, too large, no results, NaN in it, or an incomplete run: each with its reason."""
    with pytest.raises(UsageError, match=r"absent\.json is no file"):
        gate(results="absent.json")
    with pytest.raises(UsageError, match="baselines is no file"):
        gate(results="baselines")
    with pytest.raises(UsageError, match=r"has [\d,]+ bytes; at most 10 are read; --max-bytes allows more"):
        gate("--max-bytes", "10", cases=SAME)
    text = (project / "results.json").read_text()
    for content in ("{}", "[" * 100_000, re.sub(r'"mean_us": *[0-9.]+', '"mean_us": NaN', text), "\x00"):
        (project / "results.json").write_text(content)
        with pytest.raises(ResultsFileError, match=r"results\.json"):
            gate()
    json_results.write(project / "results.json", replace(run_of(*SAME), selected=3))
    with pytest.raises(UsageError, match=r"results\.json is incomplete: 2 of 3"):
        gate()


def test_hostile_names_do_not_reach_the_terminal(project: Path, gate: Gate, capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences and line breaks of a results file are not printed."""
    odd = replace(timed_case(100.2, "fake.\x1b[31m\nPASSED"), summary="\x1b[2J", notes=("\x1b]0;x\x07",))
    gate("--filtered", cases=(odd,))
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\nPASSED" not in said
