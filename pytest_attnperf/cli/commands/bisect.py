"""`attnperf bisect GOOD BAD NODEID`: finds the first slow commit between two revisions, and says how sure that is.

Every measurement is its own pytest over the one case, interleaved with GOOD; the search is `session.bisect`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_attnperf.cli.output import say
from pytest_attnperf.cli.pytest_runs import (
    INTERRUPTED,
    Execute,
    describe_no_ratio,
    describe_no_results,
    execute,
    keep_pytest_options,
)
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.bisect.bisect_result import (
    BisectOutcome,
    BisectResult,
    BisectSettings,
    format_step,
    render_result,
)
from pytest_attnperf.session.bisect.commit_search import BATCH, Search
from pytest_attnperf.session.bisect.evidence import CannotMeasureError
from pytest_attnperf.workers.revisions import Commit, History, read_history

GROUP = "every day"
ORDER = 80
SUMMARY = "find the first slow commit between two revisions"
DESCRIPTION = "Finds the first slow commit between two revisions. Each one is measured interleaved with GOOD."
USAGE = "attnperf bisect [options] GOOD BAD NODEID [-- pytest options]"

SUBJECT_LENGTH = 60
CASES_LISTED = 10

NO_RATIO = (Verdict.INCORRECT, Verdict.SUSPICIOUS, Verdict.ERROR, Verdict.UNSUPPORTED, Verdict.INCOMPARABLE)
"""Verdicts of a revision whose times are not used."""

EPILOG = """The confidence is the probability that the named commit is right, if one commit caused a lasting slowdown.
What cannot be built or measured is skipped. If several commits remain, their range is printed.

exit status: 0 one commit was found, 1 a range of commits or no slowdown, 2 the command is invalid or BAD cannot be
measured, 130 stopped by Ctrl-C, which prints what is known

