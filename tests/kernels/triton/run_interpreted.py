"""Runs `triton.flash` under Triton's interpreter; PATH ID... saves {id: outputs} to PATH for the tests beside it.

Triton decides at import whether it interprets, so this is a process of its own, with TRITON_INTERPRET=1 from outside.
"""

from __future__ import annotations

import sys

import torch

from kernels.triton.prefill import TritonFlash
from pytest_attnperf.workloads.prefill import Prefill

BACKEND = TritonFlash("triton.flash")


def main(path: str, ids: list[str]) -> None:
    """Save the outputs of every id, on the inputs of seed 1."""
    results = {}
    for text in ids:
        workload = Prefill.parse(text)
        prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cpu", planted=True))
        pinned = BACKEND.pinned(prepared.config | {"BLOCK_N": "16"})
        replayed = pinned.prepare(workload, workload.make_inputs(1, "cpu", planted=True)).config
        outputs = prepared.outputs(prepared.run())
        results[text] = {"outputs": outputs, "config": prepared.config, "replayed": replayed}
    torch.save(results, path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
