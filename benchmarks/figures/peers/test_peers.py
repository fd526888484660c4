"""The usual ways of timing the same calls, in one process: Triton's do_bench, and pytest-benchmark with a synchronize.

Run by `collect.py` in a fresh process for every unit; figures go to the file named by ATTNPERF_FIGURES_OUT, a JSON
line each. The plugin takes no part: these are plain calls of prepared backends.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "suite"))

from figures_cases import COPY, case_name, copy_bytes, groups, settings
from figures_copy import copy_of, source_of

DEVICE = settings()["device"]
CASES = [*(case for group in groups(DEVICE) for case in group.cases), ("gate", COPY)]


@functools.cache
def registry() -> Any:
    """This repository's backends."""
    import kernels
    from pytest_attnperf.backends import Registry

    filled = Registry()
    kernels.register(filled)
    return filled


def call_of(backend: str, workload: str) -> Callable[[], Any]:
    """The plain call of a case, its inputs bound."""
    if backend == "gate":
        size = copy_bytes(DEVICE)
        return functools.partial(copy_of(size), source_of(size, DEVICE)(1))
    from pytest_attnperf.environment.device import describe_device
    from pytest_attnperf.workloads.prefill import Prefill

    where = "cpu" if DEVICE == "cpu" else "cuda"
    problem, chosen = Prefill.parse(workload), registry().get(backend)
    if reasons := chosen.unsupported_reasons(problem, describe_device(where)):
        pytest.skip("; ".join(reasons))
    prepared = chosen.prepare(problem, problem.make_inputs(1, where, planted=False))
    return lambda: prepared.run()


def synchronize() -> None:
    """Wait for the GPU."""
    import torch

    if DEVICE != "cpu":
        torch.cuda.synchronize()


def write(method: str, case: tuple[str, str], us: float, device_s: float) -> None:
    """Append one figure."""
    line = {"method": method, "case": case_name(*case), "us": us, "device_s": device_s}
    with Path(os.environ["ATTNPERF_FIGURES_OUT"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.mark.skipif(DEVICE == "cpu", reason="do_bench times GPUs only")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case_name(*case))
def test_do_bench(case: tuple[str, str]) -> None:
    """The median that do_bench reports with its defaults, and how long it held the device."""
    from triton.testing import do_bench

    call = call_of(*case)
    call()
    synchronize()
    began = time.perf_counter()
    median_ms = do_bench(call, return_mode="median")
    synchronize()
    write("do_bench", case, 1e3 * median_ms, time.perf_counter() - began)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case_name(*case))
def test_synchronized(case: tuple[str, str], benchmark: Any) -> None:
    """The median of pytest-benchmark around a call and a synchronize, and how long it held the device."""
    call = call_of(*case)

    def waited() -> None:
        call()
        synchronize()

    waited()
    began = time.perf_counter()
    benchmark(waited)
    write("pytest_benchmark", case, 1e6 * benchmark.stats.stats.median, time.perf_counter() - began)
