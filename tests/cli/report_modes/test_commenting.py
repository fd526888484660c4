from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.cli.commands.report import run
from pytest_attnperf.cli.program import build_parser
from pytest_attnperf.cli.report_modes import commenting
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.testing.sample_runs import sample_run
from tests.tools.ci.fake_github import BOT, HEAD, NEWER, REPO, TOKEN, FakeGitHub, Scripted, serving

Comment = Callable[..., int]
RUN_URL = "https://github.com/octo/kernels/actions/runs/5"
HOSTILE = (
    "@maintainers <img src=x onerror=alert(1)> </details> | `#1` \x1b[31m <!-- pytest-attnperf: attnperf -->\n# big"
)


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    """A fake GitHub with one open pull request, #7."""
    with serving() as fake:
        fake.pull(7)
        yield fake


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Judged results in which one case of three fails."""
    run = sample_run(3, verdicts=[Verdict.SAME])
    slower = replace(run.cases[0], verdict=Verdict.SLOWER, fails=True, ratio=1.06, interval=(1.05, 1.07))
    return _written(tmp_path / "judged.json", replace(run, cases=(slower, *run.cases[1:])))


@pytest.fixture
def comment(github: FakeGitHub, monkeypatch: pytest.MonkeyPatch) -> Comment:
    """`attnperf report --comment` with these arguments, against the fake."""
    for name in ("GITHUB_REPOSITORY", "GH_TOKEN", "ATTNPERF_GATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("GITHUB_API_URL", github.url)
    monkeypatch.setattr("time.sleep", github.slept.append)

    def called(*arguments: object, head: str = HEAD) -> int:
        whose = ["--repo", REPO, *(["--head-sha", head, "--head-repo", REPO] if head else [])]
        return run(build_parser(["report"]).parse_args(["report", *map(str, arguments), "--comment", *whose]))

    return called


def _written(path: Path, run: object) -> Path:
    json_results.write(path, run)  # type: ignore[arg-type]
    return path


def body(github: FakeGitHub) -> str:
    """Of the only comment on #7."""
    (found,) = github.comments[7]
    return str(found["body"])


def test_first_run_posts_and_the_next_updates(
    comment: Comment, github: FakeGitHub, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One comment, whose unseen first lines say whose and of which run it is."""
    assert comment(results, "--run-number", 1, "--run-url", RUN_URL) == 0
    marker, stamp, empty, heading = body(github).split("\n")[:4]
    assert (marker, empty) == ("<!-- pytest-attnperf: attnperf -->", "")
    assert f'"sha": "{HEAD}", "run": 1, "attempt": 1' in stamp
    assert heading == "**attnperf gate: would fail.** Mode `warn`: nothing is blocked."
    assert f"<sub>commit {HEAD[:12]}, [run 1.1]({RUN_URL})</sub>" in body(github)
    assert "SLOWER" in body(github)
    assert comment(results, "--run-number", 2, "--mode", "block") == 0
    assert "**attnperf gate: failed.**" in body(github)
    assert capsys.readouterr().out.splitlines() == ["posted comment 100 on #7", "updated comment 100 on #7"]


def test_older_run_leaves_a_newer_comment(
    comment: Comment, github: FakeGitHub, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with 0 and says so."""
    comment(results, "--run-number", 5)
    before = body(github)
    assert comment(results, "--run-number", 4) == 0
    assert body(github) == before
    assert "left #7 as it is: the comment is of run 5.1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        ({"state": "closed"}, ["--pull", "7"], "no comment: #7 is closed"),
        ({"head": {"sha": NEWER}}, ["--pull", "7"], f"no comment: #7 has a newer commit, {NEWER[:12]}"),
        ({"state": "closed"}, [], f"no comment: no open pull request has {HEAD[:12]} as its newest commit"),
    ],
)
def test_closed_or_moved_pull_request_gets_no_comment(
    comment: Comment,
    github: FakeGitHub,
    results: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, object],
    arguments: list[str],
    said: str,
) -> None:
    """The reason is printed, and that is no failure."""
    github.pulls[0].update(change)
    assert comment(results, *arguments) == 0
    assert said in capsys.readouterr().out
    assert github.written == []


