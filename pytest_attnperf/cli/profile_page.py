"""Pages and traces of `attnperf profile`: what it prints, as a file to look at."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.output import asks_page, write_page
from pytest_attnperf.errors import UsageError
from pytest_attnperf.reports.text.figures import one_line

if TYPE_CHECKING:
    from pytest_attnperf.records.profile_changes import ProfileComparison
    from pytest_attnperf.records.profiles import CaseProfile, ProfileFinding, ProfileSummary
    from pytest_attnperf.records.rooflines import KernelBound
    from pytest_attnperf.reports.html.sections import Section
    from pytest_attnperf.results import CaseResult
    from pytest_attnperf.tools.profilers.analysed_profile import AnalysedProfile

NAME = "profile"
"""Page that --open writes without --html."""

TITLE_LIMIT = 200


def check_trace(options: argparse.Namespace, *, is_results: bool) -> None:
    """Raises UsageError for a --trace that has another ending, or that this PATH cannot give."""
    if options.trace is None:
        return
    from pytest_attnperf.tools.profilers.trace_export import check_trace_name

    check_trace_name(options.trace)
    if options.path is None:
        raise UsageError(f"--trace {options.trace} needs a PATH with a profiler's trace; add it, or drop --trace")
    if options.against is not None:
        raise UsageError("--trace is for one profile only: drop --against")
    if is_results:
        raise UsageError(
            f"--trace {options.trace}: {options.path} holds durations without start times; give a profiler's trace"
        )


def write_profile(
    options: argparse.Namespace,
    analysed: AnalysedProfile,
    bounds: Sequence[KernelBound],
    findings: Sequence[ProfileFinding],
) -> None:
    """Writes the trace and the page of one profile that the options ask for. Raises UsageError for a profile without
    start times if a trace is asked for."""
    if options.trace is not None:
        from pytest_attnperf.tools.profilers.trace_export import write_trace

        count = write_trace(options.trace, analysed)
        where = one_line(str(options.trace), 1000)
        sys.stderr.write(f"written: {where}, {count:,} dispatches; open it at https://ui.perfetto.dev\n")
    if not asks_page(options):
        return
    from pytest_attnperf.tools.profilers.page.profile_sections import build_sections

    sections = build_sections(analysed, bounds)
    write_page(options, NAME, _make_title(options.path), [*sections, *_build_claims(options, findings)])


def write_claims(options: argparse.Namespace, findings: Sequence[ProfileFinding]) -> None:
    """Writes the page of checked claims without a profile, if the options ask for one."""
    if asks_page(options):
        write_page(options, NAME, "Claims", _build_claims(options, findings))


def write_comparison(options: argparse.Namespace, found: ProfileComparison, problems: Sequence[str]) -> None:
    """Writes the page of two profiles, if the options ask for one."""
    if not asks_page(options):
        return
    from pytest_attnperf.tools.profilers.page.comparison_sections import build_comparison_sections

    title = f"{_make_title(options.path)} against {one_line(str(options.against), TITLE_LIMIT)}"
    write_page(options, NAME, title, build_comparison_sections(found, problems))


def write_cases(
    options: argparse.Namespace,
    found: Sequence[tuple[CaseResult, CaseProfile]],
    detailed: Sequence[tuple[CaseResult, ProfileSummary]],
    device: str,
) -> None:
    """Writes the page of the profiled cases of a run, if the options ask for one."""
    if not asks_page(options):
        return
    from pytest_attnperf.tools.profilers.page.profile_sections import build_case_sections

    write_page(options, NAME, _make_title(options.path), build_case_sections(found, detailed, device))


def _make_title(path: Path) -> str:
    return f"Profile {one_line(str(path), TITLE_LIMIT)}"


def _build_claims(options: argparse.Namespace, findings: Sequence[ProfileFinding]) -> list[Section]:
    if options.claims is None:
        return []
    from pytest_attnperf.tools.profilers.page.profile_sections import build_claim_sections

    return build_claim_sections(findings, str(options.claims))
