"""The tuning space of matrix multiplication: tiles, stages, warps, rows of tiles at a time, and how tiles are read."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.configs import ConfigRule
from kernels.triton.gemm.builds import KERNELS
from kernels.triton.gemm.space import SPACE, problem_of
from kernels.tuning_spaces.declared import Declared, Values, get_number, shared_constraints, tile_constraint
from kernels.tuning_spaces.target import Target
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.tuning_records import Constraint
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.gemm import Gemm

DESCRIPTORS_FROM = 90
"""Since sm_90 the tensor memory accelerator copies tensor descriptors; earlier GPUs and AMD use loads."""
FEW_ROWS = 16


def tile_values(workloads: Sequence[Gemm], target: Target) -> Values:
    """Returns constant or option -> values to try, by rows of a and element bytes. Few rows (up to 16) are bound by
    memory and need long tiles along K."""
    size = max(DTYPE_BYTES[each.dtype] for each in workloads)
    few = all(each.size_m <= FEW_ROWS for each in workloads)
    # int32 is multiplied as int8, which takes at least 32 along K on NVIDIA (PTX ISA, mma.m16n8k32).
    single = (32, 64) if any(each.dtype == "i32" for each in workloads) else (16, 32, 64)
    along_k: tuple[int, ...] = {1: (64, 128, 256), 2: (32, 64, 128), 4: single}[size]
    described = not target.is_amd and int(target.arch[3:].rstrip("af")) >= DESCRIPTORS_FROM and size < 4
    return {
        "BLOCK_M": (16,) if few else (64, 128) if size == 4 else (64, 128, 256),
        "BLOCK_N": (32, 64, 128) if few else (64, 128) if size == 4 else (64, 128, 256),
        "BLOCK_K": tuple(2 * each for each in along_k) if few else along_k,
        "GROUP_M": (8,) if few else (4, 8),
        "DESCRIPTORS": (False, True) if described else (False,),
        "num_warps": target.possible_warps(4, 8),
        "num_stages": (1, 2) if target.is_amd else (2, 3, 4),
        **target.option_values(matrix=True, waves=(0, 2)),
    }


def list_constraints(workloads: Sequence[Gemm], target: Target) -> tuple[Constraint, ...]:
    """Returns the constraints that the accumulators of a tile fit the registers, and its operands, of the widest
    elements, fit shared memory."""
    size = max(DTYPE_BYTES[each.dtype] for each in workloads)
    return (
        tile_constraint(
            target, lambda values: get_number(values, "BLOCK_M") * get_number(values, "BLOCK_N"), "the accumulator"
        ),
        *shared_constraints(
            target,
            lambda values: (
                (get_number(values, "BLOCK_M") + get_number(values, "BLOCK_N")) * get_number(values, "BLOCK_K") * size
            ),
        ),
    )


def make_builds(workload: Gemm, arch: str, rule: ConfigRule) -> Sequence[KernelBuild]:
    """Returns a list of one: the build of `triton.gemm` for the workload, with the rule's values."""
    kernel = next(each for each in KERNELS if each.name == "triton.gemm")
    return [kernel.build_under(arch, workload, rule)]


DECLARED = (Declared(SPACE, frozenset({"gemm"}), problem_of, tile_values, list_constraints, make_builds),)
