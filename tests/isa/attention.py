"""Attention kernels of this repository, compiled and executed on small problems, beside a float64 reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from kernels.hip.prefill_builds import KERNELS as HIP_KERNELS
from kernels.triton.prefill.builds import KERNELS as TRITON_KERNELS
from pytest_attnperf.codeobject.building import build_object, unsupported_reasons
from pytest_attnperf.codeobject.built import Built, object_bytes
from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.isa.launch import Execution, Output, execute
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.kernel_builds import KernelBuild

Edit = Callable[[tuple[Instruction, ...]], tuple[Instruction, ...]]

ROUNDING = {"f16": 2.0**-11, "bf16": 2.0**-8}
"""Relative rounding error of an element."""

LSE_ERROR = 1e-5
"""Absolute, of a log-sum-exp beyond 1 relative."""


@dataclass(frozen=True)
class Problem:
    """Sizes of an attention problem, and the factor of its scores, which are normally distributed; rows see keys up to
    their own, bottom-right aligned, if `causal`."""

    seq_q: int = 64
    seq_kv: int = 64
    heads: int = 2
    kv_heads: int = 1
    batch: int = 1
    spread: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """Largest errors of the result, and of the log-sum-exp where the kernel stores it, in units of what is allowed."""

    error: float
    lse_error: float | None
    complete: bool
    execution: Execution

    @property
    def right(self) -> bool:
        """Whether every element was written and is within its error."""
        return self.complete and self.error <= 1 and (self.lse_error is None or self.lse_error <= 1)


@dataclass(frozen=True)
class Compiled:
    """A declared build and its code object."""

    build: KernelBuild
    built: Built

    @property
    def dtype(self) -> str:
        """Its element type."""
        return "bf16" if "bf16" in self.build.config else "f16"

    def run(self, problem: Problem, *, seed: int = 0, edit: Edit | None = None) -> Outcome:
        """Executes the kernel and compares it with float64."""
        head_dim = int(self.build.config.replace("-", "_").split("_")[0][1:])
        inputs = [round_to(one, self.dtype) for one in draw_inputs(problem, head_dim)]
        out = Output(np.zeros(inputs[0].shape, inputs[0].dtype), "out")
        lse = Output(np.zeros((problem.batch, problem.heads, problem.seq_q), np.float32), "lse")
        grid, block, arguments = (self._hip_launch if self.build.kernel.startswith("hip") else self._triton_launch)(
            problem, head_dim
        )
        executed = execute(
            object_bytes(self.built), self.built.kernel, grid, block, [*inputs, out, lse, *arguments],
            dynamic_lds_bytes=self.built.lds_dynamic_bytes, seed=seed, edit=edit,
        )  # fmt: skip
        wide = [widen(one, self.dtype) for one in inputs]
        expected, expected_lse = reference(wide[0], wide[1], wide[2], causal="causal" in self.build.config)
        return self._compare(executed, expected, expected_lse)

    def _hip_launch(self, problem: Problem, head_dim: int) -> tuple[tuple[int, int, int], tuple[int, int, int], list]:
        settings = {name: int(value) for name, value in self.build.settings.items()}
        rows = settings.get("BLOCK_M") or settings["WAVES"] * 16 * settings.get("ROW_TILES", 1)
        scores = Output(np.zeros((problem.batch, problem.heads, problem.seq_q, problem.seq_kv), np.float32), "scores")
        sizes = [problem.seq_q, problem.seq_kv, problem.heads, problem.kv_heads]
        grid = (-(-problem.seq_q // rows), problem.heads, problem.batch)
        return grid, (self.built.threads, 1, 1), [scores, *sizes]

    def _triton_launch(
        self, problem: Problem, head_dim: int
    ) -> tuple[tuple[int, int, int], tuple[int, int, int], list]:
        rows = int(self.build.settings["BLOCK_M"])
        sizes = [problem.heads, problem.kv_heads, problem.seq_q, problem.seq_kv]
        scale = math.log2(math.e) / math.sqrt(head_dim)
        return (
            (problem.batch * problem.heads, -(-problem.seq_q // rows), 1),
            (self.built.threads, 1, 1),
            [*sizes, scale],
        )

    def _compare(self, executed: Execution, expected: Array, expected_lse: Array) -> Outcome:
        found, found_lse = executed.arrays[3], executed.arrays[4]
        written, written_lse = executed.written[3], executed.written[4]
        assert found is not None
        assert found_lse is not None
        assert written is not None
        assert written_lse is not None
        # One rounding of the weights and one of the result, each relative to the largest value.
        allowed = 2 * ROUNDING[self.dtype] * float(np.abs(expected).max())
        error = np.abs(widen(found, self.dtype) - expected).max() / allowed
        with np.errstate(invalid="ignore"):
            away = np.where(found_lse == expected_lse, 0, np.abs(found_lse - expected_lse))
            away = away / np.maximum(1, np.abs(expected_lse))
        lse = float(np.nan_to_num(away, nan=np.inf).max()) / LSE_ERROR if written_lse.any() else None
        complete = bool(written.all() and (written_lse.all() or not written_lse.any()))
        # NaN compares as wrong.
        return Outcome(float(np.nan_to_num(error, nan=np.inf)), lse, complete, executed)


def round_to(values: Array, dtype: str) -> Array:
    """Values as fp16, or as the bits of bf16 in uint16."""
    if dtype == "f16":
        return values.astype(np.float16)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widen(values: Array, dtype: str) -> Array:
    """The same as float64."""
    if dtype == "f16":
        return values.astype(np.float64)
    return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def draw_inputs(problem: Problem, head_dim: int) -> list[Array]:
    """Normally distributed q (B, Sq, H, D), k and v (B, Skv, Hk, D)."""
    random = np.random.default_rng(1)
    keys = (problem.batch, problem.seq_kv, problem.kv_heads, head_dim)
    shapes = ((problem.batch, problem.seq_q, problem.heads, head_dim), keys, keys)
    q, k, v = (random.standard_normal(shape) for shape in shapes)
    return [q * problem.spread, k, v]


def reference(q: Array, k: Array, v: Array, *, causal: bool) -> tuple[Array, Array]:
    """Attention and its log-sum-exp in float64; of a row without keys zeros, and minus infinity."""
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, axis=2), np.repeat(v, group, axis=2)
    scores = np.einsum("bshd,blhd->bhsl", q, k) / math.sqrt(q.shape[3])
    if causal:
        last = np.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
        scores = np.where(np.arange(k.shape[1])[None] <= last, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (largest + np.log(total))[..., 0]
    return np.einsum("bhsl,blhd->bshd", weights / np.where(total > 0, total, 1), v), lse


def compile_build(name: str, cache: Path) -> Compiled:
    """The declared build of that id, compiled; the test is skipped where it cannot be."""
    arch = name.rpartition("-")[2]
    found = [build for kernel in (*HIP_KERNELS, *TRITON_KERNELS) for build in kernel.builds(arch) if build.id == name]
    assert found, f"no build {name}"
    if reasons := unsupported_reasons(found[0]):
        pytest.skip("; ".join(reasons))
    return Compiled(found[0], build_object(found[0], cache))


def dropped(places: set[int]) -> Edit:
    """An edit that replaces the instructions at these places by one that does nothing."""

    def edit(instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        return tuple(
            replace(one, mnemonic="s_nop", operands="0", target=None, falls_through=True) if place in places else one
            for place, one in enumerate(instructions)
        )

    return edit
