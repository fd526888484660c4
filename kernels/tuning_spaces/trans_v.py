"""The tuning space of the kernel over transposed values: few enough candidates for `triton.autotune` to time them all.

On AMD it holds the five configurations that ROCm/triton's python/perf-kernels/06-fused-attention-transV.py lets Triton
choose among (commit 1af893d8a277).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernels.configs import ConfigRule
from kernels.triton.trans_v.builds import KERNELS
from kernels.triton.trans_v.space import SPACE, problem_of
from kernels.tuning_spaces import prefill
from kernels.tuning_spaces.declared import Declared, Values, get_number
from kernels.tuning_spaces.target import Target
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.tuning_records import Constraint, Value
from pytest_attnperf.workloads.prefill import Prefill


def tile_values(workloads: Sequence[Prefill], target: Target) -> Values:
    """Returns constant or option -> values to try."""
    return {
        "BLOCK_M": (64, 128, 256) if target.is_amd else (64, 128),
        "BLOCK_N": (32, 64, 128) if target.is_amd else (64, 128),
        "PRELOAD_V": (False, True),
        "num_warps": target.possible_warps(4, 8),
        "num_stages": (1, 2) if target.is_amd else (2, 3),
        **target.option_values(matrix=False, waves=(2, 3)),
    }


def list_constraints(workloads: Sequence[Prefill], target: Target) -> tuple[Constraint, ...]:
    """Returns the constraints of `triton.flash`, and on AMD one that keeps the candidates few."""

    def is_usual(values: Mapping[str, Value]) -> bool:
        usual = get_number(values, "BLOCK_M") == 128 and get_number(values, "waves_per_eu") == 2
        return get_number(values, "num_stages") == 1 or (usual and not values["PRELOAD_V"])

    few = Constraint("two stages are tried with 128 rows, two waves and V loaded by its stage alone", is_usual)
    return (*prefill.list_constraints(workloads, target), *((few,) if target.is_amd else ()))


def trans_v_builds(workload: Prefill, arch: str, rule: ConfigRule) -> Sequence[KernelBuild]:
    """Returns a list of one: the build of `triton.flash_trans_v` for the workload, with the rule's values."""
    return [KERNELS[0].build_of(arch, workload, rule)]


DECLARED = (Declared(SPACE, frozenset({"prefill"}), problem_of, tile_values, list_constraints, trans_v_builds),)
