from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_attnperf.cli.commands import bisect as bisect_command
from pytest_attnperf.cli.program import build_parser
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.bisect.commit_search import BisectError
from pytest_attnperf.session.bisect.evidence import CannotMeasureError
from pytest_attnperf.testing.project import FakeProject

NODEID = "suites/test_prefill.py::test_prefill[fake.a-prefill-b1-s64-h1-d16-f16]"


def _parsed(*arguments: str) -> argparse.Namespace:
    return build_parser(["bisect"]).parse_args(["bisect", *arguments])


def _git(folder: Path, *arguments: str) -> str:
    identity = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_DATE": "2026-11-20T12:00:00+0000"}
    names = {f"GIT_{who}_{what}": f"{who}@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-C", str(folder), *arguments]
    environment = {**os.environ, **identity, **names}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A repository of nine commits in the current directory, tagged c0 to c8; their hashes, oldest first."""
    _git(tmp_path, "init", "--quiet", "--initial-branch=main")
    for number in range(9):
        _git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", f"change {number}")
        _git(tmp_path, "tag", f"c{number}")
    monkeypatch.chdir(tmp_path)
    return _git(tmp_path, "rev-list", "--reverse", "HEAD").split()


def _case(verdict: Verdict = Verdict.SAME, ratios: Sequence[float] = (), nodeid: str = NODEID) -> CaseResult:
    pairs = tuple(PairSummary(ratio, 100.0, 100 * ratio, 30, "fake") for ratio in ratios)
    key = CaseKey("prefill", "fake.a", "prefill-b1-s64-h1-d16-f16", nodeid[-2:])
    return CaseResult(key, nodeid, verdict, "dq[3] is off", reasons=("12 elements",), pairs=pairs)


def _write(path: Path, *cases: CaseResult) -> None:
    run = RunResult(RESULTS_SCHEMA, "0", "gate", "now", "pytest", "c0", None, None, cases)
    json_results.write(path, run)


class FakePytest:
    """Stands for pytest: 2 % slower from `first_slow` on. `broken` revisions end as scripted."""

    def __init__(self, commits: Sequence[str], first_slow: int) -> None:
        self.commits, self.first_slow = list(commits), first_slow
        self.broken: dict[int, str] = {}
        self.stop_at = math.inf
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str], log: Path) -> int:
        """Write results as pytest would, or only a log."""
        if len(self.commands) >= self.stop_at:
            raise KeyboardInterrupt
        self.commands.append(list(command))
        given = dict(word.split("=", 1) for word in command if word.startswith("--attnperf-") and "=" in word)
        assert given["--attnperf-against"] == f"rev:{self.commits[0]}"
        index = self.commits.index(given["--attnperf-candidate"].removeprefix("rev:"))
        if index in self.broken:
            log.write_text(self.broken[index])
            return 4
        ratio = 1.02 if index >= self.first_slow else 1.0
        ratios = [ratio * (1 + 0.0005 * (-1) ** pair) for pair in range(int(given["--attnperf-pairs"]))]
        _write(Path(given["--attnperf-results"]), _case(Verdict.UNDECIDED, ratios))
        return 1


def test_arguments() -> None:
    """Options may stand anywhere before `--`, and what follows it is pytest's, whatever it looks like."""
    for words in (["c0", "c8", NODEID, "--pairs-max", "16"], ["--pairs-max=16", "c0", "c8", NODEID]):
        options = _parsed(*words, "--", "-k", "not slow", "--threshold=9", "--")
        assert (options.good, options.bad, options.nodeid, options.pairs_max) == ("c0", "c8", NODEID, 16)
        assert options.pytest_options == ["-k", "not slow", "--threshold=9", "--"]
    options = _parsed("c0", "c8", NODEID)
    assert (options.threshold, options.confidence, options.build, options.pytest_options) == (0.5, 0.99, "", [])