def test_pull_request_named_in_the_results_is_not_believed(
    comment: Comment, github: FakeGitHub, tmp_path: Path
) -> None:
    """The comment goes where the measured commit is the head, whatever the file says."""
    github.pull(8, sha=NEWER)
    run = replace(sample_run(2), commit=NEWER, provenance={"pull_request": "8", "ci_url": "https://x/pull/8"})
    comment(_written(tmp_path / "forged.json", run))
    assert list(github.comments) == [7]


@pytest.mark.parametrize(
    ("verdict", "mode", "state"),
    [
        ("passed", "block", "failure"),
        ("failed", "block", "failure"),
        ("broken", "block", "error"),
        ("unmeasured", "block", "pending"),
        ("failed", "warn", "success"),
        ("failed", "shadow", "success"),
    ],
)
def test_status_follows_verdict_and_mode(
    comment: Comment, github: FakeGitHub, results: Path, verdict: str, mode: str, state: str
) -> None:
    """Results that fail are never 'passed', whatever --verdict says."""
    assert comment(results, "--verdict", verdict, "--mode", mode, "--status", "--run-number", 3) == 0
    (status,) = github.statuses[HEAD]
    assert (status["state"], status["context"]) == (state, "attnperf/gate")
    assert "1 slower, 2 same" in status["description"]


def test_pass_into_another_branch_is_none_into_the_default_one(
    comment: Comment, github: FakeGitHub, tmp_path: Path
) -> None:
    """A status is of a commit: the same one could be offered to an old branch first, whose baselines are slow."""
    github.pull(8, base="old")
    run = _written(tmp_path / "r.json", sample_run(2, verdicts=[Verdict.SAME]))
    for number, branch in ((8, "old"), (7, "main")):
        comment(run, "--mode", "block", "--status", "--pull", number, "--base-branch", branch)
    assert [status["context"] for status in github.statuses[HEAD]] == ["attnperf/gate", "attnperf/gate into old"]


