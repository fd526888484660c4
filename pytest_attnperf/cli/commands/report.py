"""`attnperf report`: shows stored runs as tables, a page, Markdown, JUnit XML or CSV; joins them; posts a comment.

This file declares all options. What the command does, without and with --by, --out and --comment, is in
`report_modes`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from pytest_attnperf.cli import report_modes
from pytest_attnperf.cli.option_groups import RESULTS, DependentOptions, add_old_spelling, settle_all
from pytest_attnperf.cli.output import PAGES, add_forms, asked_forms
from pytest_attnperf.cli.report_modes import MODES
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.regular_file import propose_path
from pytest_attnperf.reports.files.form_list import list_files

GROUP = "first hour"
ORDER = 30
SUMMARY = "show results: tables, page, files; join shards; comment on GitHub"
DESCRIPTION = "Shows stored results: as tables, as a page, as files for other programs, or as a GitHub comment."

USAGE = "attnperf report [options] [RESULTS ...]"

FOLDER = Path(".attnperf") / "report"
"""Folder that --open writes without --report."""

PLAIN, STAGE, STEP, MERGE, COMMENT = "", "--by stage", "--by step", "--out", "--comment"
"""What the command does, by the option that asks for it."""

TAKEN: dict[str, frozenset[str]] = {
    STAGE: frozenset({"markdown", "report", "open"}),
    STEP: frozenset({"markdown", "report", "open"}),
    MERGE: frozenset({"report", "open"}),
    COMMENT: frozenset(),
}
"""Options of the plain report that a mode takes too, by dest. With --out also every form."""

EPILOG = f"""RESULTS are files that pytest --attnperf wrote, from one or more machines; or stored baselines
(baselines/sm_90/h200/prefill.json, or the folder), whose report says that nothing was measured for it. What attnperf
dispatch --json printed, the folder or tune.json of attnperf tune, and what a profiler wrote are shown in the page,
behind the cases.

--by stage: cases of tests with breakdown=True have stages; prefill is compared with qk_scores, causal_mask,
row_softmax and weighted_values where they were measured. --by step: the backends of a workload, with the machine code
that each ran; --write puts the tables between <!-- ladder:begin --> and <!-- ladder:end -->. Both take one file;
--report DIR writes their page alone, as report.html, and --open without it writes the page into {PAGES}.

--out: shards of one commit, device and fingerprint become one run. Runs of other devices are stored beside it. Verdicts
stay as their runs gave them; attnperf gate judges again. A line per run says whether it passed. Shards of a run with
--attnperf-shard also fail if one is missing, there twice, of another run, or ran other cases than its own.

--comment: the token comes from GITHUB_TOKEN, the address of the API from GITHUB_API_URL. Give results that attnperf
gate judged, not those that an untrusted job uploaded, and --head-sha from GitHub's event, never from a file of the run.
A pull request that is closed, or has a newer commit or run, gets no comment; comments of others are left alone.
A status belongs to a commit, which several pull requests may offer: --pull and --base-branch distinguish them.

reports in DIR: {", ".join(list_files())}

