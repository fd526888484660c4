"""Builds of the matrix multiplication kernels: every shipped rule, in the dtypes and layouts that use it.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernels.configs import ConfigRule
from kernels.native.gemm import fp8_formats
from kernels.triton.builds import TritonKernel, has_matrix_instructions, make_build
from kernels.triton.gemm.space import DESCRIPTOR_BYTES, MULTIPLY_REDUCE_SPACE, SPACE, STREAM_K_SPACE, problem_of
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.gemm import Gemm

TYPES = {
    "f32": "*fp32",
    "f16": "*fp16",
    "bf16": "*bf16",
    "i8": "*i8",
    "i32": "*i32",
    "f8e4m3": "*fp8e4nv",
    "f8e5m2": "*fp8e5",
    "f8e4m3fnuz": "*fp8e4b8",
    "f8e5m2fnuz": "*fp8e5b16",
}
"""Workload dtype -> pointer type, as Triton writes it."""

SIZES = ("size_m", "size_n", "size_k")
SCALES = ("a_scale_ptr", "b_scale_ptr")

FIX_UP = "gemm_fix_up_kernel"
NOT_TAKEN = {
    "gemm_kernel": frozenset[str](),
    "gemm_multiply_reduce_kernel": frozenset[str](),
    "gemm_stream_k_kernel": frozenset({"PROGRAMS", "FIX_M"}),
    FIX_UP: frozenset({"PROGRAMS", "TRANSPOSED", "EVEN_K", "DESCRIPTORS", "IN_FP32"}),
}
"""Kernel -> constants of the configuration or operands that it does not have."""

MODULES = {"gemm": "gemm.kernel", "gemm_stream_k": "gemm.stream_k", "gemm_multiply_reduce": "gemm.multiply_reduce"}
"""By the name of the space."""

GEMM_PROBLEMS = (
    "gemm-m8192-n8192-k8192-f16",
    "gemm-m2048-n14336-k4096-bf16-nt",
    "gemm-m16-n8192-k8192-f16",
    "gemm-m1000-n1111-k777-f16",
    "gemm-m4096-n4096-k4096-f8e4m3-nt",
    "gemm-m4096-n4096-k4096-f8e5m2-nt",
    "gemm-m4096-n4096-k4096-i8-nt",
    "gemm-m4096-n4096-k4096-i32-nt",
    "gemm-m64-n256-k4096-i8-nt",
    "gemm-m2048-n2048-k2048-f32",
)
STREAM_K_PROBLEMS = (
    "gemm-m896-n4864-k8192-f16",
    "gemm-m1792-n2432-k8192-bf16-nt",
    "gemm-m1792-n2432-k8192-f8e4m3-nt",
    "gemm-m1792-n2432-k8192-i8-nt",
    "gemm-m1792-n2432-k8192-f32",
    "gemm-m1000-n1111-k777-f16",
)
FIX_UP_PROBLEMS = ("gemm-m896-n4864-k8192-f16", "gemm-m1792-n2432-k8192-i8-nt")
MULTIPLY_REDUCE_PROBLEMS = (
    "gemm-m4-n4096-k4096-f16",
    "gemm-m8-n4096-k4096-bf16-nt",
    "gemm-m4-n4096-k4096-i8-nt",
    "gemm-m4-n4096-k4096-i32-nt",
    "gemm-m4-n4096-k4096-f32",
)


@dataclass(frozen=True)
class GemmKernel(TritonKernel):
    """One kernel on the problems that stand for what a user runs; every rule of every architecture takes one of them.

    f8e4m3 and f8e5m2 stand for OCP's format or the fnuz one, whichever the architecture multiplies; where it has none,
    no such build exists.

    problems    ids of workloads
    function    name of the `@triton.jit` function
    matrix      whether its products run on matrix units where there are some
    """

    problems: tuple[str, ...]
    function: str
    matrix: bool = True

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build per entry of `problems` that `arch` can multiply, under the rule of `arch` (or of
        'default') that takes it."""
        chosen = (_native_problem(Gemm.parse(text), arch) for text in self.problems)
        rules = self.space.choose
        return [self.build_under(arch, each, rules(arch, problem_of(each)).rule) for each in chosen if each is not None]

    def build_under(self, arch: str, workload: Gemm, rule: ConfigRule) -> KernelBuild:
        """Returns the build for `arch` of a problem under a rule, which need not be a shipped one."""
        bits = 8 if workload.is_integer else 8 * DTYPE_BYTES[workload.dtype]
        aligned = tuple(name for name in SIZES if getattr(workload, name) % 16 == 0)
        left_out, pinned = NOT_TAKEN[self.function], rule
        rule = replace(rule, config={name: value for name, value in rule.config.items() if name not in left_out})
        if "DESCRIPTORS" in rule.config:
            rule = replace(rule, config={**rule.config, "DESCRIPTORS": _reads_descriptors(workload, rule)})
        signature = self._kernel_signature(workload, rule)
        constants = self._kernel_constants(workload, rule)
        return make_build(
            self.name,
            arch,
            workload.id.removeprefix("gemm-"),
            self.space,
            rule,
            module=MODULES[self.space.kernel],
            function=self.function,
            signature=signature,
            constants={name: value for name, value in constants.items() if name not in left_out},
            divisible_by_16=(*(name for name, kind in signature.items() if kind.startswith("*")), *aligned),
            matrix=self.matrix and has_matrix_instructions(arch, bits),
            proofs=[(self.backends[0], self._shrink_problem(workload, pinned))],
            pins=[(self.space, pinned)],
        )

    def _shrink_problem(self, workload: Gemm, rule: ConfigRule) -> Gemm:
        """Returns a problem of the same specialisation whose result fills one tile and a part of others, or for
        stream-K several that are cut."""
        block_k = int(rule.config["BLOCK_K"])
        few = self.space is MULTIPLY_REDUCE_SPACE
        several = self.space is STREAM_K_SPACE
        return replace(
            workload,
            size_m=workload.size_m if few else 48 if workload.size_m % 16 == 0 else 41,
            size_n=int(rule.config["BLOCK_N"]) + (48 if workload.size_n % 16 == 0 else 39),
            size_k=(4 if several else 2) * block_k if workload.size_k % block_k == 0 else block_k + 9,
        )

    def _kernel_signature(self, workload: Gemm, rule: ConfigRule) -> Mapping[str, str]:
        """Returns argument name -> type of the launch, of all arguments that are no constants."""
        signature = {"out_ptr": TYPES[workload.out_dtype], **dict.fromkeys(SIZES, "i32")}
        if workload.is_scaled:
            signature |= dict.fromkeys(SCALES, "*fp32")
        if self.space is STREAM_K_SPACE:
            signature |= {"workspace_ptr": "*i32" if workload.is_integer else "*fp32", "cut_tiles": "i32"}
        if self.function == FIX_UP:
            return signature | {"programs": "i32"}
        if _reads_descriptors(workload, rule):
            return signature | _descriptor_types(workload, rule)
        return signature | dict.fromkeys(("a_ptr", "b_ptr"), TYPES[workload.dtype])

    def _kernel_constants(self, workload: Gemm, rule: ConfigRule) -> dict[str, object]:
        constants: dict[str, object] = {
            "TRANSPOSED": workload.layout == "nt",
            "SCALED": workload.is_scaled,
            "INTEGER": workload.is_integer,
        }
        if not workload.is_scaled:
            constants |= dict.fromkeys(SCALES)
        if self.space is MULTIPLY_REDUCE_SPACE:
            return constants | {"BLOCK_M": 1 << (workload.size_m - 1).bit_length()}
        return constants | {"EVEN_K": workload.size_k % rule.config["BLOCK_K"] == 0, "IN_FP32": False}


