"""The tuning space of the flash attention kernels: tiles, loads ahead, warps, and heads at a time.

Tiles for large head dimensions are small, because the accumulator of a tile is BLOCK_M * Dv floats: in the MI300X
report of 2025-12-30, 64 x 32 with V loaded early was 2.7 times as fast as 128 x 64 at D = 256 and 512 keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernels.configs import ConfigRule, Space
from kernels.triton.prefill.builds import LENGTHS, PrefillVariant, build_variant
from kernels.triton.prefill.space import PERSISTENT, SPACE, problem_of
from kernels.triton.varlen.builds import PERSISTENT_ARGUMENTS, VarlenVariant
from kernels.triton.varlen.builds import TYPES as VARLEN_TYPES
from kernels.triton.varlen.builds import build_variant as build_varlen_variant
from kernels.triton.varlen.space import PERSISTENT as VARLEN_PERSISTENT
from kernels.triton.varlen.space import SPACE as VARLEN
from kernels.triton.varlen.space import problem_of as varlen_problem_of
from kernels.tuning_spaces.declared import Declared, Values, get_number, shared_constraints, tile_constraint, with_rule
from kernels.tuning_spaces.target import Target
from pytest_attnperf.kernel_builds import KernelBuild, TritonSource
from pytest_attnperf.tuning_records import Constraint, Value
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.varlen import Varlen

POINTERS = {
    "f32": "*fp32",
    "tf32": "*fp32",
    "f16": "*fp16",
    "bf16": "*bf16",
    "i8": "*i8",
    "f8e4m3": "*fp8e4nv",
    "f8e5m2": "*fp8e5",
    "f8e4m3fnuz": "*fp8e4b8",
    "f8e5m2fnuz": "*fp8e5b16",
}
"""Workload dtype -> pointer type, as Triton writes it."""

ALL_HEADS = 4096
"""GROUP_HEADS larger than any number of heads: heads are not grouped."""
EVEN = 16
"""Divisor of lengths that Triton detects and uses."""


def tile_values(workloads: Sequence[Prefill | Varlen], target: Target) -> Values:
    """Returns constant or option -> values to try for a flash attention kernel, by head dimension and element bytes."""
    head_dim = max(each.head_dim for each in workloads)
    wide = max(DTYPE_BYTES[each.dtype] for each in workloads) == 4
    large = (32, 64, 128) if head_dim > 128 else (64, 128, 256) if head_dim <= 64 else (64, 128)
    return {
        "BLOCK_M": (16, 32, 64) if wide else large,
        "BLOCK_N": (16, 32, 64) if wide else (32, 64, 128),
        "PRELOAD_V": (False, True),
        "GROUP_HEADS": (ALL_HEADS,) if target.is_amd else (8, ALL_HEADS),
        "num_warps": target.possible_warps(4, 8),
        "num_stages": (1, 2) if target.is_amd else (1, 2, 3),
        **target.option_values(matrix=True),
    }


def persistent_tile_values(workloads: Sequence[Prefill | Varlen], target: Target) -> Values:
    """Returns what `tile_values` does, with the numbers of programs per multiprocessor to try."""
    return {**tile_values(workloads, target), "PROGRAMS_PER_SM": (1, 2)}


def list_constraints(workloads: Sequence[Prefill | Varlen], target: Target) -> tuple[Constraint, ...]:
    """Returns the constraints on scores per warp, registers and shared memory, for the largest head dimension and
    widest elements. K and V are loaded ahead together."""
    head_dim_v = max(_head_dim_v(each) for each in workloads)
    key_bytes = max((each.head_dim + _head_dim_v(each)) * DTYPE_BYTES[each.dtype] for each in workloads)

    def one_each(values: Mapping[str, Value]) -> bool:
        return get_number(values, "BLOCK_M") * get_number(values, "BLOCK_N") >= 256 * get_number(values, "num_warps")

    return (
        Constraint("fewer than 16 x 16 scores for a warp", one_each),
        tile_constraint(
            target, lambda values: get_number(values, "BLOCK_M") * head_dim_v, f"an accumulator of Dv={head_dim_v}"
        ),
        *shared_constraints(target, lambda values: get_number(values, "BLOCK_N") * key_bytes),
    )


def _head_dim_v(workload: Prefill | Varlen) -> int:
    return workload.head_dim_v if isinstance(workload, Prefill) else workload.head_dim


def variant_of(workload: Prefill, rule: ConfigRule) -> PrefillVariant:
    """Returns the variant of the kernel that runs a workload: pointer types, head dimensions, window, slopes or bias,
    causal mask, and whether the rule's BLOCK_N divides the number of keys."""
    kv = POINTERS[workload.dtype]
    feature = "window" if workload.window else "alibi" if workload.alibi else "bias" if workload.bias else ""
    return PrefillVariant(
        workload.id.removeprefix("prefill-"),
        q=POINTERS[workload.out_dtype] if workload.int8 == "kv8" else kv,
        kv=kv,
        out=POINTERS[workload.out_dtype],
        head_dims=(workload.head_dim, workload.head_dim_v),
        feature=feature or ((workload.int8 or "pv8") if workload.dtype == "i8" else ""),
        causal=workload.causal,
        even=workload.seq_kv % int(rule.config["BLOCK_N"]) == 0,
    )