examples:
  attnperf report                                      the tables of the last run
  attnperf report --open                               its page, in a browser
  attnperf report mi300x.json h200.json --markdown - >> "$GITHUB_STEP_SUMMARY"
  attnperf report baselines/sm_90/h200/prefill.json --report DIR
  attnperf report results.json dispatch.json tuned/ --open
  attnperf report gpu.json --by stage --cpu cpu.json
  attnperf report results.json --by step --open
  attnperf report results.json --by step --workload prefill-b4-s512-h8-d256-f16-causal --relative-to triton.flash
  attnperf report shards/*.json --expect 4 --out merged.json --report DIR
  attnperf report judged.json --comment --repo OWNER/NAME --head-sha SHA --run-number 12 --status

exit status: 0 done; 1 a run has failures, with --out also an incomplete run, missing or mixed shards, with --comment
GitHub refused; 2 the command or a file is invalid, or a report could not be made
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf report` to its parser."""
    parser.add_argument(
        "results", type=Path, nargs="*", metavar="RESULTS", help=f"results files, or baselines (default: {RESULTS})"
    )
    add_old_spelling(parser, "--html", add_forms(parser))
    parser.add_argument(
        "--open", action="store_true", help=f"open the page in a browser; without --report it is in {FOLDER}"
    )
    parser.add_argument("--history", default="", metavar="URL|FILE", help="show each case's history in the page")
    parser.add_argument("-q", "--quiet", action="count", default=0, help="only what needs attention; -qq: one line")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="show every row and more columns")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="use colours; auto: on a terminal without NO_COLOR, in a pipe with FORCE_COLOR (default: auto)",
    )
    parser.add_argument("--by", choices=("stage", "step"), help="show the stages of calls, or compare backends")
    parser.add_argument("--out", type=Path, metavar="FILE", help="join RESULTS into FILE, and fail if one fails")
    parser.add_argument("--comment", action="store_true", help="post RESULTS as one comment on a pull request")
    parser.set_defaults(dependent=_declare_modes(parser))


def _declare_modes(parser: argparse.ArgumentParser) -> list[DependentOptions]:
    """Adds the options that need --by, --out or --comment, and returns their groups."""
    either = DependentOptions(parser, "--by stage or --by step", lambda options: bool(options.by))
    either.add("--workload", action="append", metavar="ID", default=(), help="show this one only; may be repeated")
    stage = DependentOptions(parser, STAGE, lambda options: options.by == "stage")
    stage.add("--cpu", type=Path, metavar="RESULTS", help="compare with times of layer.plain in this run on a CPU")
    step = DependentOptions(parser, STEP, lambda options: options.by == "step")
    step.add("--over", default="hip.naive", metavar="BACKEND", help="speedups are over it (default: hip.naive)")
    step.add("--relative-to", metavar="BACKEND", help="speeds are relative to it (default: native.sdpa_flash)")
    step.add("--backends", default="", metavar="A,B", help="show these only (default: all)")
    step.add("--code", action="append", type=Path, default=(), metavar="RESULTS", help="results of compiled kernels")
    step.add("--profile", type=Path, metavar="CSV", help="rocprofv3's counter_collection.csv")
    step.add("--write", type=Path, metavar="PAGE", help="write the tables into this page")
    merge = DependentOptions(parser, "--out FILE", lambda options: options.out is not None)
    merge.add(
        "--expect", type=int, metavar="N", help="fail if there are fewer than N runs; shards of --attnperf-shard know N"
    )
    merge.add("--seconds", type=Path, metavar="FILE", help="write the seconds of every case, by which --attnperf-shard "
              "divides, e.g. baselines/case_seconds.json")  # fmt: skip
    merge.add("--allow-commits", action="store_true", default=False, help="allow shards of different commits")
    merge.add(
        "--strict",
        action=argparse.BooleanOptionalAction,
        help="also fail for unresolved cases and findings (default: on if CI is set)",
    )
    return [either, stage, step, merge, _declare_comment(parser)]


def _declare_comment(parser: argparse.ArgumentParser) -> DependentOptions:
    """Adds the options that need --comment, and returns their group."""
    comment = DependentOptions(parser, COMMENT, lambda options: options.comment)
    add = comment.add
    add("--comment-text", type=Path, metavar="FILE", help="its text as Markdown (default: from RESULTS)")
    add(
        "--verdict",
        default="",
        choices=["passed", "failed", "broken", "unmeasured"],
        help="outcome of the gate (default: that of RESULTS); broken and unmeasured need no file",
    )
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    add("--repo", default=repository, metavar="OWNER/NAME", help="the repository (default: $GITHUB_REPOSITORY)")
    add("--pull", type=int, metavar="N", help="the pull request (default: the one with --head-sha)")
    add("--head-sha", default="", metavar="SHA", help="the measured commit")
    add("--head-repo", default="", metavar="OWNER/NAME", help="where it was pushed to")
    add(
        "--base-branch",
        default="",
        metavar="BRANCH",
        help="branch whose baselines were used; nothing is written if --pull has another now",
    )
    add(
        "--run-number",
        type=int,
        default=0,
        metavar="N",
        help="the measuring run's number; an older one changes nothing",
    )
    add("--run-attempt", type=int, default=1, metavar="N", help="its attempt (default: 1)")
    add("--run-url", default="", metavar="URL", help="address of its log")
    add(
        "--artifact",
        default="attnperf-results",
        metavar="NAME",
        help="its artifact with results.json (default: attnperf-results)",
    )
    add("--name", default="attnperf", help="name of the gate (default: attnperf)")
    add(
        "--mode",
        default="",
        metavar="MODE",
        help="shadow (no comment), warn or block (default: $ATTNPERF_GATE, else warn)",
    )
    add("--status", action="store_true", default=False, help="also set the commit status")
    add("--author", default="", metavar="LOGIN", help="the token's account (default: ask GitHub)")
    add("--dry-run", action="store_true", default=False, help="print what would be done; change nothing")
    return comment


def run(options: argparse.Namespace) -> int:
    """Shows, joins or posts the results by option. Returns 1 if they failed or GitHub did, 2 if a report could not be
    made, else 0. Raises UsageError for invalid options; ResultsFileError, BaselineError and HistoryError for an invalid
    file."""
    settle_all(options, options.dependent)
    mode = _choose_mode(options)
    if not options.results and not (mode == COMMENT and (options.comment_text or options.verdict)):
        options.results = [RESULTS]
    if mode in (STAGE, STEP) and len(options.results) != 1:
        raise UsageError(f"{mode} shows one file, and {len(options.results)} were given; name one RESULTS")
    for path in options.results:
        if not path.exists():
            raise UsageError(f"there is no {path}{propose_path(path)}; a run writes {RESULTS}: pytest --attnperf")
    if options.open and options.report is None and mode not in (STAGE, STEP):
        options.report = FOLDER
    return _find_work(mode)(options)


def _choose_mode(options: argparse.Namespace) -> str:
    """Returns which of the modes the options ask for, PLAIN for none. Raises UsageError for two, and for options of
    the plain report that the mode has no use for."""
    asked = {f"--by {options.by}": options.by, MERGE: options.out is not None, COMMENT: options.comment}
    modes = [mode for mode, is_on in asked.items() if is_on]
    if len(modes) > 1:
        raise UsageError(f"{modes[0]} and {modes[1]} are two different reports; give one of them")
    mode = modes[0] if modes else PLAIN
    if mode == COMMENT and options.markdown is not None:
        raise UsageError("--markdown writes a report; the text of a comment is --comment-text FILE")
    forms = asked_forms(options)
    given = {"report": options.report is not None, **dict.fromkeys(forms, True)}
    given |= {name: bool(getattr(options, name)) for name in ("open", "history", "quiet", "verbose")}
    taken = {*TAKEN.get(mode, given), *(forms if mode == MERGE else ())}
    for name in (name for name, is_given in given.items() if is_given and name not in taken):
        raise UsageError(f"--{name} has no effect with {mode}; drop one of the two")
    return mode


def _find_work(mode: str) -> Callable[[argparse.Namespace], int]:
    """Returns the function of a mode, importing nothing of the others."""
    module, _, function = MODES[mode].rpartition(".")
    work: Callable[[argparse.Namespace], int] = getattr(import_module(f"{report_modes.__name__}.{module}"), function)
    return work
