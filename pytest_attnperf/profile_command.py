"""`attnperf profile`: where GPU time goes and what binds kernels, from what profilers wrote or from results.json."""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_attnperf.environment.device_specs import DeviceSpec
    from pytest_attnperf.profile_records import Agent, CaseProfile, Finding, ProfileComparison, ProfileSummary
    from pytest_attnperf.profilers.kernel_families import Rules
    from pytest_attnperf.profilers.peak_ratios import Peaks
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.reports.wide_tables import Table
    from pytest_attnperf.results import CaseResult, RunResult

SNIFFED_BYTES = 4096
PLOT_SUFFIXES = (".svg", ".png")
WIDTH = 120
"""Columns where output goes into a file or a pipe."""

SHOWN = 15
"""Kernels in a table, unless --all asks for every one."""

EPILOG = """PATH is a folder or a file: CSV of rocprofv3 (ROCm 6.2 and later) or rocprof, a rocpd database, a trace of
torch.profiler (.json, .json.gz), or the results.json of pytest --attnperf --attnperf-profile.
Which commands write them: docs/profiling.md.

exit status: 0 printed, 1 a claim of --claims is contradicted, 2 the command or a file is off

examples:
  attnperf profile out/                                     where the time goes, kernel by kernel
  attnperf profile before/ --against after/                 what a change changed
  attnperf profile out/ --claims report.json                are the figures of a report possible?
  attnperf profile .attnperf/results.json --plot roof.svg   what binds each profiled case
"""


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "profile",
        help="where GPU time goes, what binds kernels, and what contradicts itself, from profilers' files",
        description="Where GPU time goes, what binds kernels, and what contradicts itself, from profilers' files.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, nargs="?", metavar="PATH", help="folder or file; none with --claims alone")
    parser.add_argument(
        "--against", type=Path, metavar="PATH", help="a second profile, taken after a change or elsewhere"
    )
    parser.add_argument(
        "--claims", type=Path, metavar="FILE", help="figures of a report as JSON or YAML (docs/claims.md)"
    )
    parser.add_argument("--run", default="", metavar="PREFIX", help="which run, where a folder holds several")
    parser.add_argument(
        "--device", default="", metavar="NAME", help="what it ran on, e.g. MI300X; default: as the files say"
    )
    parser.add_argument("--against-device", default="", metavar="NAME", help="the same of the second profile")
    parser.add_argument(
        "--peaks",
        default="",
        metavar="FIGURES",
        help="of a device without a row: mem_gb_s=212,f16_tflops=36.9,measured",
    )
    parser.add_argument("--against-peaks", default="", metavar="FIGURES", help="the same of the second profile")
    parser.add_argument(
        "--families", type=Path, metavar="FILE", help="rules of your own in front (docs/kernel-families.md)"
    )
    parser.add_argument(
        "--warm-up", type=int, metavar="N", help="passes (without passes: dispatches of a kernel) to leave out"
    )
    parser.add_argument("--passes", type=int, metavar="N", help="forward passes that were profiled; default: inferred")
    parser.add_argument("--layers", type=int, metavar="N", help="layers of the model; default: inferred")
    parser.add_argument(
        "--case", action="append", default=[], metavar="TEXT", help="of results.json: cases with TEXT only"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="of results.json: a roofline as .svg or .png")
    parser.add_argument("--all", action="store_true", help="every kernel, not those that take longest")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print Markdown")


def run(options: argparse.Namespace) -> int:
    """Print what is asked for. Raises UsageError and ProfileError, naming the option or the file."""
    _refuse_unused(options)
    if options.path is None:
        return _claims_alone(options)
    if _is_results(options.path):
        return _of_results(options)
    summary = _summary(options.path, options, options.device)
    findings = _claims(options, summary)
    if options.against is not None:
        return _print_comparison(options, summary)
    if options.json:
        _write_json({"profile": summary, **({"claims": findings} if options.claims is not None else {})})
    else:
        from pytest_attnperf.reports.profile import LEGEND, conclusion_lines, profile_lines, profile_tables

        lines = [*profile_lines(summary), *LEGEND]
        tables = profile_tables(summary, shown=len(summary.kernels) if options.all else SHOWN)
        _write(options, lines, tables, [*conclusion_lines(summary), *_claim_lines(options, findings)])
    return _status(findings)


