"""Output of `attnperf profile`: tables for a terminal, Markdown, JSON (records field by field) and roofline files. For
a results.json it prints what binds the cases that pytest profiled, and the kernels of each."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.cli.output import count_columns
from pytest_attnperf.cli.profile_page import write_cases
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.notes import Note
from pytest_attnperf.records.profiles import Agent, CaseProfile, ProfileSource
from pytest_attnperf.reports.text.figures import printable_json
from pytest_attnperf.results import CaseResult
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_attnperf.records.profiles import ProfileSummary
    from pytest_attnperf.records.rooflines import BoundVerdict
    from pytest_attnperf.reports.text.wide_tables import Table
    from pytest_attnperf.results import RunResult

WIDTH = 120
"""Columns of output that goes to a file or a pipe."""

SHOWN = 15
"""Kernels in a table without --all."""

PROFILE_FORMAT = 1
"""Version of the JSON. It increases when a field is renamed or changes its meaning."""


def write_result(
    options: argparse.Namespace, above: Sequence[str], tables: Sequence[Table], below: Sequence[str]
) -> None:
    """Prints the lines `above`, the tables and the lines `below`: as Markdown with --markdown, else as text."""
    from pytest_attnperf.reports.text.wide_tables import render_markdown_tables, render_terminal_tables

    if options.markdown:
        said = "\n\n".join(filter(None, (render_markdown_tables(above, tables), render_markdown_tables(below, ()))))
    else:
        width = count_columns(WIDTH)
        said = "\n\n".join(
            filter(None, (render_terminal_tables(above, tables, width), render_terminal_tables(below, (), width)))
        )
    sys.stdout.write(f"{said}\n")


def write_json(content: dict[str, object]) -> None:
    """Prints records, by name, as JSON to standard output, all fields of each."""

    sys.stdout.write(profile_json(content))


def write_roofline(path: Path, named: Sequence[tuple[str, BoundVerdict | None]], title: str) -> None:
    """Draws a roofline into `path`, with a point for each named verdict that has one. Raises UsageError if none has."""
    from pytest_attnperf.tools.profilers.roofline_plot import write_plot

    points = [
        (name, found.point, found.bound) for name, found in named if found is not None and found.point is not None
    ]
    if not points:
        raise UsageError("--plot: nothing has both a time and known work, so there is no point to draw; drop --plot")
    write_plot(path, points, title)
    sys.stderr.write(f"wrote {path}\n")


def profile_json(content: Mapping[str, object]) -> str:
    """Returns records by name as indented JSON, fields in their order. An infinite gain becomes "Infinity"."""
    import msgspec

    values = _replace_infinite(
        {"format": PROFILE_FORMAT, **msgspec.to_builtins(dict(content), enc_hook=_encode_note_text)}
    )
    return printable_json(msgspec.json.format(msgspec.json.encode(values), indent=2).decode()) + "\n"


def _encode_note_text(value: object) -> str:
    """Returns the text of a Note, without its kind, for msgspec. Raises NotImplementedError for another type."""
    if not isinstance(value, Note):
        raise NotImplementedError(f"no JSON is known of {type(value)}")
    return value.text


def _replace_infinite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _replace_infinite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_infinite(item) for item in value]
    return value


def print_results(options: argparse.Namespace) -> int:
    """Prints what binds each case that pytest profiled; also its kernels, if there is one case or --case selects some.
    Writes JSON or a chart by option. Returns 0. Raises UsageError if no case was profiled."""
    from pytest_attnperf.reports.files import json_results
    from pytest_attnperf.reports.run.profile_cases import LEGEND, bound_table, detail_lines, list_profiled, reason_lines

    where = str(options.path)
    results = json_results.read(options.path)
    found = [pair for pair in list_profiled(results.cases) if _is_chosen(pair[0], options.case)]
    _refuse_other_device(options.device, results)
    if not found:
        raise UsageError(_nothing_profiled(results, where, options.case))
    if options.plot is not None:
        named = [(case.key.entry, profile.bound) for case, profile in found]
        write_roofline(options.plot, named, _format_device(results))
    detailed = found if options.json or options.case or len(found) == 1 else []
    summaries = [(case, _case_summary(case, profile, options, results.device)) for case, profile in detailed]
    write_cases(options, found, summaries, _format_device(results))
    if options.json:
        write_json(
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
        below.append("to see the kernels add --case TEXT, a part of a case's name")
    below += [line for pair in detailed for line in detail_lines(*pair)]
    from pytest_attnperf.tools.profilers.profile_text import profile_tables

    for case, summary in summaries:
        own = profile_tables(summary, shown=len(summary.kernels) if options.all else SHOWN)
        own = own[1:] if len(summary.kernels) == 1 else own
        tables += [replace(table, title=f"{case.key.entry}: {table.title}") for table in own]
    write_result(options, [f"device: {_format_device(results)}", LEGEND], tables, below)
    return 0


def _refuse_other_device(name: str, results: RunResult) -> None:
    """Raises UsageError if --device is unknown, or is of another architecture than the device of the results."""
    from pytest_attnperf.tools.profilers.devices import choose_spec

    spec = choose_spec(name, ())
    if spec is not None and results.device is not None and spec.arch != results.device.arch:
        raise UsageError(
            f"--device {spec.name} is {spec.arch}, but the results are of {_format_device(results)}; drop --device"
        )


def _is_chosen(case: CaseResult, texts: Sequence[str]) -> bool:
    return not texts or any(text in str(case.key) for text in texts)


def _case_summary(
    case: CaseResult, profile: CaseProfile, options: argparse.Namespace, device: DeviceInfo | None
) -> ProfileSummary:
    from pytest_attnperf.tools.profilers.devices import choose_spec
    from pytest_attnperf.tools.profilers.kernel_families import FamilyRules
    from pytest_attnperf.tools.profilers.profile_summary import summarise_profile

    rules = FamilyRules.load(options.families) if options.families is not None else None
    read = _profile_of_case(case, profile, str(options.path), device)
    summary = summarise_profile(
        read, rules=rules, warm_up=0, passes=profile.calls, device=choose_spec(options.device, read.agents)
    )
    return replace(summary, busy_ns=None, span_ns=None)


def _nothing_profiled(results: RunResult, where: str, chosen: Sequence[str]) -> str:
    of = f" with {' or '.join(map(repr, chosen))} in its name" if chosen else ""
    return (
        f"{where} holds no profiled case{of} (mode {results.mode!r}, {len(results.cases)} cases); "
        "pytest --attnperf --attnperf-profile profiles them"
    )


def _format_device(results: RunResult) -> str:
    from pytest_attnperf.reports.text.figures import one_line

    device = results.device
    return (
        "a device that is not known" if device is None else one_line(f"{device.name or device.product} ({device.arch})")
    )


def _profile_of_case(case: CaseResult, profile: CaseProfile, where: str, device: DeviceInfo | None = None) -> Profile:
    """Returns a case's kernels as a `Profile` whose dispatches have no gaps: the file has no start times.

    device   that the run measured on; describes the agents that the kernels name
    """
    builder = DispatchesBuilder()
    now = 0
    for kernel in profile.kernels:
        number = builder.number_of(kernel.shape)
        for duration in kernel.durations_ns:
            builder.add(number, now, now + duration)
            now += duration
    return Profile(
        name=f"{case.key}",
        sources=(ProfileSource(where, "torch.profiler", profile.device, len(builder)),),
        dispatches=builder.build(),
        agents=_list_agents(profile, device),
        notes=(f"{profile.calls} calls after the warm-up; the order of kernels within a call is not kept",),
    )


def _list_agents(profile: CaseProfile, device: DeviceInfo | None) -> tuple[Agent, ...]:
    if device is None or device.kind == "cpu":
        return ()
    names = dict.fromkeys(kernel.shape.agent for kernel in profile.kernels if kernel.shape.kind == "kernel")
    return tuple(
        Agent(name, "gpu", device.arch, device.name or device.product, device.compute_units or None) for name in names
    )
