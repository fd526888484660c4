"""`attnperf report --comment`: posts one comment on a pull request, updates it, and sets the commit status."""

from __future__ import annotations

import argparse
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.output import say
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.regular_file import read_regular

if TYPE_CHECKING:
    from pytest_attnperf.reports.run.joined import Joined
    from pytest_attnperf.tools.ci.comments import Stamp
    from pytest_attnperf.tools.ci.github import GitHub
    from pytest_attnperf.tools.ci.outcome import Conclusion, GateOutcome
    from pytest_attnperf.tools.ci.pulls import Pull

FILE_LIMIT = 200_000_000
SUMMARY_BYTES = 60_000
STATUS_CONTEXT = "{name}/gate"
OTHER_CONTEXT = "{name}/gate into {branch}"


@dataclass(frozen=True)
class CommentReport:
    """What the comment says. `counted` is the cases counted by verdict, text that comes from results files."""

    markdown: str
    counted: str
    outcome: GateOutcome


def post_comment(options: argparse.Namespace) -> int:
    """Sets the commit status, then writes the pull request's comment. Returns 1 if GitHub fails, else 0. Raises
    UsageError for invalid options. The status comes first: it blocks, so it must not depend on a comment."""
    from pytest_attnperf.tools.ci.github import GitHubError, make_client
    from pytest_attnperf.tools.ci.outcome import Conclusion, choose_mode

    _require_sound(options)
    mode = choose_mode(options.mode, os.environ)
    report = _read_report(options)
    conclusion = Conclusion(report.outcome, mode)
    if options.dry_run and not (os.environ.get("GITHUB_TOKEN") or os.environ.get("GH_TOKEN")):
        say(
            f"no token: GitHub was not asked\n{_render_body(options, report, conclusion, _make_stamp(options, report))}"
        )
        return 0
    try:
        _publish(make_client(os.environ), options, report, conclusion)
    except GitHubError as error:
        sys.stderr.write(f"attnperf: {error}\n")
        return 1
    return 0


def _publish(github: GitHub, options: argparse.Namespace, report: CommentReport, conclusion: Conclusion) -> None:
    """Sets the status with --status, then writes or updates the comment, and prints what was done. Writes nothing if
    the base branch changed, and no comment in mode shadow or on an outdated or closed pull request. Raises GitHubError
    if GitHub refuses or does not answer."""
    from pytest_attnperf.reports.files import markdown
    from pytest_attnperf.tools.ci import comments, pulls
    from pytest_attnperf.tools.ci.outcome import GateMode

    repo: str = options.repo
    pull = pulls.fetch_pull(github, repo, options.pull) if options.pull is not None else None
    stamp = _make_stamp(options, report, pull)
    if pull is not None and options.base_branch not in ("", pull.base_ref):
        say(
            f"nothing written: #{pull.number} now has the base {pull.base_ref}, but --base-branch {options.base_branch}"
        )
        return
    if options.status:
        context = _format_status_name(options.name, pull)
        say(
            pulls.put_status(
                github,
                repo,
                stamp,
                conclusion,
                report.counted,
                context=context,
                url=options.run_url,
                dry_run=options.dry_run,
            )
        )
    if conclusion.mode is GateMode.SHADOW:
        say(f"mode shadow: no comment; {conclusion.sentence}")
        return
    if pull is None:
        pull = pulls.find_open_pull(github, repo, options.head_sha, options.head_repo)
    why = _reason_not_to_write(pull, options)
    if pull is None or why:
        say(f"no comment: {why}")
        return
    author = options.author or comments.fetch_login(github)
    body = _render_body(options, report, conclusion, stamp)
    mark = markdown.format_marker(options.name)
    say(
        comments.put_comment(
            github, repo, pull.number, body, marker=mark, author=author, stamp=stamp, dry_run=options.dry_run
        )
    )
    if options.dry_run:
        say(body)


def _format_status_name(name: str, pull: Pull | None) -> str:
    """Returns the commit status's name, with the base branch unless it is the default one: its baselines may differ."""
    if pull is None or pull.base_ref == pull.default_ref:
        return STATUS_CONTEXT.format(name=name)
    return OTHER_CONTEXT.format(name=name, branch=pull.base_ref)


def _reason_not_to_write(pull: Pull | None, options: argparse.Namespace) -> str:
    """Returns why no comment may be written: the pull request is absent, closed, or has a newer commit; else ''."""
    sha: str = options.head_sha
    if pull is None:
        return f"no open pull request has {sha[:12]} as its newest commit: it is closed, or has a newer commit"
    if not pull.open:
        return f"#{pull.number} is closed"
    if sha and pull.head_sha != sha:
        return f"#{pull.number} has a newer commit, {pull.head_sha[:12]}; these results are for {sha[:12]}"
    return ""


def _make_stamp(options: argparse.Namespace, report: CommentReport, pull: Pull | None = None) -> Stamp:
    from pytest_attnperf.tools.ci.comments import Stamp
    from pytest_attnperf.tools.ci.outcome import GateOutcome

    sha = options.head_sha or (pull.head_sha if pull is not None else "")
    measured = report.outcome in (GateOutcome.PASSED, GateOutcome.FAILED)
    return Stamp(sha, options.run_number, options.run_attempt, measured)


