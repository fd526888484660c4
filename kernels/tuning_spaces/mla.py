"""The tuning space of latent attention over whole sequences: tiles, and a program per block or a persistent grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernels.configs import ConfigRule, pad_size
from kernels.triton.mla.builds import PERSISTENT_KERNEL, PREFILL_KERNEL, is_persistent
from kernels.triton.mla.space import PREFILL, prefill_problem
from kernels.tuning_spaces.declared import Declared, Values, get_number, shared_constraints, tile_constraint
from kernels.tuning_spaces.target import Target
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.tuning_records import Constraint, Value
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.mla import Mla


def tile_values(workloads: Sequence[Mla], target: Target) -> Values:
    """Returns constant or option -> values to try. A GRID_CU_MULTIP of 0 is a grid with a program per block of rows."""
    wide = max(DTYPE_BYTES[each.dtype] for each in workloads) == 4
    return {
        "BLOCK_M": (16, 32) if wide else (16, 32, 64, 128),
        "BLOCK_N": (16, 32) if wide else (16, 32, 64),
        "BLOCK_D": (16, 32),
        "RELOAD": (False,) if target.is_amd else (False, True),
        "GRID_CU_MULTIP": (0, 1, 2),
        "num_warps": target.possible_warps(4, 8),
        "num_stages": (1,) if target.is_amd else (1, 2),
        **target.option_values(matrix=False),
    }


def list_constraints(workloads: Sequence[Mla], target: Target) -> tuple[Constraint, ...]:
    """Returns the constraints on scores per warp, registers and shared memory, for the largest latents and the widest
    elements."""
    latent = max(pad_size(each.latent_dim) for each in workloads)
    key_bytes = max((each.latent_dim + each.rope_dim) * DTYPE_BYTES[each.dtype] for each in workloads)

    def one_each(values: Mapping[str, Value]) -> bool:
        return get_number(values, "BLOCK_M") * get_number(values, "BLOCK_N") >= 256 * get_number(values, "num_warps")

    return (
        Constraint("fewer than 16 x 16 scores for a warp", one_each),
        tile_constraint(target, lambda values: get_number(values, "BLOCK_M") * latent, f"an accumulator of C={latent}"),
        *shared_constraints(target, lambda values: get_number(values, "BLOCK_N") * key_bytes),
    )


def prefill_builds(workload: Mla, arch: str, rule: ConfigRule) -> Sequence[KernelBuild]:
    """Returns a list of one: the build of the kernel that the rule's grid has, with the rule's values."""
    kernel = PERSISTENT_KERNEL if is_persistent(rule) else PREFILL_KERNEL
    return [kernel.build_of(arch, workload, rule)]


DECLARED = (Declared(PREFILL, frozenset({"mla"}), prefill_problem, tile_values, list_constraints, prefill_builds),)
