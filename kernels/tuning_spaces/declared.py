"""The form of a declaration, and conditions that several kernels share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernels.configs import ConfigRule, Problem, Space
from kernels.tuning_spaces.target import Target
from pytest_attnperf.kernel_builds import KernelBuild, TritonSource
from pytest_attnperf.tuning_records import Constraint, Value

Values = Mapping[str, tuple[Value, ...]]


@dataclass(frozen=True)
class Declared:
    """The tuning space of one kernel.

    space          its configuration space
    families       op families whose workloads it serves
    problem        workload -> the properties by which a rule is chosen
    values         for workloads: the values to try, a tuple per constant and option of the space
    constraints    for workloads: conditions that can be tested before compiling
    builds         the builds of a workload under a rule, for an architecture
    """

    space: Space
    families: frozenset[str]
    problem: Callable[[Any], Problem]
    values: Callable[[Sequence[Any], Target], Values]
    constraints: Callable[[Sequence[Any], Target], tuple[Constraint, ...]]
    builds: Callable[[Any, str, ConfigRule], Sequence[KernelBuild]]


def get_number(values: Mapping[str, Value], name: str) -> int:
    """Returns the value of `name`, a number, as an int."""
    return int(values[name])


def tile_constraint(target: Target, elements: Callable[[Mapping[str, Value]], int], what: str) -> Constraint:
    """Returns the constraint that the fp32 accumulators of a program, spread over all lanes, fit the registers of each
    lane. `elements` gives their number for a candidate's values, `what` names them in messages."""

    def can_hold(values: Mapping[str, Value]) -> bool:
        return elements(values) <= target.registers * target.lanes * get_number(values, "num_warps")

    return Constraint(f"{what} alone takes more than the {target.registers} registers of a lane", can_hold)


def shared_constraints(target: Target, stage_bytes: Callable[[Mapping[str, Value]], int]) -> tuple[Constraint, ...]:
    """Returns the constraint that loads ahead fit shared memory, or () if its size is not known: each stage but one
    loads `stage_bytes` ahead. This is a lower bound of the memory that a kernel needs."""
    limit = target.shared_bytes
    if limit is None:
        return ()

    def can_fit(values: Mapping[str, Value]) -> bool:
        return (get_number(values, "num_stages") - 1) * stage_bytes(values) <= limit

    return (Constraint(f"stages loaded ahead need more than the {limit // 1024} KiB of shared memory", can_fit),)


def with_rule(build: KernelBuild, rule: ConfigRule) -> KernelBuild:
    """Returns the build with the compiler options of `rule`, and with those of its constants that the kernel takes.
    Raises TypeError for a build that is no Triton kernel."""
    if not isinstance(build.source, TritonSource):
        raise TypeError(f"{build.id} is no Triton kernel")
    taken = {name: value for name, value in rule.constants.items() if name in build.source.constants}
    source = replace(build.source, constants={**build.source.constants, **taken}, options=rule.options)
    settings = {name: str(value) for name, value in sorted({**taken, **rule.options}.items())}
    return replace(build, source=source, settings=settings)