def _refuse_unused(options: argparse.Namespace) -> None:
    """Raise UsageError for options that would be passed over in silence."""
    if options.path is None and options.claims is None:
        raise UsageError("attnperf profile wants a PATH, or --claims FILE; see attnperf profile --help")
    if options.claims is not None and options.against is not None:
        raise UsageError("--claims are checked against one profile: drop --against")
    for name in ("warm_up", "passes", "layers"):
        value, least = getattr(options, name), 0 if name == "warm_up" else 1
        if value is not None and value < least:
            raise UsageError(f"--{name.replace('_', '-')} {value} must be at least {least}")
    if options.plot is not None and options.plot.suffix.lower() not in PLOT_SUFFIXES:
        raise UsageError(f"--plot {options.plot}: known are {' and '.join(PLOT_SUFFIXES)}")
    results = options.path is not None and _is_results(options.path)
    own = ("case", "plot") if not results else ("against", "claims", "run", "warm_up", "passes", "layers")
    for name in ("against_device", "peaks", "against_peaks"):
        if options.against is None and getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} compares two profiles: give --against, too")
    for name in own:
        if getattr(options, name) not in (None, "", []):
            of = "a results.json of pytest --attnperf --attnperf-profile" if not results else "a profiler's files"
            raise UsageError(f"--{name.replace('_', '-')} is of {of}, and {options.path or 'no PATH'} is not that")


def _is_results(path: Path) -> bool:
    """Whether a file is our results.json: torch's traces are JSON, too, but say other things at their beginning."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(SNIFFED_BYTES)
    return head.lstrip()[:1] == b"{" and b'"schema"' in head and b'"mode"' in head and b"traceEvents" not in head


def _summary(path: Path, options: argparse.Namespace, device: str) -> ProfileSummary:
    from pytest_attnperf.profilers.devices import spec_named, told
    from pytest_attnperf.profilers.reading import read_profile
    from pytest_attnperf.profilers.summary import summarise

    profile = read_profile(path, run=options.run)
    if device:
        profile = told(profile, spec_named(device))
    return summarise(
        replace(profile, name=str(path)),
        rules=_rules(options),
        warm_up=options.warm_up,
        passes=options.passes,
        layers=options.layers,
        device=_spec(device, profile.agents),
    )


def _spec(name: str, agents: Sequence[Agent]) -> DeviceSpec | None:
    """The device of this name; without one that of the files, None where they say too little."""
    from pytest_attnperf.profilers.devices import spec_named, spec_of

    return spec_named(name) if name else spec_of(agents)


def _peaks(text: str, name: str, agents: Sequence[Agent]) -> Peaks | None:
    """As the user gives them, else of the device's data sheet."""
    from pytest_attnperf.profilers.peak_ratios import Peaks, spec_peaks

    if text:
        return Peaks.parse(text)
    spec = _spec(name, agents)
    return None if spec is None else spec_peaks(spec)


def _rules(options: argparse.Namespace) -> Rules:
    from pytest_attnperf.profilers.kernel_families import Rules

    return Rules.read(options.families) if options.families is not None else Rules.default()


def _claims_alone(options: argparse.Namespace) -> int:
    findings = _claims(options, None)
    if options.json:
        _write_json({"claims": findings})
    else:
        _write(options, [f"claims: {options.claims}"], [], _claim_lines(options, findings))
    return _status(findings)


def _claims(options: argparse.Namespace, summary: ProfileSummary | None) -> tuple[Finding, ...]:
    if options.claims is None:
        return ()
    from pytest_attnperf.profilers.claims import check_claims, read_claims

    return check_claims(read_claims(options.claims), summary)


def _claim_lines(options: argparse.Namespace, findings: Sequence[Finding]) -> list[str]:
    from pytest_attnperf.reports.findings import finding_lines

    return finding_lines(findings) if options.claims is not None else []


def _status(findings: Sequence[Finding]) -> int:
    return 1 if any(found.holds is False for found in findings) else 0


def _print_comparison(options: argparse.Namespace, before: ProfileSummary) -> int:
    from pytest_attnperf.profilers.comparison import compare
    from pytest_attnperf.reports.profile_comparison import comparison_lines, comparison_tables

    after = _summary(options.against, options, options.against_device or options.device)
    found: ProfileComparison = compare(
        before,
        after,
        before_peaks=_peaks(options.peaks, options.device, before.agents),
        after_peaks=_peaks(options.against_peaks, options.against_device, after.agents),
    )
    if options.json:
        _write_json({"before": before, "after": after, "comparison": found})
        return 0
    shown = len(found.kernels) if options.all else SHOWN
    problems = [f"problem: {problem}" for summary in (before, after) for problem in summary.problems]
    _write(options, comparison_lines(found), comparison_tables(found, shown=shown), problems)
    return 0


