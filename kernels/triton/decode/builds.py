"""Builds of the two flash decoding kernels: problems that serving engines run, in the shipped rules.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernels.configs import ConfigRule, Space, pad_size
from kernels.triton.builds import TritonKernel, has_matrix_instructions, make_build
from kernels.triton.decode.space import LAUNCH_CONSTANTS, REDUCE_SPACE, SPACE, problem_of
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.workloads.decode import Decode

TYPES = {
    "f32": "*fp32",
    "f16": "*fp16",
    "bf16": "*bf16",
    "f8e4m3": "*fp8e4nv",
    "f8e4m3fnuz": "*fp8e4b8",
    "i8": "*i8",
}
"""Element types as Triton writes them."""

BLOCK_N = 64
"""Keys of a tile of the kernel over the keys, which the reduction is built for."""

FNUZ = frozenset({"gfx942"})
"""Architectures whose native fp8 is the fnuz format (CDNA3 instruction set, section 9.2: BF8 and FP8)."""

LINES = (
    "b=64,kv=4096,h=32,hk=8,d=128,f16",
    "b=64,kv=4096,h=32,hk=8,d=128,page=16,bf16,ragged",
    "b=64,kv=4096,h=32,hk=8,d=128,page=16,bf16,kvf8e4m3,ragged",
    "b=64,kv=4096,h=32,hk=8,d=128,page=64,f16,kvi8,ragged",
    "b=64,kv=4096,h=64,hk=8,d=64,page=16,w=128,bf16,sinks,ragged",
    "b=16,q=8,kv=4096,h=64,hk=8,d=128,page=64,bf16,ragged",
    "b=16,q=4,kv=4096,h=32,hk=4,d=256,cap=50,w=1024,bf16,lse",
    "b=16,kv=4096,h=32,hk=8,d=128,f32",
)
"""Llama 3 (arXiv:2407.21783), contiguous, in pages and with 8-bit caches; gpt-oss (arXiv:2508.10925), whose window ends
within one split; eight speculated tokens of sixteen heads; Gemma 2's caps (arXiv:2408.00118), the largest head."""


