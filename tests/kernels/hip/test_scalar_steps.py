"""Steps 1 to 4 of the HIP ladder as kernels: any order of threads, tiles of other sizes, scratch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kernels.hip.emulator import EmulationError, load, missing_emulator
from kernels.hip.sources import HipKernel
from kernels.hip.steps import problem_defines
from pytest_attnperf.workloads.prefill import Prefill

FUNCTIONS = {
    "01_naive.hip": "attention_naive",
    "02_lds_tiles.hip": "attention_lds_tiles",
    "03_flash.hip": "attention_flash",
    "04_vectorised.hip": "attention_vectorised",
}
KEEPS_SCORES = ("01_naive.hip", "02_lds_tiles.hip")
TILES = {
    "01_naive.hip": {"BLOCK_M": 32},
    "02_lds_tiles.hip": {"BLOCK_M": 8, "BLOCK_N": 32, "THREADS": 128},
    "03_flash.hip": {"BLOCK_M": 16, "BLOCK_N": 32, "THREADS": 256},
    "04_vectorised.hip": {"BLOCK_M": 16, "BLOCK_N": 96, "THREADS": 128},
}
"""Sizes that no shipped configuration has."""

RUNS: tuple[tuple[str, str, str, Mapping[str, Mapping[str, int]]], ...] = (
    ("gfx942", "reverse", "prefill-b2-s37-kv101-h4-hk2-d96-bf16-causal-lse", {}),
    ("gfx1100", "shuffled-1", "prefill-b1-s67-kv33-h3-hk1-d40-f16-causal-lse", {}),
    ("sm_90", "shuffled-2", "prefill-b1-s19-kv70-h2-d64-f16", TILES),
)
"""More keys than queries, and more queries than keys, so that rows see none; a head that fills no power of two of
lanes, one with a rest of 16 lanes; no mask and other tiles."""

UNEMULATED = missing_emulator()
needs_emulator = pytest.mark.skipif(bool(UNEMULATED), reason="; ".join(UNEMULATED))


def shape_of(file: str, head_dim: int, tiles: Mapping[str, int]) -> tuple[int, int]:
    """Query rows and threads of a workgroup: as the files state their defaults, unless `tiles` says otherwise."""
    rows = {"01_naive.hip": 128, "04_vectorised.hip": 32 if head_dim <= 128 else 16}.get(file, 16)
    rows = tiles.get("BLOCK_M", rows)
    return rows, tiles.get("THREADS", {"01_naive.hip": rows, "04_vectorised.hip": rows * 8}.get(file, 256))


def outputs_of(file: str, workload: Prefill, tensors: Any, scores: int, *, tiles: Mapping[str, int], **how: Any) -> Any:
    """What a step writes, emulated with `scores` floats of scratch; what it does not write is NaN."""
    import torch

    rows, threads = shape_of(file, workload.head_dim, tiles)
    defines = problem_defines(workload) | {name: str(value) for name, value in tiles.items()}
    out = torch.full_like(tensors[0], float("nan"))
    lse = torch.full((workload.batch, workload.heads, workload.seq_q), float("nan"))
    scratch = torch.full((max(scores, 1),), float("nan"))
    sizes = (workload.seq_q, workload.seq_kv, workload.heads, workload.kv_heads)
    kernel = load(HipKernel(file, FUNCTIONS[file], threads, defines), **how)
    kernel((-(-workload.seq_q // rows), workload.heads, workload.batch), *tensors, out, lse, scratch, *sizes)
    return {"out": out, "lse": lse} if workload.lse else {"out": out}


@needs_emulator
@pytest.mark.parametrize(("arch", "order", "text", "tiles"), RUNS)
@pytest.mark.parametrize("file", FUNCTIONS)
def test_right_in_any_order_of_threads(
    file: str,
    arch: str,
    order: str,
    text: str,
    tiles: Mapping[str, Mapping[str, int]],
    judged_outputs: Callable[..., tuple[str, ...]],
) -> None:
    """Checked for races and bounds, with the scratch that the file's header asks for, results are within the budget."""
    pytest.importorskip("torch")
    workload = Prefill.parse(text)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    scores = workload.batch * workload.heads * workload.seq_q * workload.seq_kv if file in KEEPS_SCORES else 0
    got = outputs_of(file, workload, inputs, scores, tiles=tiles.get(file, {}), arch=arch, order=order)
    assert judged_outputs(workload, inputs, got) == ()


@needs_emulator
@pytest.mark.parametrize("file", KEEPS_SCORES)
def test_the_first_steps_need_the_scratch(file: str) -> None:
    """A float less than the header asks for is a store beyond the end, at a line of the file."""
    pytest.importorskip("torch")
    workload = Prefill.parse("prefill-b1-s19-kv70-h2-d64-f16")
    inputs = workload.make_inputs(1, "cpu", planted=False)
    with pytest.raises(EmulationError, match=rf"{file}:\d+: .*'?scores'?"):
        outputs_of(file, workload, inputs, 2 * 19 * 70 - 1, tiles=TILES[file], arch="sm_90")
