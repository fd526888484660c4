"""`attnperf profile`: where GPU time goes and what binds kernels, from profilers' files or from results.json."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.output import add_page
from pytest_attnperf.cli.profile_output import SHOWN, write_json, write_result, write_roofline
from pytest_attnperf.cli.profile_page import check_trace, write_claims, write_comparison, write_profile
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_attnperf.environment.device_specs import DeviceSpec
    from pytest_attnperf.records.profile_changes import ProfileComparison
    from pytest_attnperf.records.profiles import Agent, ProfileFinding, ProfileSummary
    from pytest_attnperf.records.rooflines import DeviceCeilings, KernelBound
    from pytest_attnperf.tools.profilers.analysed_profile import AnalysedProfile
    from pytest_attnperf.tools.profilers.kernel_bounds import KernelWork
    from pytest_attnperf.tools.profilers.peak_ratios import Peaks

GROUP = "deeper"
ORDER = 130
SUMMARY = "show where GPU time goes, and what binds each kernel"
DESCRIPTION = "Shows where GPU time goes, what binds kernels and what is contradictory, from profilers' files."

SNIFFED_BYTES = 4096
PLOT_SUFFIXES = (".svg", ".png")
BASELINES = Path("baselines")
"""Folder of the stored ceilings, below the current folder."""

EPILOG = """PATH is a folder or a file: CSV of rocprofv3 (ROCm 6.2 and later) or rocprof, a rocpd database, a trace of
torch.profiler (.json, .json.gz), or the results.json of pytest --attnperf --attnperf-profile.
Which commands write them: docs/profiling.md.

exit status: 0 printed, 1 a claim of --claims is contradicted, 2 the command or a file is invalid

