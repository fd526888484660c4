"""Builds of the latent-attention kernels: every shipped rule, at the shapes of models.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kernels.configs import ConfigRule, pad_size
from kernels.triton.builds import TritonKernel, has_matrix_instructions, make_build
from kernels.triton.mla.space import DECODE, PREFILL, too_few_registers
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.mla import Mla

TYPES = {16: {"f16": "*fp16", "bf16": "*bf16"}, 32: {"f32": "*fp32"}}
"""Element bits of a rule -> element types that are built, as Triton writes them."""

SHAPES = {256: (64, 32), 512: (128, 64)}
"""latent_dim -> (nope_dim and value_dim, rope_dim): AMD's perf-kernels example and DeepSeek-V2's (arXiv:2405.04434)."""

MANY_ROWS = 128
"""Rows of a sequence in the build of a rule without a limit: one token of DeepSeek-V3's 128 heads."""

Signature = dict[str, str]
Constants = dict[str, object]


def is_persistent(rule: ConfigRule) -> bool:
    """Returns whether a rule of PREFILL has a persistent grid, which is another kernel."""
    return bool(rule.config.get("GRID_CU_MULTIP"))


@dataclass(frozen=True)
class MlaKernel(TritonKernel):
    """One of the kernels, for each rule and element type of its space; bf16 also with the other mask.

    function    its name
    arguments   (element type, nope_dim, rope_dim, latent_dim) -> signature and constants that no rule sets
    used        the constants of a rule that it takes
    masks       values of causal that are built, the first for all element types; (None,) for a kernel without mask
    """

    function: str
    arguments: Callable[[str, int, int, int], tuple[Signature, Constants]]
    used: tuple[str, ...]
    masks: tuple[bool | None, ...] = (None,)

    def unsupported_reasons(self, arch: str) -> list[str]:
        """Returns a reason for RDNA, which has too few registers; empty for every other architecture."""
        return too_few_registers(arch)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns the builds of each rule for `arch` that this kernel runs; of equal ids only the first."""
        rules = [rule for rule in self.space.load_rules(arch) if not is_persistent(rule)]
        return self.unique_builds(arch, rules)

    def unique_builds(self, arch: str, rules: Sequence[ConfigRule]) -> list[KernelBuild]:
        """Returns the builds of these rules; of equal ids only the first."""
        every = [build for rule in rules for build in self.builds_under(arch, rule)]
        return list({build.config: build for build in every[::-1]}.values())[::-1]

    def builds_under(self, arch: str, rule: ConfigRule) -> Iterator[KernelBuild]:
        """Yields one build for `arch` per element type of the rule, and one per further mask in bf16."""
        latent, bits = int(rule.when["latent_dim_max"]), int(rule.when["element_bits"])
        nope, rope = SHAPES[latent]
        rows = f"-rows{rule.when.get('rows_max', MANY_ROWS)}" if "rows" in self.space.properties else ""
        for dtype, element in TYPES[bits].items():
            for causal in self.masks if dtype == "bf16" else self.masks[:1]:
                signature, constants = self.arguments(element, nope, rope, latent)
                mask = "" if causal is None else "-causal" if causal else "-full"
                yield make_build(
                    self.name,
                    arch,
                    f"d{nope}-r{rope}-c{latent}{rows}-{dtype}{mask}",
                    self.space,
                    self._own_values(rule),
                    module=self._module,
                    function=self.function,
                    signature=signature,
                    constants=constants | ({} if causal is None else {"CAUSAL": causal}),
                    divisible_by_16=tuple(name for name in signature if name.endswith("_ptr") or name == "heads"),
                    matrix=has_matrix_instructions(arch, bits),
                    proofs=[(self.backends[0], self._make_proof((nope, rope, latent), dtype, causal=bool(causal)))],
                    pins=[(self.space, rule)],
                )

    def _make_proof(self, dims: tuple[int, int, int], dtype: str, *, causal: bool) -> Mla:
        """Returns a problem of 16 heads: two tokens, or for the kernel of many queries nine, over a few more keys."""
        nope, rope, latent = dims
        seq_q, seq_kv = (9, 21) if self.space is PREFILL else (2, 101)
        return Mla(1, seq_q, 16, nope, rope, latent, seq_kv=seq_kv, dtype=dtype, causal=causal, lse=True)

    @property
    def _module(self) -> str:
        return "mla.kernel" if self.space is PREFILL else "mla.decode"

    def _own_values(self, rule: ConfigRule) -> ConfigRule:
        """Returns the rule with those of its constants that the kernel takes, and all of its options."""
        own = {name: value for name, value in rule.config.items() if name in self.used or name not in rule.constants}
        return ConfigRule(rule.when, own, rule.source)


@dataclass(frozen=True)
class MlaPrefillKernel(MlaKernel):
    """`mla_kernel` or, where the rule has a persistent grid, `mla_persistent_kernel`."""

    def build_of(self, arch: str, workload: Mla, rule: ConfigRule) -> KernelBuild:
        """Returns the build for a prefill workload under a rule, as it is launched."""
        bits = DTYPE_BYTES[workload.dtype] * 8
        element = TYPES[bits][workload.dtype]
        signature, constants = self.arguments(element, workload.nope_dim, workload.rope_dim, workload.latent_dim)
        constants |= {
            "DV": workload.value_dim,
            "CAUSAL": workload.causal,
            "WITH_LSE": workload.lse,
            "EVEN_N": workload.seq_kv % int(rule.config["BLOCK_N"]) == 0,
        }
        absent = {"lse_ptr": workload.lse, "scratch_ptr": bool(rule.config["RELOAD"])}
        for name in (name for name, given in absent.items() if not given):
            del signature[name]
            constants[name] = None
        sizes = {"heads": workload.heads, "seq_q": workload.seq_q, "seq_kv": workload.seq_kv}
        sizes |= {"batch_heads": workload.batch * workload.heads} if "batch_heads" in signature else {}
        return make_build(
            self.name,
            arch,
            workload.id.removeprefix("mla-"),
            self.space,
            self._own_values(rule),
            module=self._module,
            function=self.function,
            signature=signature,
            constants=constants,
            divisible_by_16=tuple(
                name for name in signature if name.endswith("_ptr") or (name in sizes and sizes[name] % 16 == 0)
            ),
            matrix=has_matrix_instructions(arch, bits),
        )


@dataclass(frozen=True)
class MlaPersistentKernel(MlaPrefillKernel):
    """`mla_persistent_kernel` for each rule and alternative with a persistent grid, under a causal mask."""

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build for `arch` per element type of each such rule or alternative; none where there is none."""
        alternatives = (rule for rules in self.space.load_alternatives(arch).values() for rule in rules)
        rules = [rule for rule in (*self.space.load_rules(arch), *alternatives) if is_persistent(rule)]
        return self.unique_builds(arch, rules)

    @property
    def _module(self) -> str:
        return "mla.persistent"