examples:
  attnperf bisect v1.2 HEAD "suites/test_prefill.py::test_prefill[triton.flash-prefill-b4-s512-h8-d256-f16]"
  attnperf bisect --threshold 5 --build "make" v1.2 HEAD "suites/test_gemm.py::test_gemm[native-gemm]" -- -p no:xdist
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf bisect` to its parser."""
    defaults = BisectSettings()
    parser.add_argument("good", metavar="GOOD", help="a revision that is fast, an ancestor of BAD")
    parser.add_argument("bad", metavar="BAD", help="a revision that is slow")
    parser.add_argument("nodeid", metavar="NODEID", help="one case, as pytest prints it")
    parser.add_argument(
        "--threshold",
        type=float,
        default=defaults.threshold_percent,
        metavar="PERCENT",
        help="stop if the slowdown from GOOD to BAD is certainly below this (default: %(default)s)",
    )
    parser.add_argument(
        "--confidence",
        type=float,
        default=defaults.confidence,
        metavar="SHARE",
        help="probability that all results are right, e.g. 0.999 (default: %(default)s)",
    )
    parser.add_argument("--build", default="", metavar="CMD", help="shell command that builds each revision's tree")
    parser.add_argument(
        "--pairs-max",
        type=int,
        default=defaults.pairs_max,
        metavar="N",
        help="most fresh pairs of processes per revision (default: %(default)s)",
    )
    keep_pytest_options(parser)


@dataclass
class PytestPairs:
    """Measures revisions against `good`, each time by a pytest over one case.

    build     shell command for both trees, '' for none
    options   passed to pytest as they are
    folder    for results and logs
    """

    good: str
    nodeid: str
    folder: Path
    build: str = ""
    options: Sequence[str] = ()
    execute: Execute = field(default_factory=lambda: execute)
    _runs: int = 0

    def __call__(self, revision: str, pairs: int) -> Sequence[PairSummary]:
        """Runs pytest to measure `pairs` new pairs (a process of `good`, one of `revision`) and returns them. Raises
        CannotMeasureError if pytest gives none, UsageError if several cases match the node id."""
        self._runs += 1
        from pytest_attnperf.reports.files import json_results

        results, log = self.folder / f"{self._runs}.json", self.folder / f"{self._runs}.log"
        status = self.execute(self.build_command(revision, pairs, results), log)
        if not results.exists():
            raise CannotMeasureError(describe_no_results(status, log))
        case = self._only_case(json_results.read(results).cases)
        if case.verdict in NO_RATIO or not case.pairs:
            raise CannotMeasureError(describe_no_ratio(case))
        return case.pairs

    def build_command(self, revision: str, pairs: int, results: Path) -> list[str]:
        """Returns the pytest command that measures a revision and writes `results`. The user's options come first, so
        that ours override them."""
        return [
            *(sys.executable, "-m", "pytest", self.nodeid, *self.options),
            "--attnperf",
            "--attnperf-interleave=all",
            f"--attnperf-against=rev:{self.good}",
            f"--attnperf-candidate=rev:{revision}",
            f"--attnperf-pairs={pairs}",
            f"--attnperf-results={results}",
            "--no-attnperf-strict",
            *((f"--attnperf-build={self.build}",) if self.build else ()),
        ]

    def _only_case(self, cases: Sequence[CaseResult]) -> CaseResult:
        if not cases:
            raise CannotMeasureError(f"{self.nodeid} selects no case of this revision; it may not exist there")
        if len(cases) > 1:
            listed = "\n  ".join(case.nodeid for case in cases[:CASES_LISTED])
            raise UsageError(f"{self.nodeid} selects {len(cases)} cases; give one of them:\n  {listed}")
        return cases[0]


def run(options: argparse.Namespace, execute_pytest: Execute | None = None) -> int:
    """Searches for the commit that slowed the case; prints steps and result. Returns 0 if one commit is the culprit, 1
    if not, INTERRUPTED after Ctrl-C. Raises UsageError for invalid options, and BisectError if the search cannot begin.
    Tests replace `execute_pytest`."""
    settings = _parse_settings(options)
    found = read_history(options.good, options.bad, Path.cwd())
    commits = {commit.sha: commit for commit in found.commits}
    _say_plan(found, settings)
    with tempfile.TemporaryDirectory(prefix="attnperf-bisect-") as folder:
        pairs = PytestPairs(found.commits[0].sha, options.nodeid, Path(folder), options.build, options.pytest_options)
        pairs.execute = execute_pytest or execute
        search = Search(
            tuple(commits),
            pairs,
            settings,
            seen=lambda record, left: say(format_step(record, left, lambda sha: _format_commit(commits[sha]))),
        )
        try:
            result = search.run()
        except KeyboardInterrupt:
            say("stopped; what is known so far:")
            _say_result(search.current_result(), commits, options.nodeid)
            return INTERRUPTED
    _say_result(result, commits, options.nodeid)
    return 0 if result.outcome is BisectOutcome.CULPRIT else 1


def _parse_settings(options: argparse.Namespace) -> BisectSettings:
    try:
        return BisectSettings(options.confidence, options.threshold, options.pairs_max)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _say_plan(found: History, settings: BisectSettings) -> None:
    between = len(found.commits) - 1
    halvings = (between - 1).bit_length()
    say(f"GOOD {_format_commit(found.commits[0])}")
    say(f"BAD  {_format_commit(found.commits[-1])}")
    say(
        f"{between} commit{'s' * (between != 1)} after GOOD: BAD and about {halvings} more are measured, {BATCH} to "
        f"{settings.pairs_max} pairs each"
    )
    for note in found.notes:
        say(note)


def _say_result(result: BisectResult, commits: dict[str, Commit], nodeid: str) -> None:
    for line in render_result(result, lambda sha: _format_commit(commits[sha])):
        say(line)
    culprit = commits[result.culprit.revision] if result.culprit else None
    if culprit is not None and culprit.is_merge:
        parents = f"{culprit.short}^1 {culprit.short}^2"
        say(
            f"it is a merge; to search its commits: attnperf bisect $(git merge-base {parents}) {culprit.short}^2 "
            f"{shlex.quote(nodeid)}"
        )


def _format_commit(commit: Commit) -> str:
    return f"{commit.short} ({one_line(commit.subject, SUBJECT_LENGTH)}, {commit.author_date})"
