"""`attnperf kernel run`: runs one backend on one workload in this process, for rocprofv3, nsys, ncu and debuggers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.option_groups import add_tests
from pytest_attnperf.cli.output import say
from pytest_attnperf.environment.device import interpreted_gpu
from pytest_attnperf.errors import UnknownNameError, UnsupportedError, UsageError, WorkloadError
from pytest_attnperf.measure import interpreting
from pytest_attnperf.measure.executing import NOT_TIMED, ExecutedLaunch, Executor, executing
from pytest_attnperf.workloads.families import Families, Family

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.isa.launch import Execution
    from pytest_attnperf.measure.single_run import SingleRun
    from pytest_attnperf.plugin.own_pytest import Registered
    from pytest_attnperf.records import Launch
    from pytest_attnperf.workloads.base import Workload

ORDER = 1
SUMMARY = "run one backend on one workload, for profilers and debuggers"
DESCRIPTION = "Runs one registered backend on one workload in this process, for profilers and debuggers."

EPILOG = """The workload is a line as --attnperf-workload takes it, or the id of a suite's case. Nothing is timed. The
calls run inside a profiler range named attnperf.

exit status: 0 it ran, 1 it is unsupported here or its result is wrong, 2 the command is invalid

examples:
  attnperf kernel run hip.flash --workload s=512,d=64,h=8
  attnperf kernel run hip.flash --seq-len 512 --head-dim 64 --num-heads 8
  rocprofv3 --kernel-trace -- attnperf kernel run hip.flash --workload s=4096,h=16,d=128,causal --calls 5
  ncu --nvtx --nvtx-include attnperf/ attnperf kernel run triton.flash --workload prefill-b1-s512-h8-d64-f16