@pytest.mark.parametrize(
    "words", [["c0", "c8"], ["c0", "c8", NODEID, "-k", "x"], ["c0", "c8", NODEID, "--pairs-max=x"]]
)
def test_usage_errors(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A missing argument, pytest's options without `--` and a word for a number exit 2 with the usage."""
    with pytest.raises(SystemExit) as stopped:
        _parsed(*words)
    assert stopped.value.code == 2
    assert "usage: attnperf bisect [options] GOOD BAD NODEID [-- pytest options]" in capsys.readouterr().err


def test_options_of_pytest_without_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    """An option that is not ours is named, with where options of pytest stand."""
    with pytest.raises(SystemExit):
        _parsed("c0", "c8", NODEID, "-k", "x")
    assert "unknown: -k x; give options of pytest after --" in capsys.readouterr().err


def test_culprit(commits: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The first slow commit is printed with subject and date behind a line per revision, and the exit status is 0."""
    fake = FakePytest(commits, first_slow=6)
    assert bisect_command.run(_parsed("c0", "main", NODEID), fake) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"GOOD {commits[0][:7]} (change 0, 2026-11-20)"
    assert lines[1] == f"BAD  {commits[8][:7]} (change 8, 2026-11-20)"
    assert lines[2] == "8 commits after GOOD: BAD and about 3 more are measured, 4 to 32 pairs each"
    assert re.fullmatch(
        rf"first slow commit: {commits[6][:7]} \(change 6, 2026-11-20\): \+2\.0 % \(\+1\.\d\.\.\+2\.\d\) against GOOD, "
        r"99 % sure; 4 revisions, 20 pairs, 0 s",
        lines[-1],
    )
    assert len(lines) == 3 + len(fake.commands) + 1


def test_with_the_real_pytest(
    attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the fake device a commit that is 5 % slower is found by a real pytest, and no temporary file stays."""
    folder = attnperf_project.path
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
    monkeypatch.setenv("TMPDIR", str(folder.parent))
    monkeypatch.setattr(tempfile, "tempdir", None)
    attnperf_project.script["process_sd"] = 0.001
    _git(folder, "init", "--quiet", "--initial-branch=main")
    for time_us in (100, 105):
        attnperf_project.backend("fake.a", time_us=time_us)
        _git(folder, "add", "--all")
        _git(folder, "commit", "--quiet", "-m", f"{time_us} us")
    options = _parsed("HEAD~1", "HEAD", "suites/test_prefill.py", "--pairs-max=4", "--", "-p", "no:randomly")
    assert bisect_command.run(options) == 0
    printed = capsys.readouterr().out
    assert re.search(r"first slow commit: \w+ \(105 us, 2026-11-20\): \+[45]\.\d %", printed), printed
    assert list(folder.parent.glob("attnperf-bisect-*")) == []


def test_command_line(commits: list[str]) -> None:
    """Every measurement is a pytest over the one case, interleaved, GOOD against the revision, with the build."""
    fake = FakePytest(commits, first_slow=6)
    bisect_command.run(_parsed("c0", "main", NODEID, "--build", "make -j", "--", "--attnperf-seed=3"), fake)
    command = fake.commands[0]
    assert command[:5] == [sys.executable, "-m", "pytest", NODEID, "--attnperf-seed=3"]
    results = next(word for word in command if word.startswith("--attnperf-results="))
    assert command[5:] == [
        "--attnperf",
        "--attnperf-interleave=all",
        f"--attnperf-against=rev:{commits[0]}",
        f"--attnperf-candidate=rev:{commits[8]}",
        "--attnperf-pairs=8",
        results,
        "--no-attnperf-strict",
        "--attnperf-build=make -j",
    ]
    assert not Path(results.partition("=")[2]).parent.exists()


def test_skipped_revision(commits: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A revision whose pytest leaves no results is skipped with its first error, and the range names it: exit 1."""
    fake = FakePytest(commits, first_slow=5)
    fake.broken = {4: "collecting\nERROR: candidate side: build failed with 2\nmore\n"}
    assert bisect_command.run(_parsed("c0", "main", NODEID), fake) == 1
    printed = capsys.readouterr().out
    reason = "pytest ended with 4 and left no results: ERROR: candidate side: build failed with 2"
    assert f"{commits[4][:7]} (change 4, 2026-11-20): skipped: {reason}; 8 commits left" in printed
    assert "first slow commit: one of these 2; 99 % sure" in printed
    assert f"skipped {commits[4][:7]} (change 4, 2026-11-20): {reason}" in printed


def test_no_slowdown(commits: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Equal ends are said to be so after BAD alone, and the exit status is 1."""
    fake = FakePytest(commits, first_slow=9)
    assert bisect_command.run(_parsed("c0", "main", NODEID), fake) == 1
    assert len(fake.commands) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"no slowdown between {commits[0][:7]} (change 0")


def test_interrupted(commits: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C prints the range that is known so far and removes the temporary folder; the status is 130."""
    fake = FakePytest(commits, first_slow=6)
    fake.stop_at = 2
    assert bisect_command.run(_parsed("c0", "main", NODEID), fake) == 130
    lines = capsys.readouterr().out.splitlines()
    told = lines.index("stopped; what is known so far:")
    assert lines[told + 1].startswith("first slow commit: one of these 4; 99 % sure; 2 revisions, 12 pairs")
    results = next(word for word in fake.commands[0] if word.startswith("--attnperf-results="))
    assert not Path(results.partition("=")[2]).parent.exists()


def test_bad_that_cannot_be_measured(commits: list[str]) -> None:
    """When BAD gives no ratio the end of what pytest printed is in the error."""
    fake = FakePytest(commits, first_slow=6)
    fake.broken = {8: "usage: pytest\nERROR: unknown option\n  rootdir: here\n"}
    with pytest.raises(BisectError, match=r"(?s)BAD itself .* left no results: ERROR: unknown option.*rootdir: here"):
        bisect_command.run(_parsed("c0", "main", NODEID), fake)


def test_merge_as_culprit(commits: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A merge that is the first slow commit comes with the command that searches what it brought."""
    _git(tmp_path, "checkout", "--quiet", "-b", "side", "c7")
    _git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "on side")
    _git(tmp_path, "checkout", "--quiet", "main")
    _git(tmp_path, "merge", "--quiet", "--no-ff", "-m", "merge side", "side")
    line = _git(tmp_path, "rev-list", "--first-parent", "--reverse", "HEAD").split()
    assert bisect_command.run(_parsed("c0", "main", NODEID), FakePytest(line, first_slow=9)) == 0
    short = line[9][:7]
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"it is a merge; to search its commits: attnperf bisect $(git merge-base {short}^1 {short}^2) {short}^2 "
        f"'{NODEID}'"
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [("--confidence=2", "confidence is 2"), ("--pairs-max=1", "pairs-max is 1"), ("--threshold=-1", "threshold is -1")],
)
def test_values_outside_their_range(commits: list[str], option: str, message: str) -> None:
    """A setting outside its range is a usage error, before anything is measured."""
    fake = FakePytest(commits, first_slow=6)
    with pytest.raises(UsageError, match=message):
        bisect_command.run(_parsed("c0", "main", NODEID, option), fake)
    assert fake.commands == []


def test_unknown_revision(commits: list[str]) -> None:
    """A revision that git does not know is a usage error."""
    with pytest.raises(UsageError, match="no commit 'c9' in"):
        bisect_command.run(_parsed("c0", "c9", NODEID), FakePytest(commits, first_slow=6))


def _pairs(tmp_path: Path, *cases: CaseResult) -> bisect_command.PytestPairs:
    def execute(command: Sequence[str], log: Path) -> int:
        results = next(word for word in command if word.startswith("--attnperf-results="))
        _write(Path(results.partition("=")[2]), *cases)
        return 0

    return bisect_command.PytestPairs("c0", NODEID, tmp_path, execute=execute)


def test_pairs_of_the_case(tmp_path: Path) -> None:
    """The pairs that pytest wrote come back as they are, whatever the verdict said of them."""
    for verdict in (Verdict.SAME, Verdict.SLOWER, Verdict.UNDECIDED, Verdict.NO_BASELINE, Verdict.RECORDED):
        assert [pair.ratio for pair in _pairs(tmp_path, _case(verdict, [1.0, 1.02]))("c1", 2)] == [1.0, 1.02]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (_case(Verdict.INCORRECT, [1.0]), "INCORRECT: dq[3] is off\n12 elements"),
        (_case(Verdict.SUSPICIOUS, [1.0]), "SUSPICIOUS: dq[3] is off"),
        (_case(Verdict.UNSUPPORTED), "UNSUPPORTED: dq[3] is off"),
        (_case(Verdict.SAME), "SAME: dq[3] is off"),
    ],
)
def test_results_without_a_ratio(tmp_path: Path, case: CaseResult, message: str) -> None:
    """A wrong, implausible or unsupported result, and one without pairs, give no ratio but the reason."""
    with pytest.raises(CannotMeasureError, match=re.escape(message)):
        _pairs(tmp_path, case)("c1", 2)


def test_no_case_and_several(tmp_path: Path) -> None:
    """No case is a revision that lacks it; several are a usage error that lists them."""
    with pytest.raises(CannotMeasureError, match=re.escape(f"{NODEID} selects no case of this revision")):
        _pairs(tmp_path)("c1", 2)
    cases = [_case(ratios=[1.0], nodeid=f"suites/test_a.py::test[{name}]") for name in "xy"]
    with pytest.raises(UsageError, match=r"selects 2 cases; give one of them:\n  suites/test_a.py::test\[x\]\n  su"):
        _pairs(tmp_path, *cases)("c1", 2)


def test_results_of_another_run_are_not_read(tmp_path: Path) -> None:
    """Every run has files of its own, so one that writes nothing is not answered for by the run before."""
    pairs = _pairs(tmp_path, _case(ratios=[1.0]))
    pairs("c1", 1)
    pairs.execute = lambda command, log: 3
    with pytest.raises(CannotMeasureError, match="pytest ended with 3 and left no results: it printed nothing"):
        pairs("c2", 1)