examples:
  attnperf profile out/                                     where the time goes, kernel by kernel
  attnperf profile out/ --open                              the same as a page, with charts
  attnperf profile out/ --trace trace.json.gz               every dispatch, for ui.perfetto.dev
  attnperf profile before/ --against after/                 the effect of a change
  attnperf profile out/ --workload attn_fwd=prefill-b4-s4096-h32-d128-f16-causal   what binds this kernel
  attnperf profile out/ --claims report.json                are the figures of a report possible?
  attnperf profile .attnperf/results.json --plot roof.svg   what binds each profiled case
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf profile` to its parser."""
    parser.add_argument("path", type=Path, nargs="?", metavar="PATH", help="folder or file; not needed with --claims")
    parser.add_argument(
        "--against", type=Path, metavar="PATH", help="a second profile, taken after a change or elsewhere"
    )
    parser.add_argument(
        "--claims", type=Path, metavar="FILE", help="figures of a report as JSON or YAML (docs/profiling.md)"
    )
    parser.add_argument("--run", default="", metavar="PREFIX", help="which run, if a folder holds several")
    parser.add_argument(
        "--device", default="", metavar="NAME", help="device that it ran on, e.g. MI300X (default: as in the files)"
    )
    parser.add_argument("--against-device", default="", metavar="NAME", help="--device of the second profile")
    parser.add_argument(
        "--peaks",
        default="",
        metavar="FIGURES",
        help="peaks of a device without a data sheet: mem_gb_s=212,f16_tflops=36.9,measured",
    )
    parser.add_argument("--against-peaks", default="", metavar="FIGURES", help="--peaks of the second profile")
    parser.add_argument("--families", type=Path, metavar="FILE", help="own rules, applied first (docs/profiling.md)")
    parser.add_argument(
        "--warm-up",
        type=int,
        metavar="N",
        help="leave out the first N passes (without passes: dispatches of each kernel)",
    )
    parser.add_argument("--passes", type=int, metavar="N", help="profiled forward passes (default: inferred)")
    parser.add_argument("--layers", type=int, metavar="N", help="layers of the model (default: inferred)")
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        metavar="TEXT",
        help="for results.json: show cases with TEXT only; may be repeated",
    )
    parser.add_argument(
        "--workload",
        action="append",
        default=[],
        metavar="KERNEL=ID",
        help="workload ID of kernels with KERNEL in their name: shows what binds them; may be repeated",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="for --workload or results.json: draw a roofline as .svg or .png"
    )
    parser.add_argument(
        "--counters", type=Path, metavar="PATH", help="add counters from a rocprofv3 --pmc run of the same program"
    )
    add_page(parser)
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="write a trace for ui.perfetto.dev, as .json or .json.gz"
    )
    parser.add_argument("--all", action="store_true", help="show every kernel, not only the longest")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print Markdown")


def run(options: argparse.Namespace) -> int:
    """Prints where time goes in a profile: tables, JSON, a comparison or checked claims. Returns 1 if a claim is
    contradicted, else 0. Raises UsageError and ProfileError, which name the option or the file."""
    _refuse_unused(options)
    if options.path is None:
        return _claims_alone(options)
    if _is_results(options.path):
        from pytest_attnperf.cli.profile_output import print_results

        return print_results(options)
    analysed = _analyse_path(options.path, options, options.device)
    summary = _with_counters(analysed.summary, options)
    findings = _judge_claims(options, summary)
    if options.against is not None:
        return _print_comparison(options, summary)
    bounds = _compute_bounds(options, summary)
    if options.plot is not None:
        write_roofline(options.plot, [(found.name, found.verdict) for found in bounds], str(options.path))
    write_profile(options, replace(analysed, summary=summary), bounds, findings)
    if options.json:
        asked = {"bounds": bounds} if options.workload else {}
        write_json({"profile": summary, **asked, **({"claims": findings} if options.claims is not None else {})})
    else:
        _print_profile(options, summary, bounds, _claim_lines(options, findings))
    return _choose_status(findings)


def _with_counters(summary: ProfileSummary, options: argparse.Namespace) -> ProfileSummary:
    """Returns the summary with the counters of --counters, another run, added. Raises UsageError if it has none."""
    if options.counters is None:
        return summary
    from pytest_attnperf.tools.profilers.reading import read_profile

    counters = read_profile(options.counters).counters
    if not counters:
        raise UsageError(f"--counters {options.counters} holds no counters; rocprofv3 --pmc writes them")
    return replace(summary, counters=(*summary.counters, *counters))


def _print_profile(
    options: argparse.Namespace, summary: ProfileSummary, bounds: Sequence[KernelBound], claims: Sequence[str]
) -> None:
    from pytest_attnperf.reports.run.profile_cases import kernel_bound_lines, kernel_bound_table
    from pytest_attnperf.tools.profilers.profile_text import LEGEND, conclusion_lines, profile_lines, profile_tables

    lines = [*profile_lines(summary), *LEGEND]
    tables = profile_tables(summary, shown=len(summary.kernels) if options.all else SHOWN)
    tables += [kernel_bound_table(bounds)] if bounds else []
    write_result(options, lines, tables, [*kernel_bound_lines(bounds), *conclusion_lines(summary), *claims])


def _compute_bounds(options: argparse.Namespace, summary: ProfileSummary) -> tuple[KernelBound, ...]:
    """Returns what limits each kernel that --workload names (compute, memory, ...), on --device or else the profile's
    device; () without --workload."""
    if not options.workload:
        return ()
    from pytest_attnperf.tools.profilers.devices import choose_spec
    from pytest_attnperf.tools.profilers.kernel_bounds import kernel_bounds

    spec = choose_spec(options.device, summary.agents)
    return kernel_bounds(summary, [_parse_work(text) for text in options.workload], spec, _find_ceilings(spec))


def _parse_work(text: str) -> KernelWork:
    """Returns the kernel and workload of 'attn_fwd=prefill-b1-s512-h8-d64-f16'. Raises UsageError for another form,
    WorkloadError for a bad id."""
    from pytest_attnperf.records import WorkloadFigures
    from pytest_attnperf.tools.profilers.kernel_bounds import KernelWork
    from pytest_attnperf.workloads.families import parse_workload

    name, sign, identity = text.partition("=")
    if not (name and sign and identity):
        raise UsageError(f"--workload {text!r}: expected KERNEL=ID, e.g. attn_fwd=prefill-b4-s512-h8-d64-f16-causal")
    work = parse_workload(identity)
    figures = WorkloadFigures(work.flops, work.bytes_min, work.dtype, work.cache_state, work.definition())
    return KernelWork(name, work.id, figures)


def _find_ceilings(spec: DeviceSpec | None) -> DeviceCeilings | None:
    from pytest_attnperf.baselines.ceilings_store import ceilings_for
    from pytest_attnperf.records import DeviceInfo

    if spec is None or not spec.products:
        return None
    device = DeviceInfo("", spec.arch, spec.products[0], compute_units=spec.compute_units)
    return ceilings_for(BASELINES, device)


def _refuse_unused(options: argparse.Namespace) -> None:
    """Raises UsageError for options that are invalid, or would have no effect on this PATH."""
    if options.path is None and options.claims is None:
        raise UsageError("attnperf profile needs a PATH, or --claims FILE; see attnperf profile --help")
    for name in ("claims", "workload", "counters"):
        if options.against is not None and getattr(options, name):
            raise UsageError(f"--{name} is for one profile only: drop --against")
    for name in ("warm_up", "passes", "layers"):
        value, least = getattr(options, name), 0 if name == "warm_up" else 1
        if value is not None and value < least:
            raise UsageError(f"--{name.replace('_', '-')} {value} must be at least {least}")
    if options.plot is not None and options.plot.suffix.lower() not in PLOT_SUFFIXES:
        raise UsageError(f"--plot {options.plot}: the name must end in {' or '.join(PLOT_SUFFIXES)}")
    results = options.path is not None and _is_results(options.path)
    check_trace(options, is_results=results)
    own = (
        ("case",)
        if not results
        else ("against", "claims", "workload", "counters", "run", "warm_up", "passes", "layers")
    )
    if not results and options.plot is not None and not options.workload:
        raise UsageError("--plot needs a known workload: add --workload KERNEL=ID, or give a results.json")
    for name in ("against_device", "peaks", "against_peaks"):
        if options.against is None and getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} is for comparing two profiles: add --against")
    if options.path is None:
        own = (*own, "workload", "counters", "run", "warm_up", "passes", "layers", "device", "families", "all")
    for name in own:
        value = getattr(options, name)
        if value is not False and value not in (None, "", []):
            alone = options.path is None and name != "case"
            of = "a profiler's files" if results or alone else "a results.json of pytest --attnperf --attnperf-profile"
            is_not = "no PATH is given" if options.path is None else f"{options.path} is not that"
            raise UsageError(f"--{name.replace('_', '-')} is for {of}, but {is_not}; drop it")


def _is_results(path: Path) -> bool:
    """Returns whether a file is our results.json. Torch's traces are JSON too, but begin with other fields."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(SNIFFED_BYTES)
    return head.lstrip()[:1] == b"{" and b'"schema"' in head and b'"mode"' in head and b"traceEvents" not in head


def _analyse_path(path: Path, options: argparse.Namespace, device: str) -> AnalysedProfile:
    from pytest_attnperf.tools.profilers.devices import apply_spec, choose_spec, find_named_spec
    from pytest_attnperf.tools.profilers.kernel_families import FamilyRules
    from pytest_attnperf.tools.profilers.profile_summary import analyse_profile
    from pytest_attnperf.tools.profilers.reading import read_profile

    profile = read_profile(path, run=options.run)
    if device:
        profile = apply_spec(profile, find_named_spec(device))
    return analyse_profile(
        replace(profile, name=str(path)),
        rules=FamilyRules.load(options.families) if options.families is not None else None,
        warm_up=options.warm_up,
        passes=options.passes,
        layers=options.layers,
        device=choose_spec(device, profile.agents),
    )


def _choose_peaks(text: str, name: str, agents: Sequence[Agent]) -> Peaks | None:
    """Returns the peaks in `text`, an option of the user. If that is '', returns those in the data sheet of the device
    `name` or, if that is '' too, of the GPUs among the profile's `agents`; None if no sheet fits."""
    from pytest_attnperf.tools.profilers.devices import choose_spec
    from pytest_attnperf.tools.profilers.peak_ratios import Peaks, spec_peaks

    if text:
        return Peaks.parse(text)
    spec = choose_spec(name, agents)
    return None if spec is None else spec_peaks(spec)


def _claims_alone(options: argparse.Namespace) -> int:
    findings = _judge_claims(options, None)
    write_claims(options, findings)
    if options.json:
        write_json({"claims": findings})
    else:
        write_result(options, [f"claims: {options.claims}"], [], _claim_lines(options, findings))
    return _choose_status(findings)


def _judge_claims(options: argparse.Namespace, summary: ProfileSummary | None) -> tuple[ProfileFinding, ...]:
    if options.claims is None:
        return ()
    from pytest_attnperf.tools.profilers.claims.claims_page import assess_report, read_claims

    return assess_report(read_claims(options.claims), summary)


def _claim_lines(options: argparse.Namespace, findings: Sequence[ProfileFinding]) -> list[str]:
    from pytest_attnperf.tools.profilers.claims.claims_page import finding_lines

    return finding_lines(findings) if options.claims is not None else []


def _choose_status(findings: Sequence[ProfileFinding]) -> int:
    return 1 if any(found.holds is False for found in findings) else 0


def _print_comparison(options: argparse.Namespace, before: ProfileSummary) -> int:
    from pytest_attnperf.reports.text.figures import one_line
    from pytest_attnperf.tools.profilers.profile_comparison import (
        TEXT_LIMIT,
        compare_profiles,
        comparison_lines,
        comparison_tables,
    )

    after = _analyse_path(options.against, options, options.against_device or options.device).summary
    found: ProfileComparison = compare_profiles(
        before,
        after,
        before_peaks=_choose_peaks(options.peaks, options.device, before.agents),
        after_peaks=_choose_peaks(options.against_peaks, options.against_device, after.agents),
    )
    problems = [
        one_line(f"problem: {problem}", TEXT_LIMIT) for summary in (before, after) for problem in summary.problems
    ]
    write_comparison(options, found, problems)
    if options.json:
        write_json({"before": before, "after": after, "comparison": found})
        return 0
    shown = len(found.kernels) if options.all else SHOWN
    write_result(options, comparison_lines(found), comparison_tables(found, shown=shown), problems)
    return 0