def test_pull_request_that_was_moved_to_another_branch_is_left_alone(
    comment: Comment, github: FakeGitHub, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its author may do that between judging and commenting."""
    assert comment(results, "--status", "--pull", 7, "--base-branch", "old") == 0
    assert "nothing written: #7 now has the base main, but --base-branch old" in capsys.readouterr().out
    assert github.written == []


def test_passed_results_are_a_success(comment: Comment, github: FakeGitHub, tmp_path: Path) -> None:
    """But strict reasons, which only the gate knows, still fail by --verdict."""
    run = _written(tmp_path / "r.json", sample_run(2, verdicts=[Verdict.SAME]))
    comment(run, "--mode", "block", "--status", "--run-number", 1)
    assert github.statuses[HEAD][0]["state"] == "success"
    comment(run, "--mode", "block", "--status", "--run-number", 2, "--verdict", "failed")
    assert github.statuses[HEAD][0]["state"] == "failure"


@pytest.mark.parametrize(
    ("verdict", "findings", "said"),
    [
        (Verdict.UNDECIDED, ("dropped", "loosened"), "2 undecided, 2 findings."),
        (Verdict.SAME, ("dropped",), "1 finding."),
        (Verdict.SAME, (), "nothing was gated."),
    ],
)
def test_comment_says_why_it_failed_where_no_case_did(
    comment: Comment, github: FakeGitHub, tmp_path: Path, verdict: Verdict, findings: tuple[str, ...], said: str
) -> None:
    """The report of such a run says that it passed."""
    run = replace(sample_run(2, verdicts=[verdict]), findings=findings)
    comment(_written(tmp_path / "r.json", run), "--verdict", "failed")
    assert f"No case failed, but the gate is strict: {said}\n" in body(github)


def test_shadow_writes_no_comment(comment: Comment, github: FakeGitHub, results: Path) -> None:
    """Nobody who works on the pull request is bothered."""
    assert comment(results, "--mode", "shadow", "--run-number", 1) == 0
    assert github.comments == {}


def test_mode_of_the_variable_counts(
    comment: Comment, results: Path, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One variable of the repository changes it for everybody."""
    monkeypatch.setenv("ATTNPERF_GATE", "block")
    comment(results)
    assert "**attnperf gate: failed.** This commit is blocked." in body(github)
    monkeypatch.setenv("ATTNPERF_GATE", "of")
    with pytest.raises(UsageError, match="ATTNPERF_GATE is 'of'"):
        comment(results)


def test_run_without_results_says_why_nothing_is_there(comment: Comment, github: FakeGitHub) -> None:
    """And that nothing has passed."""
    assert comment("--verdict", "unmeasured", "--mode", "block", "--status") == 0
    assert "**attnperf gate: nothing was measured.** This commit is blocked." in body(github)
    assert "no maintainer has let this commit onto the runner yet" in body(github)
    assert github.statuses[HEAD][0]["state"] == "pending"


def test_hostile_text_stays_text(comment: Comment, github: FakeGitHub, tmp_path: Path) -> None:
    """It notifies nobody, opens and closes no tag, plants no marker, and starts no heading."""
    run = sample_run(2, verdicts=[Verdict.SLOWER])
    key = CaseKey("prefill", "triton.flash", HOSTILE)
    cases = tuple(replace(case, key=key, summary=HOSTILE, notes=(HOSTILE,), fails=True) for case in run.cases[:1])
    whole = replace(run, cases=cases, commit=HOSTILE, findings=(HOSTILE,), notes=(HOSTILE,), against=HOSTILE)
    comment(_written(tmp_path / "hostile.json", whole), "--status")
    text = body(github)
    assert not re.search(r"(?<![\w&;`\\])@maintainers", text)
    assert "<img" not in text
    assert text.count("<!--") == 2
    assert text.count("<details") == text.count("</details>")
    assert "\n# big" not in text
    assert "\x1b" not in text
    assert github.statuses[HEAD][0]["description"].isprintable()


def test_long_report_fits_into_a_comment(comment: Comment, github: FakeGitHub, tmp_path: Path) -> None:
    """Hundreds of failing cases, and Markdown of a megabyte that another tool made."""
    run = sample_run(300, verdicts=[Verdict.SLOWER])
    comment(_written(tmp_path / "large.json", run), "--run-number", 1)
    assert 10_000 < len(body(github)) <= 65_536
    (tmp_path / "large.md").write_text("<details>\n\n" + "| row |\n" * 100_000 + "</details>\n")
    comment("--comment-text", tmp_path / "large.md", "--verdict", "failed", "--run-number", 2)
    assert 10_000 < len(body(github)) <= 65_536
    assert body(github).count("<details") == body(github).count("</details>") == 1


def test_comment_as_a_person_is_updated_as_that_person(comment: Comment, github: FakeGitHub, results: Path) -> None:
    """One that the bot wrote is not this token's, and is left."""
    comment(results, "--run-number", 1)
    github.user = github.author = "release-bot"
    comment(results, "--run-number", 2)
    comment(results, "--run-number", 3)
    comment(results, "--run-number", 4, "--author", BOT)
    runs = [re.findall(r'"run": (\d+)', found["body"]) for found in github.comments[7]]
    assert runs == [["4"], ["3"]]


def test_refusal_ends_with_1_and_never_shows_the_token(
    comment: Comment, github: FakeGitHub, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status, which blocks, is set all the same: it comes first."""
    github.script.append(Scripted("POST", "issues", 403, {"message": f"{TOKEN} may not"}))
    assert comment(results, "--status", "--mode", "block") == 1
    said = capsys.readouterr()
    assert "GitHub answered 403 to POST" in said.err
    assert TOKEN not in said.out + said.err
    assert github.statuses[HEAD][0]["state"] == "failure"


def test_dry_run_changes_nothing(
    comment: Comment, github: FakeGitHub, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints what it would do, and the comment."""
    assert comment(results, "--status", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "would set the status attnperf/gate = success" in said
    assert "would post a comment on #7\n<!-- pytest-attnperf: attnperf -->" in said
    assert github.written == []


def test_dry_run_needs_no_token(
    comment: Comment,
    github: FakeGitHub,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It prints the comment; everything else does need one."""
    monkeypatch.delenv("GITHUB_TOKEN")
    assert comment(results, "--dry-run") == 0
    assert "no token: GitHub was not asked\n<!-- pytest-attnperf" in capsys.readouterr().out
    assert github.seen == []
    with pytest.raises(UsageError, match="no token: set GITHUB_TOKEN"):
        comment(results)


@pytest.mark.parametrize(
    ("arguments", "head", "expected"),
    [
        ([], HEAD, "there is no .attnperf/results.json"),
        (["--verdict", "passed"], HEAD, "give RESULTS or --comment-text FILE, or --verdict broken or unmeasured"),
        (["--verdict", "broken"], "", "give --head-sha SHA, --pull N, or both"),
        (["--verdict", "broken"], "abc", "--head-sha 'abc' is no full commit id"),
        (["--verdict", "broken", "--pull", "0"], HEAD, "--pull is 0; pull requests are numbered from 1"),
        (["--verdict", "broken", "--name=a-->x"], HEAD, "a comment's name is 'a-->x'"),
        (["--verdict", "broken", "--run-url", "javascript:x"], HEAD, "--run-url is 'javascript:x'; an http address"),
        (["--verdict", "broken", "--base-branch", "main"], HEAD, "--base-branch is the base of --pull N"),
        (["--comment-text", "judged.md"], HEAD, "--comment-text does not say whether the gate passed"),
    ],
)
def test_bad_command_is_refused_before_anything_is_asked(
    comment: Comment,
    github: FakeGitHub,
    arguments: list[str],
    head: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what to give; nothing lies in the folder that a run before may have left in another."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=re.escape(expected)):
        comment(*arguments, head=head)
    assert github.seen == []


def test_huge_file_is_refused(
    comment: Comment, results: Path, monkeypatch: pytest.MonkeyPatch, github: FakeGitHub
) -> None:
    """Before it is read."""
    monkeypatch.setattr(commenting, "FILE_LIMIT", 10)
    with pytest.raises(UsageError, match=r"judged\.json has [\d,]+ bytes; at most 10 are read"):
        comment(results)


def test_comment_has_commands_of_its_reader(comment: Comment, github: FakeGitHub, results: Path) -> None:
    """Beside the change in microseconds: a picture, and how to get the run's results and explain the worst of them."""
    comment(results, "--run-url", RUN_URL, "--artifact", "times")
    (case,) = [case for case in json_results.read(results).cases if case.fails]
    assert "```sh\ngh run download 5 --repo octo/kernels --name times --dir .attnperf/run-5\n```" in body(github)
    assert f"```sh\nattnperf explain {case.key} --results .attnperf/run-5/results.json\n```" in body(github)
    assert re.search(r"^```text\n(?:.*\n)*.* \+6\.0 %  \S+ -> \S+ us  prefill/", body(github), re.MULTILINE)


def test_artifact_that_is_none_is_refused(comment: Comment, github: FakeGitHub, results: Path) -> None:
    """Its name becomes part of a command, so nothing is posted with one that a shell would act on."""
    with pytest.raises(UsageError, match=r"the artifact's name is '\$\(x\)'"):
        comment(results, "--run-url", RUN_URL, "--artifact", "$(x)")
    assert github.written == []