def _reads_descriptors(workload: Gemm, rule: ConfigRule) -> bool:
    """Returns whether tiles are read by descriptors, as in `make_operands`, for addresses that 16 divides."""
    rows = (workload.size_k, workload.size_k if workload.layout == "nt" else workload.size_n)
    aligned = all(row * DTYPE_BYTES[workload.dtype] % DESCRIPTOR_BYTES == 0 for row in rows)
    return bool(rule.config.get("DESCRIPTORS")) and aligned


def _descriptor_types(workload: Gemm, rule: ConfigRule) -> dict[str, str]:
    """Returns the types of a and b as tensor descriptors, by argument name, as Triton writes them."""
    element = TYPES[workload.dtype].removeprefix("*")
    block_m, block_n, block_k = (rule.config[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    b_block = (block_n, block_k) if workload.layout == "nt" else (block_k, block_n)
    blocks = {"a_ptr": (block_m, block_k), "b_ptr": b_block}
    return {name: f"tensordesc<{element}[{rows}, {columns}]>" for name, (rows, columns) in blocks.items()}


def _native_problem(workload: Gemm, arch: str) -> Gemm | None:
    """Returns the problem; for fp8 in a format that the architecture multiplies, or None where it has none."""
    if not workload.is_scaled:
        return workload
    kind = "cuda" if arch.startswith("sm_") else "rocm"
    formats = fp8_formats(DeviceInfo(kind=kind, arch=arch, product=""))
    return next((replace(workload, dtype=name) for name in formats if name.startswith(workload.dtype)), None)


KERNELS = (
    GemmKernel("triton.gemm", ("triton.gemm",), SPACE, GEMM_PROBLEMS, "gemm_kernel"),
    GemmKernel(
        "triton.gemm_stream_k",
        ("triton.gemm_stream_k", "triton.gemm_data_parallel"),
        STREAM_K_SPACE,
        STREAM_K_PROBLEMS,
        "gemm_stream_k_kernel",
    ),
    GemmKernel(
        "triton.gemm_fix_up",
        ("triton.gemm_stream_k",),
        STREAM_K_SPACE,
        FIX_UP_PROBLEMS,
        FIX_UP,
        matrix=False,
    ),
    GemmKernel(
        "triton.gemm_multiply_reduce",
        ("triton.gemm_multiply_reduce",),
        MULTIPLY_REDUCE_SPACE,
        MULTIPLY_REDUCE_PROBLEMS,
        "gemm_multiply_reduce_kernel",
        matrix=False,
    ),
)
