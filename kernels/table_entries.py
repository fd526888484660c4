"""Which rule of our configuration files a workload takes, and whether that rule is for this workload.

A rule's key is its conditions. It is exact if each equals the workload's value, bounds included, and one of them says
the element type. A rule of default.json, or without conditions, is for everything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernels import config_files
from kernels.configs import DEFAULT, ConfigRule, KernelConfigError, Problem, Space
from kernels.tuning import declared_by_kernel, shown_path
from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.records.tuned_tables import Coverage, TableEntry, Tiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_attnperf.workloads.base import Workload

TYPE_PROPERTIES = ("dtype", "element_bits")
"""Properties of a problem that say its element type; a rule that names none serves every type."""

_TRITON = re.compile(r"\btriton (\d+(?:\.\d+)+)", re.IGNORECASE)
"""A version in a rule's source, as the tuner and benchmarks/sweep_configs.py write it."""


def find_entries(spaces: Sequence[Space], workload: Workload, arch: str) -> list[TableEntry]:
    """Returns the entry of each of these kernels whose rules can be chosen for the workload without running it. Raises
    UnsupportedError if there is none, UsageError naming the file if one is malformed or has a key twice."""
    known = declared_by_kernel()
    found = []
    for space in spaces:
        declared = known.get(space.kernel)
        if declared is None or declared.space is not space or workload.family not in declared.families:
            continue
        try:
            problem = declared.problem(workload)
        except UsageError:
            continue  # another kernel of the backend computes this workload
        found.append(find_entry(space, workload, problem, arch))
    if not found:
        raise UnsupportedError("none of its kernels declares a tuning space (kernels/tuning_spaces)")
    return found


def find_entry(space: Space, workload: Workload, problem: Problem, arch: str) -> TableEntry:
    """Returns the entry that the kernel of `space` takes on `arch` for a problem. Raises UsageError as
    `find_entries`."""
    listed = space.rules_arch(arch)
    path = shown_path(space, listed)
    try:
        rules = config_files.rules_of(space, arch)
    except KernelConfigError as error:
        raise UsageError(str(error)) from error
    _require_unique(path, rules)
    number = config_files.find_serving_rule(rules, problem)
    if number is None:
        return TableEntry(space.kernel, path, "", Coverage.NONE, no_tiles="no rule serves it")
    rule = rules[number]
    apart, when = compare_keys(space, rule, problem)
    general = listed == DEFAULT or not rule.when
    cut = TILES.get(space.kernel)
    return TableEntry(
        space.kernel,
        path,
        f"rule {number + 1}: {config_files.format_conditions(rule.when)}",
        Coverage.DEFAULT if general else Coverage.NEAREST if apart else Coverage.EXACT,
        apart,
        tuple(name for name in space.properties if not {name, f"{name}_max", f"{name}_min"} & rule.when.keys()),
        when,
        {"triton": said.group(1)} if (said := _TRITON.search(rule.source)) else {},
        rule.source,
        cut(workload, rule.config) if cut else None,
        "" if cut else f"the work of {space.kernel} is not cut by its tiles alone",
    )


def compare_keys(
    space: Space, rule: ConfigRule, problem: Problem
) -> tuple[dict[str, tuple[object, object]], dict[str, object]]:
    """Returns (property -> (the rule's value, the problem's) where they differ, the conditions that would narrow the
    rule to this problem). A rule that names no element type differs by 'any'."""
    apart: dict[str, tuple[object, object]] = {}
    when: dict[str, object] = {}
    for name, value in rule.when.items():
        held = name.removesuffix("_max").removesuffix("_min")
        if problem[held] != value:
            apart[name], when[name] = (value, problem[held]), problem[held]
    typed = [name for name in TYPE_PROPERTIES if name in space.properties]
    if typed and not any(name in rule.when for name in typed):
        apart[typed[0]], when[typed[0]] = ("any", problem[typed[0]]), problem[typed[0]]
    return apart, when


def _require_unique(path: str, rules: Sequence[ConfigRule]) -> None:
    """Raises UsageError for a rule with the conditions of an earlier one, which is never taken."""
    first: dict[frozenset[tuple[str, object]], int] = {}
    for number, rule in enumerate(rules):
        key = frozenset(rule.when.items())
        if key in first:
            raise UsageError(
                f"{path}: rules {first[key] + 1} and {number + 1} have the same conditions "
                f"({config_files.format_conditions(rule.when)}), so the latter is never taken; remove one"
            )
        first[key] = number


def cut_rows(lengths: Sequence[int], block: int, heads: int) -> Tiles:
    """Returns the tiles of `block` query rows that sequences of these lengths make, for each of `heads`."""
    blocks = sum(math.ceil(length / block) for length in lengths)
    return Tiles(blocks * heads, sum(lengths) / (blocks * block))


def _cut_prefill(workload: Any, config: Mapping[str, Any]) -> Tiles:
    return cut_rows([workload.seq_q] * workload.batch, config["BLOCK_M"], workload.heads)


def _cut_varlen(workload: Any, config: Mapping[str, Any]) -> Tiles:
    return cut_rows([one.seq_q for one in workload.sequences], config["BLOCK_M"], workload.heads)


def _cut_gemm(workload: Any, config: Mapping[str, Any]) -> Tiles:
    down, across = math.ceil(workload.size_m / config["BLOCK_M"]), math.ceil(workload.size_n / config["BLOCK_N"])
    padded = down * config["BLOCK_M"] * across * config["BLOCK_N"]
    return Tiles(down * across, workload.size_m * workload.size_n / padded)


TILES: Mapping[str, Callable[[Any, Mapping[str, Any]], Tiles]] = {
    "prefill_forward": _cut_prefill,
    "prefill_persistent": _cut_prefill,
    "trans_v": _cut_prefill,
    "varlen_forward": _cut_varlen,
    "varlen_persistent": _cut_varlen,
    "gemm": _cut_gemm,
}
"""Kernel -> the tiles of a workload under a configuration. Other kernels also choose a number of programs."""
