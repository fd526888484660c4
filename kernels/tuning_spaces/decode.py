"""The tuning space of flash decoding: keys per tile and stages (bytes in flight), and programs that share the keys."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.configs import ConfigRule, Problem
from kernels.triton.decode.builds import DecodeKernel, DecodeReduceKernel
from kernels.triton.decode.space import REDUCE_SPACE, SPACE, problem_of
from kernels.tuning_spaces.declared import Declared, Values, get_number, shared_constraints, with_rule
from kernels.tuning_spaces.target import Target
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.tuning_records import Constraint
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.decode import Decode

DECODE = frozenset({"decode"})


def split_values(workloads: Sequence[Decode], target: Target) -> Values:
    """Returns constant or option -> values to try for the kernel that reads the keys. PROGRAMS counts all
    multiprocessors together, so it is large."""
    return {
        "BLOCK_N": (32, 64, 128) if target.is_amd else (32, 64, 128, 256),
        "PROGRAMS": (608, 1216, 2432) if target.is_amd else (528, 1056, 2112),
        "SPLIT_KEYS_MIN": (256, 512),
        "num_warps": target.possible_warps(2, 4, 8),
        "num_stages": (1, 2) if target.is_amd else (2, 3, 4),
        **target.option_values(matrix=False),
    }


def list_constraints(workloads: Sequence[Decode], target: Target) -> tuple[Constraint, ...]:
    """Returns the constraint that tiles of BLOCK_N keys or values that are loaded ahead, of the widest cache, fit
    shared memory."""
    row_bytes = max(each.head_dim * _cache_bytes(each) for each in workloads)
    return shared_constraints(target, lambda values: get_number(values, "BLOCK_N") * row_bytes)


def split_builds(workload: Decode, arch: str, rule: ConfigRule) -> Sequence[KernelBuild]:
    """Returns a list of one: the build of the kernel that reads the keys, with the rule's values."""
    return [with_rule(DecodeKernel().build_of(arch, workload), rule)]


def reduce_problem(workload: Decode) -> Problem:
    """Returns the properties by which a rule of the kernel that joins the splits is chosen: only the head dimension."""
    return {"head_dim": workload.head_dim}


def reduction_values(workloads: Sequence[Decode], target: Target) -> Values:
    """Returns constant or option -> values to try for the kernel that joins the results of the splits."""
    return {
        "BLOCK_SPLITS": (8, 16, 32, 64),
        "num_warps": target.possible_warps(1, 2, 4, 8),
        "num_stages": (1, 2),
        **target.option_values(matrix=False),
    }


def reduce_builds(workload: Decode, arch: str, rule: ConfigRule) -> Sequence[KernelBuild]:
    """Returns a list of one: the build of the kernel that joins the splits, with the rule's values."""
    return [with_rule(DecodeReduceKernel().build_of(arch, workload.head_dim), rule)]


def _cache_bytes(workload: Decode) -> int:
    return DTYPE_BYTES[workload.dtype] if not workload.kv_dtype else 1


DECLARED = (
    Declared(SPACE, DECODE, problem_of, split_values, list_constraints, split_builds),
    Declared(REDUCE_SPACE, DECODE, reduce_problem, reduction_values, lambda workloads, target: (), reduce_builds),
)
