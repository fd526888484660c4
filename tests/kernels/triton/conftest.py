"""Triton's kernels without a GPU: their results under the interpreter, and the judge of them."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.correctness.budget import problems as problems_of
from pytest_attnperf.correctness.metrics import compare
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.families import parse_workload

ROOT = Path(__file__).parents[3]
SEED = 1
LIMIT_S = 300

Interpret = Callable[[str, Sequence[str]], dict[str, Any]]
Judge = Callable[..., tuple[str, ...]]


@pytest.fixture(scope="session")
def interpret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpret]:
    """`interpret(module, cases)` runs 'backend/workload id' cases of `module.BACKENDS` in an interpreting process.

    Gives by case: outputs, config (as recorded), replays, unchanged (the inputs), seconds. One process serves all
    modules: to import torch and triton takes as long as the cases of most.
    """
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("interpreted")
    command = [sys.executable, str(Path(__file__).with_name("run_interpreted.py"))]
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    with (
        (folder / "log").open("w") as log,
        Popen(command, env=env, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=log, text=True, bufsize=1) as process,
    ):

        def run(module: str, cases: Sequence[str]) -> dict[str, Any]:
            saved = folder / f"{module}.pt"
            problem = _asked(process, json.dumps([module, str(saved), cases]))
            assert problem is None, f"{problem}\n{(folder / 'log').read_text()}"
            return dict(torch.load(saved))

        yield run
        process.kill()


def _asked(process: Popen[str], line: str) -> str | None:
    """What the process answers to a line: None, or what went wrong."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(line + "\n")
    if not select.select([process.stdout], [], [], LIMIT_S)[0]:
        process.kill()
        return f"no answer within {LIMIT_S} s"
    answer = process.stdout.readline()
    said: str | None = json.loads(answer) if answer else "the process ended"
    return said


@pytest.fixture(scope="session")
def judge() -> Judge:
    """`judge(id, outputs, tolerance)` -> what is wrong with outputs for the inputs of seed 1, as the gate says it."""
    references = References()

    def run(text: str, outputs: Outputs, tolerance: Tolerance | None = None, device: str = "cpu") -> tuple[str, ...]:
        workload = parse_workload(text)
        inputs: Tensors = workload.make_inputs(SEED, device, planted=True)
        expected = references.get(workload, inputs, seed=SEED, planted=True)
        truth = expected.reference
        if outputs.keys() != truth.keys():
            return (f"gives {sorted(outputs)}, expected {sorted(truth)}",)
        return problems_of(
            [
                compare(
                    "interpreted", name, outputs[name], truth[name], expected.yardsticks[name], tolerance or Tolerance()
                )
                for name in truth
            ]
        )

    return run
