"""Runs one call of a backend by the interpreter of machine code, judges it, and prints what was launched."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.output import say
from pytest_attnperf.environment.device import interpreted_gpu
from pytest_attnperf.errors import UnsupportedError
from pytest_attnperf.measure.executing import NOT_TIMED, ExecutedLaunch, Executor, executing

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.isa.launch import Execution
    from pytest_attnperf.workloads.base import Workload


def execute_once(backend: Backend, workload: Workload, arch: str, cache: Path, *, check: bool) -> int:
    """Executes one call for `arch` and prints its launches. Returns 1, and prints why, if the backend does not support
    the workload, the interpreter lacks an instruction, or the call is wrong; else 0.

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
    say("one call launches:" if executor.launches else "nothing was launched to its end")
    for line in executed_lines(executor.launches):
        say(f"  {line}")
    from pytest_attnperf.tools.execution.counters_text import format_counters

    for name, execution in _heaviest_launches(executor.launches).items():
        say(f"\n{name}: {format_counters(execution)}")
    return status


def _heaviest_launches(launches: Iterable[ExecutedLaunch]) -> dict[str, Execution]:
    """Returns kernel -> the launch of it that executed most instructions."""
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
