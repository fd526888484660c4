"""The tuning space of the kernels over rows: elements of a program, its threads, programs, and loads ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kernels.configs import ConfigRule, Space, pad_size
from kernels.triton.rows.builds import KERNELS
from kernels.triton.rows.space import LAYERNORM, RMSNORM, SOFTMAX, problem_of
from kernels.tuning_spaces.declared import Declared, Values, get_number
from kernels.tuning_spaces.target import Target
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.tuning_records import Constraint, Value
from pytest_attnperf.workloads.row_shape import RowProblem

LARGEST = 32768
"""Most columns of a tile: 32 for each of 1,024 threads."""
SHORTEST = 2048
"""Columns below which a tile holds several rows."""
PER_LANE = (4, 128)
"""Least and most elements per lane: with fewer a lane waits, more do not fit its registers."""


def tile_values(workloads: Sequence[RowProblem], target: Target) -> Values:
    """Returns constant or option -> values to try: tiles of a whole row if it fits, a half and a quarter."""
    whole = min(LARGEST, max(SHORTEST, pad_size(max(each.columns for each in workloads))))
    return {
        "BLOCK_R": (1, 2, 4),
        "BLOCK_C": (whole // 4, whole // 2, whole),
        "PROGRAMS": (0, 1, 2),
        "STAGES": (1, 2, 3),
        "num_warps": target.possible_warps(2, 4, 8, 16, 32),
        "num_stages": (1,),
        **target.option_values(matrix=False, waves=(0,)),
    }


def list_constraints(workloads: Sequence[RowProblem], target: Target) -> tuple[Constraint, ...]:
    """Returns the constraints: 4 to 128 elements per lane (PER_LANE), and loop stages only if the kernel loops."""
    longest = max(each.columns for each in workloads)

    def per_lane(values: Mapping[str, Value]) -> int:
        elements = get_number(values, "BLOCK_R") * get_number(values, "BLOCK_C")
        return elements // (target.lanes * get_number(values, "num_warps"))

    def can_walk(values: Mapping[str, Value]) -> bool:
        looped = get_number(values, "PROGRAMS") > 0 or longest > get_number(values, "BLOCK_C")
        return looped or get_number(values, "STAGES") == 1

    least, most = PER_LANE
    return (
        Constraint(f"fewer than {least} elements for a lane", lambda values: per_lane(values) >= least),
        Constraint(f"more than {most} elements for a lane", lambda values: per_lane(values) <= most),
        Constraint("stages of a loop that is not there", can_walk),
    )


def _builds_of(space: Space) -> Callable[[RowProblem, str, ConfigRule], Sequence[KernelBuild]]:
    kernel = next(each for each in KERNELS if each.space is space)

    def make_builds(workload: RowProblem, arch: str, rule: ConfigRule) -> Sequence[KernelBuild]:
        tile = min(int(rule.config["BLOCK_C"]), pad_size(workload.columns))
        rows = int(rule.config["BLOCK_R"]) * (int(rule.config["BLOCK_C"]) // tile)
        launched = replace(rule, config={**rule.config, "BLOCK_R": rows, "BLOCK_C": tile})
        residual = kernel.norm and bool(getattr(workload, "residual", False))
        config = workload.id.removeprefix(f"{workload.family}-")
        one_pass = workload.columns <= tile
        even = tuple(name for name in ("rows", "columns") if getattr(workload, name) % 16 == 0)
        return [
            kernel.build_under(arch, config, workload.dtype, launched, one_pass=one_pass, residual=residual, even=even)
        ]

    return make_builds


DECLARED = tuple(
    Declared(space, frozenset({space.kernel}), problem_of, tile_values, list_constraints, _builds_of(space))
    for space in (SOFTMAX, RMSNORM, LAYERNORM)
)
