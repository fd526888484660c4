"""`attnperf stages`: where the time of calls goes, stage by stage, and staged attention against fused, from results."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.reports.run.stages import Groups
    from pytest_attnperf.reports.text.wide_tables import Table
    from pytest_attnperf.results import RunResult

GROUP = "deeper"
ORDER = 140
SUMMARY = "where a call's time goes: stages, launches, first call; staged against fused"
DESCRIPTION = "Where the time of calls goes, stage by stage, and staged attention against fused."

CPU_BACKEND = "layer.plain"
NOTE_LIMIT = 300

EPILOG = f"""RESULTS is what pytest --attnperf wrote: cases of tests that say breakdown=True have stages. With --cpu,
each backend is held to {CPU_BACKEND} on the CPU of that run (pytest --attnperf --attnperf-device=cpu). Where qk_scores,
causal_mask, row_softmax and weighted_values were measured beside prefill, their sums are held against fused kernels.

exit status: 0 printed, 2 the command or a file is off

examples:
  attnperf stages .attnperf/results.json
  attnperf stages gpu.json --cpu cpu.json --workload block-b1-s512-e4096-h32-hk8-d128-bf16 --markdown
"""


@dataclass(frozen=True)
class CpuTimes:
    """`layer.plain` of another run: microseconds by workload, and the CPU's name."""

    device: str
    times_us: dict[str, float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what can be typed behind the command."""
    parser.add_argument("results", type=Path, metavar="RESULTS", help="the results.json of a run that measured")
    parser.add_argument("--cpu", type=Path, metavar="RESULTS", help=f"a run on a CPU that holds times of {CPU_BACKEND}")
    parser.add_argument(
        "--workload", action="append", default=[], metavar="ID", help="show this one only; may be repeated"
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown")


def run(options: argparse.Namespace) -> int:
    """Print the tables. Raises UsageError, and ResultsFileError for a file that cannot be read."""
    from pytest_attnperf.reports.run.staged import LEGEND as STAGED_LEGEND
    from pytest_attnperf.reports.run.staged import staged_tables
    from pytest_attnperf.reports.run.stages import LEGEND, WIDTH, groups_of
    from pytest_attnperf.reports.text.wide_tables import markdown, terminal

    results, where = _read(options.results), str(options.results)
    _refuse_unknown(results, options.workload)
    groups = {
        title: cases
        for title, cases in groups_of(results.cases).items()
        if not options.workload or cases[0].key.workload in options.workload
    }
    staged = staged_tables(results.cases, options.workload)
    if not groups and not staged:
        raise UsageError(_nothing(results, where, options.workload))
    cpu = _cpu_times(options.cpu, results) if options.cpu is not None else None
    lines = [_device_line(results.device), *(LEGEND if groups else ()), *((STAGED_LEGEND,) if staged else ())]
    lines += [f"CPU: {cpu.device}, {CPU_BACKEND}"] if cpu is not None else []
    if cpu is not None and (lacking := [w for w in _workloads(groups) if w not in cpu.times_us]):
        lines.append(f"no time of {CPU_BACKEND} on the CPU: {', '.join(lacking)}")
    tables = [*_tables(groups, cpu), *staged]
    if not staged:
        lines.append("staged against fused: no case of the stages of a prefill that is here, too")
    said = markdown(lines, tables) if options.markdown else terminal(lines, tables, WIDTH)
    sys.stdout.write(f"{said}\n")
    return 0


def _workloads(groups: Groups) -> list[str]:
    """Of family block, which the CPU's backend is of, each once."""
    found = dict.fromkeys(cases[0].key.workload for cases in groups.values())
    return [workload for workload in found if workload.startswith("block-")]


def _tables(groups: Groups, cpu: CpuTimes | None) -> list[Table]:
    """Of each workload an overview, its speeds over the CPU, and every backend's stages in full."""
    from pytest_attnperf.reports.run.stages import WIDTH, fitting, in_full, over_cpu

    tables = []
    for title, cases in groups.items():
        tables.append(fitting(title, cases, WIDTH))
        if cpu is not None and cases[0].key.workload in cpu.times_us:
            tables.append(over_cpu(title, cases, cpu.times_us.get(cases[0].key.workload), CPU_BACKEND))
        tables += [in_full(title, case) for case in cases if case.breakdown is not None and case.breakdown.stages]
    return tables


def _cpu_times(path: Path, results: RunResult) -> CpuTimes:
    """Raises UsageError for results of something else than a CPU, and for none of what is wanted."""
    from pytest_attnperf.reports.run.ladder_cases import is_timed

    found = _read(path)
    if found.device is None or found.device.kind != "cpu":
        raise UsageError(
            f"{path} was measured on {_device(found.device)}; --cpu wants a run on a CPU: pytest --attnperf "
            "--attnperf-device=cpu"
        )
    times_us = {
        case.key.workload: case.median_us
        for case in found.cases
        if case.key.backend == CPU_BACKEND and case.median_us is not None and is_timed(case)
    }
    wanted = {case.key.workload for case in results.cases if case.breakdown is not None}
    if not wanted & times_us.keys():
        has = ", ".join(times_us) or "none"
        raise UsageError(
            f"{path} has no time of {CPU_BACKEND} on a workload whose stages are shown; it has times of it on: {has}"
        )
    return CpuTimes(_device(found.device), times_us)


def _refuse_unknown(results: RunResult, names: Sequence[str]) -> None:
    workloads = dict.fromkeys(case.key.workload for case in results.cases)
    for name in names:
        if name not in workloads:
            raise UnknownNameError("workload", name, workloads)


def _nothing(results: RunResult, where: str, chosen: Sequence[str]) -> str:
    of = f" of {', '.join(chosen)}" if chosen else ""
    return (
        f"{where} holds no stages{of} (mode {results.mode!r}, {len(results.cases)} cases): stages are timed by "
        "pytest --attnperf for tests that say breakdown=True, and attention is held against its stages where a prefill "
        "and the families qk_scores, row_softmax and weighted_values of the same sizes were measured"
    )


def _device_line(device: DeviceInfo | None) -> str:
    return f"device: {_device(device)}"


def _device(device: DeviceInfo | None) -> str:
    from pytest_attnperf.reports.text.figures import one_line

    if device is None:
        return "a device that is not known"
    return one_line(f"{device.name or device.product} ({device.arch})", NOTE_LIMIT)


def _read(path: Path) -> RunResult:
    from pytest_attnperf.reports.files import json_results

    return json_results.read(path)