def _of_results(options: argparse.Namespace) -> int:
    """Cases that pytest profiled: what binds each, and the kernels of each."""
    from pytest_attnperf.reports import json_results
    from pytest_attnperf.reports.profile_cases import LEGEND, bound_table, profiled, reason_lines

    where = str(options.path)
    results = json_results.decode(options.path.read_bytes(), where)
    found = [pair for pair in profiled(results.cases) if _chosen(pair[0], options.case)]
    if not found:
        raise UsageError(_nothing_profiled(results, where, options.case))
    if options.plot is not None:
        _plot(options.plot, found, results)
    detailed = found if options.json or options.case or len(found) == 1 else []
    summaries = [(case, _case_summary(case, profile, options, results.device)) for case, profile in detailed]
    if options.json:
        _write_json(
            {
                "profiles": [
                    {"case": case.key, "bound": case.profile.bound if case.profile else None, "profile": summary}
                    for case, summary in summaries
                ]
            }
        )
        return 0
    tables, below = [bound_table(found)], [line for pair in found for line in reason_lines(*pair)]
    if not detailed:
        below.append("kernel by kernel: --case TEXT, a part of a case's name")
    from pytest_attnperf.reports.profile import profile_tables

    for case, summary in summaries:
        own = profile_tables(summary, shown=len(summary.kernels) if options.all else SHOWN)
        own = own[1:] if len(summary.kernels) == 1 else own
        tables += [replace(table, title=f"{case.key.entry}: {table.title}") for table in own]
    _write(options, [f"device: {_device(results)}", LEGEND], tables, below)
    return 0


def _chosen(case: CaseResult, texts: Sequence[str]) -> bool:
    return not texts or any(text in str(case.key) for text in texts)


def _case_summary(
    case: CaseResult, profile: CaseProfile, options: argparse.Namespace, device: DeviceInfo | None
) -> ProfileSummary:
    from pytest_attnperf.profilers.from_results import profile_of_case
    from pytest_attnperf.profilers.summary import summarise

    read = profile_of_case(case, profile, str(options.path), device)
    summary = summarise(read, rules=_rules(options), warm_up=0, passes=profile.calls, device=_spec(options.device, ()))
    return replace(summary, busy_ns=None, span_ns=None)


def _plot(path: Path, found: Sequence[tuple[CaseResult, CaseProfile]], results: RunResult) -> None:
    """Raises UsageError where no case has a point."""
    from pytest_attnperf.reports.roofline_plot import write_plot

    points = [
        (case.key.entry, profile.bound.point, profile.bound.bound)
        for case, profile in found
        if profile.bound is not None and profile.bound.point is not None
    ]
    if not points:
        raise UsageError("--plot: no profiled case has a time and exact FLOPs, so there is no point to draw")
    write_plot(path, points, _device(results))
    sys.stderr.write(f"wrote {path}\n")


def _nothing_profiled(results: RunResult, where: str, chosen: Sequence[str]) -> str:
    of = f" with {' or '.join(map(repr, chosen))} in its name" if chosen else ""
    return (
        f"{where} holds no profiled case{of} (mode {results.mode!r}, {len(results.cases)} cases); "
        "pytest --attnperf --attnperf-profile profiles them"
    )


def _device(results: RunResult) -> str:
    from pytest_attnperf.reports.figures import one_line

    device = results.device
    return (
        "a device that is not known" if device is None else one_line(f"{device.name or device.product} ({device.arch})")
    )


def _write(options: argparse.Namespace, above: Sequence[str], tables: Sequence[Table], below: Sequence[str]) -> None:
    from pytest_attnperf.reports.wide_tables import markdown, terminal

    if options.markdown:
        said = "\n\n".join(filter(None, (markdown(above, tables), markdown(below, ()))))
    else:
        width = shutil.get_terminal_size((WIDTH, 24)).columns
        said = "\n\n".join(filter(None, (terminal(above, tables, width), terminal(below, (), width))))
    sys.stdout.write(f"{said}\n")


def _write_json(content: dict[str, object]) -> None:
    from pytest_attnperf.reports.profile_json import profile_json

    sys.stdout.write(profile_json(content))