def _pointer_types(element: str, names: str, wide: str = "") -> Signature:
    return {**dict.fromkeys(names.split(), element), **dict.fromkeys(wide.split(), "*fp32")}


def _common_constants(nope: int, latent: int) -> Constants:
    return {"D": nope, "DV": nope, "C": latent, "PRECISION": "ieee", "IN_FP32": False}


def _prefill_arguments(element: str, nope: int, rope: int, latent: int) -> tuple[Signature, Constants]:
    """Returns (signature, constants) of the launch of `mla_kernel`, with log-sum-exp and ragged lengths."""
    pointers = "q_nope_ptr q_pe_ptr kv_ptr k_pe_ptr wkv_b_ptr out_ptr scratch_ptr"
    numbers = {**dict.fromkeys(("heads", "seq_q", "seq_kv"), "i32"), "scale_log2": "fp32"}
    constants = {"WITH_LSE": True, "EVEN_N": False, "R": rope, "BLOCK_R": pad_size(rope), "BLOCK_C": pad_size(latent)}
    return {**_pointer_types(element, pointers, "lse_ptr"), **numbers}, _common_constants(nope, latent) | constants


def _persistent_arguments(element: str, nope: int, rope: int, latent: int) -> tuple[Signature, Constants]:
    """Returns what `_prefill_arguments` does, of `mla_persistent_kernel`."""
    signature, constants = _prefill_arguments(element, nope, rope, latent)
    return {**signature, "batch_heads": "i32"}, constants


