"""`attnperf blame --old ENV --new ENV`: finds which component of two environments made cases slower or faster.

It puts environments together from both, and lets pytest compare them; the search is `session.blame`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_attnperf.cli.blame_runs import BlameRuns, choose_parts, describe_versions, list_imports
from pytest_attnperf.cli.output import say, write_text
from pytest_attnperf.cli.pytest_runs import INTERRUPTED, Execute, execute, keep_pytest_options
from pytest_attnperf.errors import AttnperfError, UsageError
from pytest_attnperf.session.blame.blame_result import (
    BlameOutcome,
    BlameSettings,
    CaseBlame,
    describe_question,
    render_case,
    render_summary,
)
from pytest_attnperf.session.blame.case_search import BlameSearch, NoRatio, first_question
from pytest_attnperf.session.blame.effects import Effect
from pytest_attnperf.workers.environments.components import REST, list_components
from pytest_attnperf.workers.environments.installed import list_packages, parse_environment
from pytest_attnperf.workers.environments.mixing import Mixer, parse_library

GROUP = "every day"
ORDER = 85
SUMMARY = "find which package of two environments made cases slower"
DESCRIPTION = """Finds which component of two environments made cases slower, or faster. ENV is a virtual environment, a
Python, or either with folders that come first on its path: PYTHON+DIR. Components are swapped both ways by links in a
temporary folder; the environments are not changed. Type it in pytest's rootdir."""
USAGE = "attnperf blame [options] --old ENV --new ENV [NODEID ...] [-- pytest options]"
EPILOG = """Blamed is what changes the time in both environments, and explains the case if swapping everything else
changes nothing. A component is a distribution with those that it needs in one exact version; `rest` is the interpreter
and what links cannot swap. All intervals of a case hold at once.

exit status: 0 every changed case is explained, 1 a case is not, or nothing changed, 2 the command is invalid or the
environments cannot be compared, 130 stopped by Ctrl-C, which prints what is known

examples:
  attnperf blame --old old/.venv --new new/.venv suites/test_prefill.py
  attnperf blame --old python3 --new python3+/opt/triton-3.9 suites/test_prefill.py -- -k d128
  attnperf blame --old a/.venv --new b/.venv --library rccl=/opt/old/lib:/opt/new/lib suites/ --json blame.json
"""

FIXED_SHOWN = 6


class BlameError(AttnperfError):
    """The two environments cannot be compared; the text says why."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf blame` to its parser."""
    defaults = BlameSettings()
    parser.add_argument("nodeids", metavar="NODEID", nargs="*", help="cases, files or folders, as pytest takes them")
    parser.add_argument("--old", required=True, metavar="ENV", help="the environment before")
    parser.add_argument("--new", required=True, metavar="ENV", help="the environment after")
    parser.add_argument("--library", action="append", default=[], metavar="NAME=OLD:NEW", help="also swap folders that "
                        "come first on LD_LIBRARY_PATH; may be repeated")  # fmt: skip
    parser.add_argument("--threshold", type=float, default=defaults.threshold_percent, metavar="PERCENT",
                        help="a smaller change counts as none (default: %(default)s)")  # fmt: skip
    parser.add_argument("--confidence", type=float, default=defaults.confidence, metavar="SHARE",
                        help="probability that all intervals of a case hold (default: %(default)s)")  # fmt: skip
    parser.add_argument("--pairs-max", type=int, default=defaults.pairs_max, metavar="N",
                        help="most fresh pairs of processes per comparison (default: %(default)s)")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", default="", help="write the result as JSON; - prints it alone")
    keep_pytest_options(parser)


def run(options: argparse.Namespace, execute_pytest: Execute | None = None) -> int:
    """Searches for the components that changed the cases; prints steps and result. Returns 0 if every changed case is
    explained, 1 if not or if none changed, INTERRUPTED after Ctrl-C. Raises UsageError for invalid options, and
    BlameError if the environments cannot be compared. Tests replace `execute_pytest`."""
    try:
        settings = BlameSettings(options.confidence, options.threshold, options.pairs_max)
    except ValueError as error:
        raise UsageError(str(error)) from error
    tell = _say_aside if options.json == "-" else say
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="attnperf-blame-") as folder:
        mixer = _open_environments(options, Path(folder))
        runs = BlameRuns(mixer, options.nodeids, Path(folder), options.pytest_options)
        runs.execute = execute_pytest or execute
        search = _begin_search(runs, settings, tell)
        try:
            search.run()
            status = 0
        except KeyboardInterrupt:
            tell("stopped; what is known so far:")
            status = INTERRUPTED
    cases = [search.results[nodeid] for nodeid in search.first if nodeid in search.results]
    _say_result(cases, mixer, tell)
    tell(f"{search.measured} runs of pytest, {time.monotonic() - started:.0f} s")
    if options.json:
        write_text(json.dumps(_to_json(cases, mixer, settings), indent=1), options.json)
    return status or int(not _is_explained(cases))


