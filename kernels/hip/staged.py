"""Backend `hip.staged`: attention as four kernels that keep whole matrices in global memory, as before fused kernels.

Scores, mask, softmax, weighted values: each kernel is independent, replaceable, and an op family of its own. Torch is
imported in `prepare` only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.hip.compiler import load, missing_hip
from kernels.hip.emulator import EMULATOR_FLOPS_MAX
from kernels.hip.sources import HipKernel, element_define
from kernels.limits import HALVES
from kernels.staged_backend import StagedBackend, StageKernel, StageProblem, problem_of, stages_of
from pytest_attnperf.backends import Declares
from pytest_attnperf.workloads.base import TORCH_DTYPES
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    import torch

    from kernels.hip.compiler import LaunchableKernel
    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo

THREADS = 256
TILE = 64
"""Rows, keys and dimensions of a tile in both products, as in the two .hip files."""


@dataclass(frozen=True)
class HipStaged(StagedBackend):
    """fp16 and bf16, causal (bottom-right), grouped K/V heads, any lengths, any head dimension (Dv may differ),
    log-sum-exp; fp32 scores, weights rounded to the element type.
    """

    dtypes = HALVES

    def missing_reasons(self, device: DeviceInfo) -> list[str]:
        """Returns what is missing to compile or emulate the kernels; empty if nothing is."""
        return missing_hip(device)

    def stage_kernel(self, stage: str, problem: StageProblem, device: torch.device) -> StageKernel:
        """Returns the stage's kernel, compiled for the problem, as a function that allocates its results."""
        kernel = kernel_of(stage, problem)
        return StageKernel(
            run=_LAUNCHERS[stage](load(kernel, device), problem),
            config={"files": kernel.file},
            declares=Declares(kernels=(stage,), never=("scaled_dot_product",)),
        )


def kernels_of(workload: Prefill) -> dict[str, HipKernel]:
    """Returns stage -> its kernel, in launch order, for a whole attention."""
    return {stage: kernel_of(stage, problem_of(workload, stage)) for stage in stages_of(workload)}


def kernel_of(stage: str, problem: StageProblem) -> HipKernel:
    """Returns the kernel of a stage with its macros; its file and function have the stage's name."""
    defines: dict[str, str] = {}
    if stage in ("qk_scores", "weighted_values"):
        defines["HEAD_DIM"] = str(problem.head_dim)
    if stage == "qk_scores":
        defines["SOFTMAX_SCALE"] = f"{1 / math.sqrt(problem.head_dim):.9g}f"
    if stage == "row_softmax":
        defines["WITH_LSE"] = str(int(problem.lse))
    if stage != "causal_mask":
        defines |= element_define(problem.dtype)
    return HipKernel(f"{stage}.hip", stage, THREADS, defines)


def _qk_scores(launch: LaunchableKernel, problem: StageProblem) -> Callable[..., Tensors]:
    import torch

    shape = _matrix_sizes(problem)
    grid = (_count_tiles(problem.seq_q) * _count_tiles(problem.seq_kv), problem.heads, problem.batch)

    def run_stage(q: torch.Tensor, k: torch.Tensor) -> Tensors:
        scores = torch.empty(shape, dtype=torch.float32, device=q.device)
        launch(grid, q, k, scores, problem.seq_q, problem.seq_kv, problem.heads, problem.kv_heads)
        return (scores,)

    return run_stage


def _causal_mask(launch: LaunchableKernel, problem: StageProblem) -> Callable[..., Tensors]:
    def run_stage(scores: torch.Tensor) -> Tensors:
        launch(_rows_grid(problem), scores, problem.seq_q, problem.seq_kv, problem.heads)
        return (scores,)

    return run_stage


def _row_softmax(launch: LaunchableKernel, problem: StageProblem) -> Callable[..., Tensors]:
    import torch

    shape = _matrix_sizes(problem)
    dtype: torch.dtype = getattr(torch, TORCH_DTYPES[problem.dtype])

    def run_stage(scores: torch.Tensor) -> Tensors:
        weights = torch.empty(shape, dtype=dtype, device=scores.device)
        lse = torch.empty(shape[:3], dtype=torch.float32, device=scores.device) if problem.lse else None
        # Without a log-sum-exp the kernel is compiled to ignore the pointer.
        given = scores if lse is None else lse
        launch(_rows_grid(problem), scores, weights, given, problem.seq_q, problem.seq_kv, problem.heads)
        return (weights,) if lse is None else (weights, lse)

    return run_stage


def _weighted_values(launch: LaunchableKernel, problem: StageProblem) -> Callable[..., Tensors]:
    import torch

    shape = (problem.batch, problem.seq_q, problem.heads, problem.head_dim)
    grid = (_count_tiles(problem.seq_q) * _count_tiles(problem.head_dim), problem.heads, problem.batch)

    def run_stage(weights: torch.Tensor, v: torch.Tensor) -> Tensors:
        out = torch.empty(shape, dtype=v.dtype, device=v.device)
        launch(grid, weights, v, out, problem.seq_q, problem.seq_kv, problem.heads, problem.kv_heads)
        return (out,)

    return run_stage


_LAUNCHERS: dict[str, Callable[[LaunchableKernel, StageProblem], Callable[..., Tensors]]] = {
    "qk_scores": _qk_scores,
    "causal_mask": _causal_mask,
    "row_softmax": _row_softmax,
    "weighted_values": _weighted_values,
}
"""Stage -> function that makes the timed `StageKernel.run`, which allocates results and launches the kernel."""


def _matrix_sizes(problem: StageProblem) -> tuple[int, int, int, int]:
    return problem.batch, problem.heads, problem.seq_q, problem.seq_kv


def _rows_grid(problem: StageProblem) -> tuple[int, int, int]:
    """Returns (Sq, H, B), the grid of a kernel with one workgroup per row."""
    return problem.seq_q, problem.heads, problem.batch


def _count_tiles(size: int) -> int:
    return -(-size // TILE)


BACKENDS = (HipStaged("hip.staged", EMULATOR_FLOPS_MAX, times_on_cpu=False),)
