"""Backend `triton.staged`: attention as four kernels with whole matrices in global memory, as before fused kernels.

Scores, mask, softmax, weighted values: each kernel is independent, replaceable, and an op family of its own. Triton is
imported in `prepare` only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.configs import ConfigChoice, Problem, Space
from kernels.configured import Configured
from kernels.limits import FLOATS
from kernels.staged_backend import StagedBackend, StagedWorkload, StageKernel, StageProblem
from kernels.triton.prefill.launch import HEAD_DIM_MAX
from kernels.triton.staged.checks import KEYS_MAX
from kernels.triton.staged.space import CAUSAL_MASK, QK_SCORES, ROW_SOFTMAX, SPACES, WEIGHTED_VALUES
from kernels.triton.triton_backend import INTERPRETER_FLOPS_MAX, arch_of, compile_ahead, missing_triton
from pytest_attnperf.backends import Declares, Prepared
from pytest_attnperf.workloads.base import DTYPE_BYTES, TORCH_DTYPES

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo

Run = Callable[..., "Tensors"]

SPACE_OF = {
    "qk_scores": QK_SCORES,
    "causal_mask": CAUSAL_MASK,
    "row_softmax": ROW_SOFTMAX,
    "weighted_values": WEIGHTED_VALUES,
}
"""Stage -> its kernel's configuration space."""

PRODUCTS = frozenset({"qk_scores", "weighted_values"})


@dataclass(frozen=True)
class TritonStaged(Configured, StagedBackend):
    """fp32, fp16 and bf16, causal (bottom-right), grouped K/V heads, any lengths, head dimensions to 256 (Dv may
    differ), log-sum-exp; fp32 scores, weights rounded to the dtype. tf32 is multiplied as fp32. Within a layer q, k and
    v may be views of any strides whose heads are whole.
    """

    spaces = SPACES
    dtypes = FLOATS

    def missing_reasons(self, device: DeviceInfo) -> list[str]:
        """Returns why Triton or, without a GPU, its interpreter is missing; empty if it can run."""
        return missing_triton(device)

    def stage_reasons(self, problem: StageProblem, stage: str, device: DeviceInfo) -> list[str]:
        """Returns reasons against head dimensions above HEAD_DIM_MAX, and more than KEYS_MAX keys."""
        found = []
        if problem.head_dim > HEAD_DIM_MAX:
            found.append(
                f"{self.name} takes head dimensions up to {HEAD_DIM_MAX}, {stage} has one of {problem.head_dim}"
            )
        if problem.seq_kv > KEYS_MAX:
            found.append(f"{self.name} takes up to {KEYS_MAX:,} keys, not {problem.seq_kv:,}")
        return found

    def stage_kernel(self, stage: str, problem: StageProblem, device: torch.device) -> StageKernel:
        """Returns the stage's kernel in this architecture's configuration from the data files, or in the pinned one."""
        space = SPACE_OF[stage]
        choice = self.choose(space, arch_of(device), chosen_by(stage, problem))
        return StageKernel(
            run=_name_config_errors(_LAUNCHERS[stage](problem, choice), space, choice),
            config=self.config_entries({space.kernel: choice}),
            declares=Declares(
                kernels=(f"{space.kernel}_kernel",),
                never=("scaled_dot_product",),
                matrix=stage in PRODUCTS and problem.dtype not in ("f32", "tf32"),
            ),
        )

    def prepare(self, workload: StagedWorkload, inputs: Tensors) -> Prepared:
        """Prepares as `StagedBackend` does, but within a layer reads q, k and v in place, without a copy."""
        return dataclasses.replace(super().prepare(workload, inputs), arguments=_as_they_lie)


def chosen_by(stage: str, problem: StageProblem) -> Problem:
    """Returns the properties, name -> value, by which the rules of a stage's configuration space are chosen."""
    rows = problem.batch * problem.heads * problem.seq_q
    known: Problem = {
        "head_dim": problem.head_dim,
        "element_bits": 8 * DTYPE_BYTES[problem.dtype],
        "rows": rows,
        "columns": problem.seq_kv,
        "pairs": rows * problem.seq_kv,
    }
    return {name: known[name] for name in SPACE_OF[stage].properties}


def _name_config_errors(launch: Run, space: Space, choice: ConfigChoice) -> Run:
    """Returns a function that calls `launch`. If that needs more than the device has, it raises KernelConfigError
    naming the file."""
    from triton.runtime.errors import OutOfResources

    def run_stage(*tensors: torch.Tensor) -> Tensors:
        try:
            return launch(*tensors)
        except OutOfResources:
            compile_ahead(launch, tensors, space, choice)
            raise

    return run_stage


def _qk_scores(problem: StageProblem, choice: ConfigChoice) -> Run:
    from kernels.triton.staged.qk_scores import qk_scores

    config = choice.config

    def run_stage(q: torch.Tensor, k: torch.Tensor) -> Tensors:
        return (qk_scores(q, k, config=config),)

    return run_stage


def _causal_mask(problem: StageProblem, choice: ConfigChoice) -> Run:
    from kernels.triton.staged.causal_mask import causal_mask

    config = choice.config

    def run_stage(scores: torch.Tensor) -> Tensors:
        return (causal_mask(scores, config=config),)

    return run_stage


def _row_softmax(problem: StageProblem, choice: ConfigChoice) -> Run:
    import torch

    from kernels.triton.staged.row_softmax import row_softmax

    config, dtype = choice.config, getattr(torch, TORCH_DTYPES[problem.dtype])

    def run_stage(scores: torch.Tensor) -> Tensors:
        weights, lse = row_softmax(scores, dtype=dtype, causal=problem.causal, with_lse=problem.lse, config=config)
        return (weights,) if lse is None else (weights, lse)

    return run_stage


def _weighted_values(problem: StageProblem, choice: ConfigChoice) -> Run:
    from kernels.triton.staged.weighted_values import weighted_values

    config = choice.config

    def run_stage(weights: torch.Tensor, v: torch.Tensor) -> Tensors:
        return (weighted_values(weights, v, causal=problem.causal, config=config),)

    return run_stage


_LAUNCHERS: dict[str, Callable[[StageProblem, ConfigChoice], Run]] = {
    "qk_scores": _qk_scores,
    "causal_mask": _causal_mask,
    "row_softmax": _row_softmax,
    "weighted_values": _weighted_values,
}
"""Stage -> function that makes the timed call in a configuration: it allocates the results and launches the kernel."""


def _as_they_lie(canonical: Tensors) -> Tensors:
    return canonical


BACKENDS = (TritonStaged("triton.staged", INTERPRETER_FLOPS_MAX, times_on_cpu=False),)