def _read_report(options: argparse.Namespace) -> CommentReport:
    """Reads RESULTS and --comment-text; returns the comment's text, counts and outcome. The outcome is --verdict, else
    PASSED, but FAILED in place of PASSED if the results fail. Raises UsageError if neither says whether the gate
    passed, and ResultsFileError for invalid results."""
    from pytest_attnperf.reports.files import markdown
    from pytest_attnperf.reports.files.markdown_commands import locate_results
    from pytest_attnperf.reports.run import overview
    from pytest_attnperf.tools.ci.outcome import EXPLAINED, GateOutcome

    said = GateOutcome(options.verdict) if options.verdict else None
    joined = _read_joined(options.results) if options.results else None
    if joined is None and said is None:
        raise UsageError("--comment-text does not say whether the gate passed; add --verdict, or RESULTS")
    outcome = said or GateOutcome.PASSED
    if joined is not None and joined.has_failed and outcome is GateOutcome.PASSED:
        outcome = GateOutcome.FAILED
    if options.comment_text is not None:
        text = read_regular(options.comment_text, FILE_LIMIT).decode(errors="replace")
    elif joined is not None:
        fetched = locate_results(options.run_url, options.artifact)
        text = markdown.render_summary(joined, limit_bytes=SUMMARY_BYTES, link=options.run_url, fetched=fetched)
    else:
        text = ""
    explained = EXPLAINED.get(outcome, "")
    if joined is not None and outcome is GateOutcome.FAILED and not joined.has_failed:
        explained = _describe_strictness(joined)
    whole = "\n\n".join(part for part in (explained, text.strip()) if part)
    counted = (
        "" if joined is None else overview.format_result_counts([*(shown.case for shown in joined.cases), *joined.code])
    )
    return CommentReport(whole, counted, outcome)


def _describe_strictness(joined: Joined) -> str:
    """Returns a sentence on why a strict gate fails although no case failed: unresolved verdicts and findings."""
    from pytest_attnperf.reports.run.overview import UNRESOLVED, format_verdict_counts, is_unresolved

    open_ones = [shown.case.verdict for shown in joined.cases if is_unresolved(shown.case)]
    open_ones += [code.verdict for code in joined.code if code.verdict in UNRESOLVED]
    findings = sum(len(run.findings) for run in joined.runs)
    what = [format_verdict_counts(open_ones)] if open_ones else []
    what += [f"{findings} finding{'s' * (findings != 1)}"] if findings else []
    return f"No case failed, but the gate is strict: {', '.join(what) or 'nothing was gated'}."


def _read_joined(paths: list[Path]) -> Joined:
    from pytest_attnperf.reports.files import json_results
    from pytest_attnperf.reports.run.joined import join_runs

    return join_runs([(str(path), json_results.decode(read_regular(path, FILE_LIMIT), str(path))) for path in paths])


def _render_body(options: argparse.Namespace, report: CommentReport, conclusion: Conclusion, stamp: Stamp) -> str:
    """Returns the comment's text, cut to GitHub's limit: hidden marker and run number (`stamp`), by which a later run
    finds it; the gate's outcome; commit and link to the log; the report."""
    from pytest_attnperf.reports.files import markdown
    from pytest_attnperf.tools.ci.comments import cut_body

    parts = [f"{markdown.format_marker(options.name)}\n{stamp.format_line()}", conclusion.heading, report.markdown]
    of = f"run {stamp.run}.{stamp.attempt}"
    of = f"[{of}]({options.run_url})" if options.run_url else of
    parts.insert(2, f"<sub>commit {stamp.sha[:12]}, {of}</sub>" if stamp.sha else f"<sub>{of}</sub>")
    return cut_body("\n\n".join(part for part in parts if part) + "\n")


def _require_sound(options: argparse.Namespace) -> None:
    """Raises UsageError for options that are invalid, or would send the comment to a wrong pull request."""
    from pytest_attnperf.reports.files.markdown import format_marker
    from pytest_attnperf.reports.text.figures import one_line
    from pytest_attnperf.tools.ci.github import parse_full_sha, parse_repository

    parse_repository(options.repo)
    if options.head_repo:
        parse_repository(options.head_repo)
    if options.pull is None and not options.head_sha:
        raise UsageError("the pull request is not known; give --head-sha SHA, --pull N, or both")
    if options.pull is not None and options.pull < 1:
        raise UsageError(f"--pull is {options.pull}; pull requests are numbered from 1")
    if options.base_branch and options.pull is None:
        raise UsageError("--base-branch is the base of --pull N; add --pull")
    if options.head_sha:
        parse_full_sha(options.head_sha, "--head-sha")
    format_marker(options.name)
    if options.run_url and not re.fullmatch(r"https?://[A-Za-z0-9._~:/?&=%+-]{1,500}", options.run_url):
        raise UsageError(f"--run-url is {one_line(options.run_url)!r}; an http address is needed")
    if not (options.results or options.comment_text or options.verdict in ("broken", "unmeasured")):
        raise UsageError("give RESULTS or --comment-text FILE, or --verdict broken or unmeasured")