@dataclass(frozen=True)
class DecodeKernel(TritonKernel):
    """`decode_kernel` for the problems of `LINES`, with lengths that need not be multiples of anything."""

    space: Space = SPACE
    name: str = "triton.decode"
    backends: tuple[str, ...] = ("triton.flash_decode",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build for `arch` per problem in LINES."""
        return [self.build_of(arch, parse_problem(line, arch)) for line in LINES]

    def build_of(self, arch: str, workload: Decode) -> KernelBuild:
        """Returns the build for `arch` that runs a workload, configured by the rule that serves it."""
        rule = self.space.choose(arch, problem_of(workload)).rule
        # Values that only decide the grid are not arguments of the kernel.
        seen = {name: value for name, value in rule.config.items() if name not in LAUNCH_CONSTANTS}
        return make_build(
            self.name,
            arch,
            config_id(workload),
            self.space,
            replace(rule, config=seen),
            module="decode.kernel",
            function="decode_kernel",
            signature=_kernel_signature(workload),
            constants=_kernel_constants(workload),
            divisible_by_16=[name for name in _kernel_signature(workload) if name.endswith("_ptr")] + ["split_keys"],
            matrix=has_matrix_instructions(arch, 32 if workload.dtype == "f32" else 16),
            proofs=[(self.backends[0], shrink_problem(workload))],
            pins=[(self.space, rule if _has_one_split(workload) else split_often(rule))],
        )


@dataclass(frozen=True)
class DecodeReduceKernel(TritonKernel):
    """`decode_reduce_kernel` for three head dimensions, with sinks and lse."""

    space: Space = REDUCE_SPACE
    name: str = "triton.decode_reduce"
    backends: tuple[str, ...] = ("triton.flash_decode",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build for `arch` per head dimension of 64, 128 and 256, in bf16."""
        return [self.build_of(arch, head_dim) for head_dim in (64, 128, 256)]

    def build_of(self, arch: str, head_dim: int) -> KernelBuild:
        """Returns the build for `arch` and a head dimension, in bf16, configured by the rule that serves it."""
        floats = dict.fromkeys(("acc_ptr", "max_ptr", "sum_ptr", "sinks_ptr", "lse_ptr"), "*fp32")
        pointers = {**floats, "seq_lens_ptr": "*i32", "out_ptr": "*bf16"}
        sizes = dict.fromkeys(("heads", "splits", "split_keys"), "i32")
        problem = Decode.parse_line(f"b=2,kv=300,h=16,hk=2,d={head_dim},bf16,sinks,lse,ragged")
        return make_build(
            self.name,
            arch,
            f"d{head_dim}-bf16",
            self.space,
            self.space.choose(arch, {"head_dim": head_dim}).rule,
            module="decode.reduce",
            function="decode_reduce_kernel",
            signature={**pointers, **sizes},
            constants={
                "QUERIES": 1,
                "WINDOW": 0,
                "SINKS": True,
                "WITH_LSE": True,
                "HEAD_DIM": head_dim,
                "BLOCK_N": BLOCK_N,
                "BLOCK_D": pad_size(head_dim),
            },
            divisible_by_16=[*pointers, "heads", "split_keys"],
            proofs=[(self.backends[0], problem)],
            pins=[(SPACE, split_often(SPACE.choose(arch, problem_of(problem)).rule, BLOCK_N=BLOCK_N))],
        )


def parse_problem(line: str, arch: str) -> Decode:
    """Returns the workload of a line of LINES; on architectures in FNUZ, fp8 e4m3 becomes e4m3fnuz."""
    return Decode.parse_line(line.replace("kvf8e4m3", "kvf8e4m3fnuz") if arch in FNUZ else line)


def shrink_problem(workload: Decode) -> Decode:
    """Returns a problem of the same specialisation with a few short sequences of different lengths and two K/V heads;
    one sequence is longer than a window."""
    group = workload.heads // workload.kv_heads
    keys = 200 if _has_one_split(workload) else 300
    return replace(workload, batch=2, seq_kv=keys, heads=2 * group, kv_heads=2, ragged=True)


def split_often(rule: ConfigRule, **constants: int) -> ConfigRule:
    """Returns the rule with the grid of a small problem on which a few hundred keys are several splits, and with other
    `constants`."""
    return replace(rule, config={**rule.config, "PROGRAMS": 64, "SPLIT_KEYS_MIN": 64, **constants})


def config_id(workload: Decode) -> str:
    """Returns the properties that the compiled code depends on as an id, e.g. 'd128-r16-page16-bf16-kvi8'."""
    rows = problem_of(workload)["rows"]
    words = [f"d{workload.head_dim}", f"r{rows}", *([f"page{workload.page}"] if workload.page else []), workload.dtype]
    return "-".join([*words, *([workload.kv_dtype] if workload.kv_dtype else [])])


def _kernel_signature(workload: Decode) -> dict[str, str]:
    """Returns argument name -> type of `flash_decode`'s launch. Absent tensors are None and count as constants."""
    own, cache = TYPES[workload.dtype], TYPES[workload.cache_dtype]
    signature = {"q_ptr": own, "k_ptr": cache, "v_ptr": cache, "seq_lens_ptr": "*i32", "out_ptr": own}
    optional = {"table_ptr": workload.page, "sinks_ptr": workload.sinks, "lse_ptr": workload.lse}
    scales = dict.fromkeys(("k_scale_ptr", "v_scale_ptr"), workload.kv_dtype)
    partial = dict.fromkeys(("acc_ptr", "max_ptr", "sum_ptr"), not _has_one_split(workload))
    present = [name for name, given in (optional | scales | partial).items() if given]
    signature |= {name: "*i32" if name == "table_ptr" else "*fp32" for name in present}
    return signature | dict.fromkeys(("kv_heads", "room", "split_keys"), "i32") | {"scale": "fp32"}


def _kernel_constants(workload: Decode) -> dict[str, object]:
    absent = {"table_ptr", "sinks_ptr", "lse_ptr", "k_scale_ptr", "v_scale_ptr", "acc_ptr", "max_ptr", "sum_ptr"}
    return {
        **dict.fromkeys(sorted(absent - _kernel_signature(workload).keys())),
        "QUERIES": workload.queries,
        "GROUP": workload.heads // workload.kv_heads,
        "PAGE": workload.page,
        "CAP": float(workload.cap),
        "WINDOW": workload.window,
        "SINKS": workload.sinks,
        "QUANTISED": workload.kv_dtype != "",
        "WITH_LSE": workload.lse,
        "ONE_SPLIT": _has_one_split(workload),
        "HEAD_DIM": workload.head_dim,
        "BLOCK_M": problem_of(workload)["rows"],
        "BLOCK_D": pad_size(workload.head_dim),
        "PRECISION": "ieee",
        "IN_FP32": False,
    }


def _has_one_split(workload: Decode) -> bool:
    """Returns whether the problem has one split in every shipped rule, as with a short window."""
    return 0 < workload.window <= 128


KERNELS = (DecodeKernel(), DecodeReduceKernel())