def _open_environments(options: argparse.Namespace, scratch: Path) -> Mixer:
    """Returns both environments with what differs between them. Raises UsageError if nothing does."""
    cwd = Path.cwd()
    old, new = (
        list_packages(parse_environment(text, cwd, option), scratch)
        for text, option in ((options.old, "--old"), (options.new, "--new"))
    )
    libraries = tuple(parse_library(text, cwd) for text in options.library)
    mixer = Mixer(old, new, list_components(old, new), scratch, cwd, libraries)
    mixer.parts = choose_parts(mixer)
    taken = [library.name for library in libraries if mixer.parts.count(library.name) > 1]
    if taken:
        raise UsageError(f"--library={taken[0]}=... has the name of a component; give it another name")
    if not mixer.parts:
        raise UsageError(
            f"--old={options.old} and --new={options.new} are one interpreter with the same {len(old.packages)} "
            "distributions: nothing could be blamed"
        )
    return mixer


def _begin_search(runs: BlameRuns, settings: BlameSettings, tell: Callable[[str], None]) -> BlameSearch:
    """Compares both whole environments and returns the search among the components that were used. Raises BlameError
    if no case could be compared."""
    mixer = runs.mixer
    _say_plan(mixer, tell)
    question = first_question(mixer.parts, settings)
    tell(describe_question(question, 0, mixer.parts).rpartition(",")[0])
    first, why = runs.measure_ends(question)
    if all(isinstance(answer, NoRatio) for answer in first.values()):
        reasons = [f"{nodeid}: {answer.reason}" for nodeid, answer in first.items() if isinstance(answer, NoRatio)]
        raise BlameError(f"the environments cannot be compared: {why or reasons[0]}")
    imported = runs.list_imported()
    mixer.parts = choose_parts(mixer, imported)
    runs.imports = list_imports(mixer, imported)
    idle = [one.name for one in mixer.components if not one.fixed and one.name not in mixer.parts]
    if idle:
        tell(f"left in {REST}, because no case imported them: {', '.join(idle)}")
    return BlameSearch(
        first,
        mixer.parts,
        runs.measure_cases,
        settings,
        seen=lambda question, cases: tell(describe_question(question, cases, mixer.parts)),
    )


def _say_plan(mixer: Mixer, tell: Callable[[str], None]) -> None:
    versions = describe_versions(mixer)
    tell(f"old {mixer.old.environment.text}: python {mixer.old.python}, {len(mixer.old.packages)} distributions")
    tell(f"new {mixer.new.environment.text}: python {mixer.new.python}, {len(mixer.new.packages)} distributions")
    tell(f"{len(mixer.components)} components differ: {', '.join(f'{name} {versions[name]}' for name in versions)}")
    fixed = [f"{one.name} ({one.fixed})" for one in mixer.components if one.fixed]
    if fixed:
        more = [f"and {len(fixed) - FIXED_SHOWN} more"] if len(fixed) > FIXED_SHOWN else []
        tell(f"not swapped, so inseparable from {REST}: {'; '.join([*fixed[:FIXED_SHOWN], *more])}")


def _say_result(cases: list[CaseBlame], mixer: Mixer, tell: Callable[[str], None]) -> None:
    versions = describe_versions(mixer)
    for case in cases:
        tell("")
        for line in render_case(case, versions):
            tell(line)
    tell("")
    for line in render_summary(cases, versions):
        tell(line)


def _is_explained(cases: list[CaseBlame]) -> bool:
    explained = [case for case in cases if case.outcome is BlameOutcome.EXPLAINED]
    return bool(explained) and all(case in explained or case.outcome is BlameOutcome.UNCHANGED for case in cases)


def _say_aside(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _to_json(cases: list[CaseBlame], mixer: Mixer, settings: BlameSettings) -> dict[str, Any]:
    """Returns the result as JSON objects; effects as ratios with intervals."""

    def convert(value: Any) -> Any:
        if isinstance(value, Effect):
            return {"ratio": value.ratio, "interval": value.interval, "pairs": value.pairs}
        return value

    found = []
    for case in cases:
        groups = [
            {name: convert(getattr(group, name)) for name in group.__dataclass_fields__}
            for group in (*case.suspects, *([case.others] if case.others else ()))
        ]
        plain = {"nodeid": case.nodeid, "outcome": case.outcome.value, "total": convert(case.total), "why": case.why}
        counts = {"limit_log_ratio": case.limit, "measurements": case.measurements, "pairs": case.pairs}
        found.append({**plain, **counts, "groups": groups})
    components = [
        {
            "name": one.name,
            "fixed": one.fixed,
            "is_used": one.name in mixer.parts,
            "changed": {
                name: [getattr(side.get(name), "version", None) for side in (one.old, one.new)] for name in one.changed
            },
        }
        for one in mixer.components
    ]
    return {
        "old": mixer.old.environment.text,
        "new": mixer.new.environment.text,
        "settings": asdict(settings),
        "components": components,
        "cases": found,
    }
