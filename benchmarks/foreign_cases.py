"""A pytest plugin for foreign_breaks.py: serves the cases of a suite by what FOREIGN_CASES says.

    digest FILE             write what the case returns and writes, bit by bit
    honest FILE N MINUTES   judge the case on N seeds of planted inputs, or as many as the minutes allow, and count

Loaded instead of pytest-attnperf's own plugin, with `-p no:attnperf -p foreign_cases`. Where FOREIGN_CASES is not set
it stands beside that plugin, and only lets Triton interpret before a suite imports a package: with
--attnperf-isolate=none that is done at the first case, when kernels hold functions of libdevice that do nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Backend, Prepared
from pytest_attnperf.correctness import poison
from pytest_attnperf.measure import interpreting
from pytest_attnperf.measure.proving import Prover, forget_references
from pytest_attnperf.measure.seeds import Seeds, timed_seed
from pytest_attnperf.measure.torch_device import TorchDevice
from pytest_attnperf.plugin.fixtures import SERVER, CaseHandle
from pytest_attnperf.records import CheckReport
from pytest_attnperf.workloads.base import Workload

HAS_GPU = torch.cuda.is_available()
HERE = "cuda" if HAS_GPU else "cpu"
SERVES = "FOREIGN_CASES" in os.environ

PLANTED_SEEDS = 6
"""Planted inputs on which a broken kernel is compared with the kernel as it is."""


class Serving:
    """Stands where the plugin's own server stands."""

    def __init__(self) -> None:
        self.what, self.file, *self.numbers = os.environ["FOREIGN_CASES"].split()
        self.case = ""

    def serve_case(self, backend: Backend, workload: Workload) -> None:
        """Serve one case."""
        for each in filter(None, (workload, getattr(workload, "proven_with", None))):
            said = digest(backend, each) if self.what == "digest" else self.counted(backend, each)
            with open(self.file, "a") as file:
                file.write(json.dumps({"case": self.case} | said) + "\n")
        forget_references()

    def counted(self, backend: Backend, workload: Workload) -> dict[str, Any]:
        """Judge a case on many seeds, each time on planted inputs."""
        seeds, minutes = int(self.numbers[0]), float(self.numbers[1])
        device = TorchDevice.open("gpu" if HAS_GPU else "cpu", interpreted=not HAS_GPU).device
        prover = Prover(backend, workload, device, Seeds(timed_seed(workload), 1, 2))
        prepared = prepare(backend, workload)
        judge = prover.make_judge(prepared)
        started, accused, first, worst, seed = time.monotonic(), 0, "", 0.0, 0
        for seed in range(seeds):
            report = judge.check_call("planted inputs", prepared.run, seed=seed, planted=True)
            forget_references()
            worst = max(worst, nearness(report))
            accused += not report.right
            first = first or (f"seed {seed}: {report.problems[0]}" if report.problems else "")
            if time.monotonic() - started > 60 * minutes:
                break
        seconds = round(time.monotonic() - started)
        return {"seeds": seed + 1, "accused": accused, "worst": round(worst, 3), "seconds": seconds, "first": first}


def nearness(report: CheckReport) -> float:
    """How much of its budget the worst figure used."""
    pairs = [
        pair
        for figure in report.figures
        for pair in (
            (figure.max_error, figure.max_budget),
            (figure.rms_error, figure.rms_budget),
            (figure.line_error, figure.line_budget),
        )
    ]
    return max((error / budget for error, budget in pairs if budget > 0), default=0.0)


def prepare(backend: Backend, workload: Workload) -> Prepared:
    """The case's calls, on its timed inputs."""
    return backend.prepare(workload, workload.make_inputs(timed_seed(workload), HERE, planted=False))


def digest(backend: Backend, workload: Workload) -> dict[str, Any]:
    """Hashes of everything that calls return and of their inputs afterwards."""
    prepared, found = prepare(backend, workload), {}
    seeds = [(timed_seed(workload), False), *((seed, True) for seed in range(PLANTED_SEEDS))]
    for seed, planted in seeds:
        prepared.load(workload.make_inputs(seed, HERE, planted=planted))
        tensors = [*poison.tensors_in(prepared.run()), *prepared.tensors]
        raw = b"".join(_bytes(tensor) for tensor in tensors)
        found[f"{seed} {planted}"] = hashlib.sha256(raw).hexdigest()
    return found


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


def pytest_configure(config: pytest.Config) -> None:
    """Let Triton interpret where it must, and serve."""
    if not HAS_GPU:
        interpreting.start_interpreting()
    if SERVES:
        config.stash[SERVER] = Serving()


if SERVES:

    @pytest.fixture
    def attnperf(request: pytest.FixtureRequest) -> CaseHandle:
        """What the plugin gives a test, served from here."""
        server = request.config.stash[SERVER]
        assert isinstance(server, Serving)
        server.case = request.node.name
        return CaseHandle(request.config, request.node.name)