def _make_builds(kernel: str, space: Space, workload: Prefill, arch: str, rule: ConfigRule) -> list[KernelBuild]:
    further = {"batch_heads": "i32", "multiprocessors": "i32"} if space is PERSISTENT else None
    build = with_rule(build_variant(kernel, arch, space, variant_of(workload, rule), further), rule)
    source = build.source
    assert isinstance(source, TritonSource)
    guarded = bool(workload.window or workload.bias or (workload.causal and workload.seq_kv < workload.seq_q))
    divisible = [name for name in source.divisible_by_16 if name not in LENGTHS]
    sizes = {"seq_q": workload.seq_q, "seq_kv": workload.seq_kv}
    even = [name for name in LENGTHS if sizes[name] % EVEN == 0]
    source = replace(source, constants={**source.constants, "GUARDED": guarded}, divisible_by_16=(*divisible, *even))
    return [replace(build, source=_without_lse(source) if not workload.lse else source)]


def forward_builds(workload: Prefill, arch: str, rule: ConfigRule) -> list[KernelBuild]:
    """Returns a list of one: the build of `triton.flash` for the workload, with the rule's values."""
    return _make_builds("triton.prefill_forward", SPACE, workload, arch, rule)


def persistent_builds(workload: Prefill, arch: str, rule: ConfigRule) -> list[KernelBuild]:
    """Returns a list of one: the build of `triton.flash_persistent` for the workload, with the rule's values."""
    return _make_builds("triton.prefill_persistent", PERSISTENT, workload, arch, rule)


def varlen_variant_of(workload: Varlen) -> VarlenVariant | None:
    """Returns the variant of the kernel that runs a workload; None for f32, fp8, ALiBi and int8 with a window or a
    bias, which need a GPU to compile."""
    feature = "window" if workload.window else "bias" if workload.bias else ""
    if workload.alibi or (feature and workload.dtype == "i8"):
        return None
    if workload.dtype not in (*VARLEN_TYPES, "i8"):
        return None
    kv, out = POINTERS[workload.dtype], POINTERS[workload.out_dtype]
    return VarlenVariant(
        workload.id.removeprefix("varlen-"),
        q=out if workload.int8 == "kv8" else kv,
        kv=kv,
        out=out,
        causal=workload.causal,
        feature=feature or ((workload.int8 or "pv8") if workload.dtype == "i8" else ""),
        head_dim=workload.head_dim,
    )


def _make_varlen_builds(kernel: str, space: Space, workload: Varlen, arch: str, rule: ConfigRule) -> list[KernelBuild]:
    variant = varlen_variant_of(workload)
    if variant is None:
        return []
    further = PERSISTENT_ARGUMENTS if space is VARLEN_PERSISTENT else None
    build = with_rule(build_varlen_variant(kernel, arch, space, variant, further), rule)
    assert isinstance(build.source, TritonSource)
    return [build if workload.lse else replace(build, source=_without_lse(build.source))]


def varlen_builds(workload: Varlen, arch: str, rule: ConfigRule) -> list[KernelBuild]:
    """Returns a list of the build of `triton.flash_varlen` for the workload, with the rule's values. Empty where
    `varlen_variant_of` has none."""
    return _make_varlen_builds("triton.varlen_forward", VARLEN, workload, arch, rule)


def varlen_persistent_builds(workload: Varlen, arch: str, rule: ConfigRule) -> list[KernelBuild]:
    """Returns the same of `triton.flash_varlen_persistent`."""
    return _make_varlen_builds("triton.varlen_persistent", VARLEN_PERSISTENT, workload, arch, rule)


def _without_lse(source: TritonSource) -> TritonSource:
    """Returns a copy of a kernel's source and arguments, changed to store no log-sum-exp."""
    signature = {name: kind for name, kind in source.signature.items() if name != "lse_ptr"}
    constants = {**source.constants, "lse_ptr": None, "WITH_LSE": False}
    divisible = [name for name in source.divisible_by_16 if name != "lse_ptr"]
    return replace(source, signature=signature, constants=constants, divisible_by_16=divisible)


PREFILL = frozenset({"prefill"})
PACKED = frozenset({"varlen"})
DECLARED = (
    Declared(SPACE, PREFILL, problem_of, tile_values, list_constraints, forward_builds),
    Declared(PERSISTENT, PREFILL, problem_of, persistent_tile_values, list_constraints, persistent_builds),
    Declared(VARLEN, PACKED, varlen_problem_of, tile_values, list_constraints, varlen_builds),
    Declared(
        VARLEN_PERSISTENT,
        PACKED,
        varlen_problem_of,
        persistent_tile_values,
        list_constraints,
        varlen_persistent_builds,
    ),
)
