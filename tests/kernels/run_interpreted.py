"""Runs cases under Triton's interpreter: each line [MODULE, PATH, CASE] of JSON on stdin saves what is found of it to
PATH, and is answered by a line of JSON: null, or the traceback.

Triton decides at import whether it interprets, so this is a process of its own, with TRITON_INTERPRET=1 from outside.
MODULE holds `found(case)`, or `BACKENDS`, and then a case is 'backend/workload id'. Fresh memory is NaN, so that an
element nobody wrote shows.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import time
import traceback
import warnings
from contextlib import redirect_stdout
from types import SimpleNamespace
from typing import Any

import torch

from pytest_attnperf.backends import replay_choice
from pytest_attnperf.workloads.families import parse_workload
from pytest_attnperf.workloads.garbage import place_garbage

SEED = 1


def main() -> None:
    """Answer each line until there is none."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.simplefilter("ignore")
    remember_builtins()
    for line in sys.stdin:
        said = None
        try:
            with redirect_stdout(sys.stderr):
                name, path, case = json.loads(line)
                module = importlib.import_module(name)
                torch.save(module.found(case) if hasattr(module, "found") else of_backend(module.BACKENDS, case), path)
        except Exception:
            said = traceback.format_exc()
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


def remember_builtins() -> None:
    """Let the interpreter find once what it replaces in Triton's language.

    It looks through all of it whenever one function of a kernel calls another, which is a quarter of its time.
    """
    from triton.runtime import interpreter

    known: dict[Any, list[str]] = {}

    def getmembers(thing: Any) -> list[tuple[str, Any]]:
        if thing not in known:
            builtin = interpreter.tl.core.is_builtin
            known[thing] = [name for name, member in inspect.getmembers(thing) if builtin(member)]
        return [(name, getattr(thing, name)) for name in known[thing]]

    interpreter.inspect = SimpleNamespace(**{**vars(inspect), "getmembers": getmembers})


def of_backend(backends: Any, case: str) -> dict[str, Any]:
    """The outputs on inputs of seed 1 with NaN where nothing is read, the configuration, and whether the inputs are
    unchanged."""
    name, _, text = case.partition("/")
    (backend,) = (backend for backend in backends if backend.name == name)
    workload = parse_workload(text)
    began = time.perf_counter()
    inputs = workload.make_inputs(SEED, "cpu", planted=True)
    prepared = backend.prepare(workload, place_garbage(workload, inputs, SEED).inputs)
    before = [tensor.clone() for tensor in prepared.tensors]
    outputs = {name: tensor.clone() for name, tensor in prepared.outputs(prepared.run()).items()}
    replayed = replay_choice(backend, prepared.config)
    return {
        "outputs": outputs,
        "config": prepared.config,
        "replays": getattr(replayed, "pinned_choices", {}) != {},
        "unchanged": all(map(same_bits, before, prepared.tensors)),
        "seconds": time.perf_counter() - began,
    }


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes."""
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


if __name__ == "__main__":
    main()
