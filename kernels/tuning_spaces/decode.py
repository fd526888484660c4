"""What is tried of flash decoding: keys per tile and stages (bytes in flight) against programs that share the keys."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.configs import Problem, Rule
from kernels.triton.decode.builds import DecodeKernel, DecodeReduceKernel
from kernels.triton.decode.space import REDUCE_SPACE, SPACE, problem_of
from kernels.tuning_spaces.declared import Declared, Values, fits_shared, number, under
from kernels.tuning_spaces.target import Target
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.tuning_records import Constraint
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.decode import Decode

DECODE = frozenset({"decode"})


def splits(workloads: Sequence[Decode], target: Target) -> Values:
    """Of the kernel that walks over the keys. PROGRAMS is for all multiprocessors together, so it is large."""
    return {
        "BLOCK_N": (32, 64, 128) if target.amd else (32, 64, 128, 256),
        "PROGRAMS": (608, 1216, 2432) if target.amd else (528, 1056, 2112),
        "SPLIT_KEYS_MIN": (256, 512),
        "num_warps": target.warps(2, 4, 8),
        "num_stages": (1, 2) if target.amd else (2, 3, 4),
        **target.options(matrix=False),
    }


def conditions(workloads: Sequence[Decode], target: Target) -> tuple[Constraint, ...]:
    """Keys and values of the widest cache."""
    row_bytes = max(each.head_dim * _cache_bytes(each) for each in workloads)
    return fits_shared(target, lambda values: number(values, "BLOCK_N") * row_bytes)


def builds(workload: Decode, arch: str, rule: Rule) -> Sequence[KernelBuild]:
    """The kernel that walks over the keys."""
    return [under(DecodeKernel().build_of(arch, workload), rule)]


def reduce_problem(workload: Decode) -> Problem:
    """What a rule of the reduction is chosen by."""
    return {"head_dim": workload.head_dim}


def reduction(workloads: Sequence[Decode], target: Target) -> Values:
    """Of the kernel that joins the splits."""
    return {
        "BLOCK_SPLITS": (8, 16, 32, 64),
        "num_warps": target.warps(1, 2, 4, 8),
        "num_stages": (1, 2),
        **target.options(matrix=False),
    }


def reduce_builds(workload: Decode, arch: str, rule: Rule) -> Sequence[KernelBuild]:
    """The kernel that joins the splits."""
    return [under(DecodeReduceKernel().build_of(arch, workload.head_dim), rule)]


def _cache_bytes(workload: Decode) -> int:
    return DTYPE_BYTES[workload.dtype] if not workload.kv_dtype else 1


DECLARED = (
    Declared(SPACE, DECODE, problem_of, splits, conditions, builds),
    Declared(REDUCE_SPACE, DECODE, reduce_problem, reduction, lambda workloads, target: (), reduce_builds),
)