def _absorb_arguments(element: str, nope: int, rope: int, latent: int) -> tuple[Signature, Constants]:
    """Returns (signature, constants) of the launch of `mla_absorb_kernel`."""
    signature = _pointer_types(element, "q_nope_ptr wkv_b_ptr q_latent_ptr")
    return {**signature, "tokens": "i32", "heads": "i32"}, _common_constants(nope, latent) | {"BLOCK_D": pad_size(nope)}


def _split_arguments(element: str, nope: int, rope: int, latent: int) -> tuple[Signature, Constants]:
    """Returns (signature, constants) of the launch of `mla_split_kernel`, for several parts of the keys."""
    pointers = _pointer_types(element, "q_latent_ptr q_pe_ptr kv_ptr k_pe_ptr", "part_ptr part_lse_ptr")
    numbers = {**dict.fromkeys(("heads", "seq_q", "seq_kv", "keys_per_part"), "i32"), "scale_log2": "fp32"}
    constants = {"R": rope, "C": latent, "BLOCK_R": pad_size(rope), "BLOCK_C": pad_size(latent)}
    return {**pointers, **numbers}, {**constants, "PRECISION": "ieee", "IN_FP32": False}


def _combine_arguments(element: str, nope: int, rope: int, latent: int) -> tuple[Signature, Constants]:
    """Returns (signature, constants) of the launch of `mla_combine_kernel`, for several parts and with log-sum-exp."""
    pointers = _pointer_types(element, "wkv_b_ptr out_ptr", "part_ptr part_lse_ptr lse_ptr")
    numbers = dict.fromkeys(("tokens", "heads", "seq_q", "parts"), "i32")
    return {**pointers, **numbers}, _common_constants(nope, latent) | {"WITH_LSE": True}


PREFILL_CONSTANTS = ("BLOCK_M", "BLOCK_N", "BLOCK_D", "RELOAD")
PREFILL_KERNEL = MlaPrefillKernel(
    "triton.mla", ("triton.mla",), PREFILL, "mla_kernel", _prefill_arguments, PREFILL_CONSTANTS, (True, False)
)
PERSISTENT_KERNEL = MlaPersistentKernel(
    "triton.mla_persistent",
    ("triton.mla_perf_kernels", "triton.mla"),
    PREFILL,
    "mla_persistent_kernel",
    _persistent_arguments,
    PREFILL_CONSTANTS,
    (True,),
)

KERNELS = (
    PREFILL_KERNEL,
    PERSISTENT_KERNEL,
    MlaKernel(
        "triton.mla_absorb", ("triton.mla",), DECODE, "mla_absorb_kernel", _absorb_arguments, ("BLOCK_T", "BLOCK_K")
    ),
    MlaKernel(
        "triton.mla_split",
        ("triton.mla",),
        DECODE,
        "mla_split_kernel",
        _split_arguments,
        ("BLOCK_M", "BLOCK_N"),
        (False, True),
    ),
    MlaKernel(
        "triton.mla_combine",
        ("triton.mla",),
        DECODE,
        "mla_combine_kernel",
        _combine_arguments,
        ("BLOCK_T", "BLOCK_K", "BLOCK_V"),
    ),
)
