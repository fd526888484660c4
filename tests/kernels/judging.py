"""What is wrong with the outputs of a backend, as the gate says it, and with what it declares."""

from __future__ import annotations

import re
from typing import Any

from pytest_attnperf.backends import Outputs
from pytest_attnperf.correctness.budget import list_problems
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.metrics import compare_output
from pytest_attnperf.correctness.references import Expected, References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.garbage import place_garbage


def find_wrong(backend: Any, workload: Workload, device: str = "cpu") -> tuple[str, ...]:
    """What is wrong with what a backend gives for planted inputs of seed 1, which hold NaN where nothing is read."""
    inputs = place_garbage(workload, workload.make_inputs(1, device, planted=True), 1).inputs
    expected = References().compute_expected(workload, inputs, seed=1, planted=True)
    prepared = backend.prepare(workload, inputs)
    return find_problems(expected, prepared.outputs(prepared.run()), backend.tolerance)


def find_problems(expected: Expected, outputs: Outputs, tolerance: Tolerance | None = None) -> tuple[str, ...]:
    """What is wrong with these outputs, which must be those that are expected."""
    truth, yardsticks, allowed = expected.reference, expected.yardsticks, tolerance or Tolerance()
    assert outputs.keys() == truth.keys()
    return list_problems([compare_output("one", n, outputs[n], truth[n], yardsticks[n], allowed) for n in truth])


def find_wrong_calls(backend: Any, workload: Workload, device: str) -> tuple[str, ...]:
    """What the judge finds wrong with a call of the backend on two draws of planted inputs."""
    prepared = backend.prepare(workload, workload.make_inputs(1, device, planted=True))
    judge = Judge(prepared, workload, references=References(), tolerance=backend.tolerance, device=device)
    reports = [judge.check_call(f"seed {seed}", prepared.run, seed=seed, planted=True) for seed in (1, 2)]
    return tuple(problem for report in reports for problem in report.problems)


def assert_runs_what_it_declares(backend: Any, workload: Workload) -> None:
    """Every declared operator is among those of a profile of the call on a CPU, and none that must never run."""
    from torch.profiler import ProfilerActivity, profile

    prepared = backend.prepare(workload, workload.make_inputs(0, "cpu", planted=False))
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        prepared.run()
    ran = {event.key for event in profiler.key_averages()}
    declares = prepared.declares
    assert declares.operators or declares.never
    assert all(any(re.search(pattern, name) for name in ran) for pattern in declares.operators)
    assert not any(re.search(pattern, name) for pattern in declares.never for name in ran)