"""


SIZES = (
    (("--seq-len",), "s", "s of --workload"),
    (("--head-dim",), "d", "d of --workload"),
    (("--num-heads", "--heads"), "h", "h of --workload"),
)
"""(options, key of a workload's line, help): the line of a workload as three options."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf kernel run` to its parser."""
    parser.add_argument("backend", help="name of a registered backend, e.g. hip.flash")
    parser.add_argument("--workload", metavar="LINE|ID", help="workload to run, e.g. s=512,d=64,h=8")
    for flags, key, what in SIZES:
        parser.add_argument(*flags, dest=key, type=int, metavar="N", help=what)
    parser.add_argument("--calls", type=int, default=20, metavar="N", help="calls in the range (default: 20)")
    parser.add_argument("--warmup", type=int, default=3, metavar="N", help="calls before it (default: 3)")
    parser.add_argument("--no-check", action="store_true", help="do not compare one call with the reference first")
    parser.add_argument(
        "--device", choices=("auto", "gpu", "cpu"), default="auto", help="run on it (default: a GPU if any)"
    )
    parser.add_argument(
        "--arch",
        default="",
        help="without a GPU of it, interpret the machine code of one call (default: none)",
    )
    add_tests(parser)


def run(options: argparse.Namespace) -> int:
    """Runs one backend on one workload in this process. Returns 1 if it is unsupported or its result wrong, else 0.
    Raises UsageError for invalid options."""
    for name, least in (("calls", 1), ("warmup", 0)):
        if getattr(options, name) < least:
            raise UsageError(f"--{name} {getattr(options, name)} must be at least {least}")
    options.workload = _read_workload(options)
    from pytest_attnperf.plugin.own_pytest import visit_project

    return visit_project(
        lambda registered: run_case(registered, options), options.tests, f"--attnperf-device={options.device}"
    )


def _read_workload(options: argparse.Namespace) -> str:
    """Returns the workload's line or id: --workload, or what the options of SIZES say. Raises UsageError for both, for
    neither, and for some of SIZES without the others."""
    given = [f"{key}={getattr(options, key)}" for _, key, _ in SIZES if getattr(options, key) is not None]
    names = ", ".join(flags[0] for flags, _, _ in SIZES)
    if options.workload is not None:
        if given:
            raise UsageError(f"--workload {options.workload} and {names} ({','.join(given)}) say the same; give one")
        return str(options.workload)
    missing = [flags[0] for flags, key, _ in SIZES if getattr(options, key) is None]
    if missing:
        raise UsageError(f"the workload lacks {', '.join(missing)}; give --workload LINE|ID, or {names}")
    return ",".join(given)


def run_case(registered: Registered, options: argparse.Namespace) -> int:
    """Runs the backend that the options name, on a GPU or else interpreted on the CPU. Returns 1, and prints why, if
    the backend does not support the workload or its result is wrong; else 0."""
    from pytest_attnperf.plugin.selection import find_backend
    from pytest_attnperf.plugin.session_setup import device_kind

    backend = find_backend(options.backend, registered.backends, registered.families)
    workload = choose_workload(options.workload, backend, registered.families)
    kind, reason = device_kind(registered.config)
    if options.arch and not (kind == "gpu" and _has_gpu_of(options.arch)):
        from pytest_attnperf.plugin.worker_session import COMPILED_CACHE

        cache = registered.config.rootpath / COMPILED_CACHE
        return execute_once(backend, workload, options.arch, cache, check=not options.no_check)
    if kind == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported: it cannot compile without a GPU
        say(f"runs on the CPU ({reason}): this says nothing about a GPU")
        interpreting.start_interpreting()
    from pytest_attnperf.measure.single_run import SingleRun

    case = SingleRun.make_here(backend, workload, on_gpu=kind == "gpu", interpreted=kind == "cpu")
    reasons = backend.unsupported_reasons(workload, case.device)
    return _print_unsupported(case, reasons) if reasons else _run_once(case, options)


def _has_gpu_of(arch: str) -> bool:
    from pytest_attnperf.environment.device import identify_device

    return identify_device("cuda").arch == arch


def _print_unsupported(case: SingleRun, reasons: Iterable[str]) -> int:
    say(f"{case.backend.name} does not run {case.workload.id} on {case.device.arch}: {'; '.join(reasons)}")
    return 1


def _run_once(case: SingleRun, options: argparse.Namespace) -> int:
    try:
        prepared = case.prepare()
    except UnsupportedError as error:
        return _print_unsupported(case, [str(error) or type(error).__name__])
    say(f"{case.backend.name} on {case.workload.id}, on {case.device.name or case.device.product} ({case.device.arch})")
    for name, value in sorted(prepared.config.items()):
        say(f"  {name}: {value}")
    launches, unknown = case.read_launches(prepared)
    say("one call launches:" if launches else f"what one call launches is not known: {unknown}")
    for line in launch_lines(launches):
        say(f"  {line}")
    if not launches and prepared.declares.kernels:
        say(f"  declared: {', '.join(prepared.declares.kernels)}")
    if not options.no_check:
        report = case.check(prepared)
        say("one call is right" if report.right else "one call is wrong:")
        for problem in report.problems:
            say(f"  {problem}")
        if not report.right:
            return 1
    case.repeat(prepared, options.warmup, options.calls)
    say(f"called {options.warmup} times, and {options.calls} times in the range 'attnperf'")
    return 0


def execute_once(backend: Backend, workload: Workload, arch: str, cache: Path, *, check: bool) -> int:
    """Executes one call for `arch` and prints its launches. Returns 1, and prints why, if the backend does not support
    the workload, the interpreter lacks an instruction, no kernel was launched, or the call is wrong; else 0.

    cache    folder of compiled objects
    check    whether the result is compared with the reference

    Raises UsageError for an architecture that cannot be executed, CodeObjectError for a kernel that does not compile.
    """
    with executing(Executor(arch, cache, record=True)) as executor:
        say(f"{NOT_TIMED}: {arch}, no GPU is used")
        reasons = backend.unsupported_reasons(workload, interpreted_gpu(arch))
        if reasons:
            say(f"{backend.name} does not run {workload.id} on {arch}: {'; '.join(reasons)}")
            return 1
        status = _call_once(backend, workload, executor, check=check)
    if not executor.launches and status == 0:
        say(
            f"no kernel was launched as machine code of {arch}, so this says nothing about {arch}: what torch or a "
            "library computes runs on this CPU; give a backend whose kernel is compiled here (attnperf list)"
        )
        return 1
    say("one call launches:" if executor.launches else "nothing was launched to its end")
    for line in executed_lines(executor.launches):
        say(f"  {line}")
    for name, execution in find_longest(executor.launches).items():
        from pytest_attnperf.tools.execution.counters_text import format_counters

        say(f"\n{name}: {format_counters(execution)}")
    return status


def find_longest(launches: Iterable[ExecutedLaunch]) -> dict[str, Execution]:
    """Returns kernel -> of its launches, the one that executed most instructions."""
    found: dict[str, Execution] = {}
    for one in launches:
        if one.kernel not in found or one.execution.instructions > found[one.kernel].instructions:
            found[one.kernel] = one.execution
    return found


def _call_once(backend: Backend, workload: Workload, executor: Executor, *, check: bool) -> int:
    from pytest_attnperf.isa.faults import ExecutionFault, UnknownInstructionError
    from pytest_attnperf.measure.build_proofs import judge_calls, prepare_executed

    device = interpreted_gpu(executor.arch)
    try:
        prepared = prepare_executed(backend, workload, device)
        say(f"{backend.name} on {workload.id}")
        for name, value in sorted(prepared.config.items()):
            say(f"  {name}: {value}")
        executor.launches.clear()
        if not check:
            prepared.run()
            return 0
        report = judge_calls(prepared, backend, workload, device, planted=False)
    except (UnknownInstructionError, UnsupportedError) as error:
        say(f"not executed: {error}")
        return 1
    except ExecutionFault as error:
        say(f"one call is wrong:\n  {error}")
        return 1
    say("one call is right" if report.right else "one call is wrong:")
    for problem in report.problems:
        say(f"  {problem}")
    return 0 if report.right else 1


def executed_lines(launches: Iterable[ExecutedLaunch]) -> list[str]:
    """Returns a line per launch: kernel, grid, block, LDS that the launch adds, lane-instructions and the seconds that
    the interpreter took."""
    return [
        f"{one.kernel}: grid {one.grid}, block {one.block}, {one.lds_dynamic_bytes:,} bytes of LDS by the launch, "
        f"{one.execution.lane_instructions:,} lane-instructions, interpreted in {one.execution.seconds:.1f} s"
        for one in launches
    ]


def choose_workload(text: str, backend: Backend, families: Families) -> Workload:
    """Returns the workload of `text`, an id or a line like 's=512,d=64,h=8' of a family of the backend. Raises
    UsageError if it matches none or several."""
    named = text.partition("-")[0]
    known = {family.name for family in families}
    if named in known and "-" in text:
        if named not in backend.families:
            raise UsageError(
                f"{backend.name} implements {_join_names(backend.families)}; {text} is a workload of {named}; "
                "give another workload or backend"
            )
        return families.parse_workload(text)
    if "=" not in text:
        raise UnknownNameError("family at the beginning of the workload", text, backend.families)
    read = [_parse_family_line(text, families.get(name)) for name in sorted(backend.families)]
    found = [workload for workload in read if not isinstance(workload, WorkloadError)]
    if not found:
        raise UsageError("; ".join(map(str, read)))
    if len(found) > 1:
        ids = _join_names(workload.id for workload in found)
        raise UsageError(f"{text} matches several workloads of {backend.name}: {ids}; give one id")
    return found[0]


def _parse_family_line(text: str, family: Family) -> Workload | WorkloadError:
    """Returns the family's workload for a line of text, or, not raised, the error that says why it is invalid."""
    try:
        return family.parse_line(text)
    except WorkloadError as error:
        return error


def launch_lines(launches: Iterable[Launch]) -> list[str]:
    """Returns a line per launch: name, grid, block and shared memory of a kernel; the bytes of a copy or set."""
    lines = []
    for one in launches:
        if one.kind != "kernel":
            lines.append(f"{one.name or one.kind}: {one.grid[0] if one.grid else 0:,} bytes")
            continue
        lines.append(f"{one.name}: grid {one.grid}, block {one.block}, {one.shared_bytes:,} bytes of shared memory")
    return lines


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
