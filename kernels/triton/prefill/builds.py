"""Builds of the dense flash attention kernels: every shipped rule, and the features that users run.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernels.configs import Problem, Space
from kernels.triton.builds import TritonKernel, has_matrix_instructions, make_build
from kernels.triton.prefill.launch import head_dims
from kernels.triton.prefill.space import FLOAT_8, PERSISTENT, SPACE
from pytest_attnperf.kernel_builds import KernelBuild, KeyTile
from pytest_attnperf.workloads.prefill import Prefill

POINTERS = ("q_ptr", "k_ptr", "v_ptr", "out_ptr")
SCALES = ("q_scale_ptr", "k_scale_ptr", "v_scale_ptr")
LENGTHS = ("seq_q", "seq_kv")

TYPES = {16: {"f16": "*fp16", "bf16": "*bf16"}, 32: {"f32": "*fp32"}}
"""Element bits of a rule -> element types that are built, as Triton writes them."""

DTYPES = {"*fp16": "f16", "*bf16": "bf16", "*fp32": "f32", "*i8": "i8", "*fp8e4nv": "f8e4m3", "*fp8e4b8": "f8e4m3fnuz"}
"""Type of k as Triton writes it -> dtype of a workload."""

TYPES_8 = {"f8e4m3": "*fp8e4nv", "f8e4m3fnuz": "*fp8e4b8"}
"""fp8 types that are built if the architecture multiplies them."""

MANY_ROWS = 1 << 20
"""B * H * Sq of the builds' problem: 8 sequences of 4,096 rows in 32 heads."""


@dataclass(frozen=True)
class PrefillVariant:
    """One way to launch a flash attention kernel, for which a build is made.

    config      id of the configuration
    q, kv, out  types of q, of k and v, and of out, as Triton writes them; '' is q's, or bf16 for 8 bits
    head_dims   D and Dv
    feature     '', 'window', 'alibi', 'bias', or for int8 k and v 'pv8', 'pv16', 'kv8'
    even        lengths that tiles and 16 divide
    """

    config: str
    q: str = "*bf16"
    kv: str = "*bf16"
    head_dims: tuple[int, int] = (128, 128)
    feature: str = ""
    causal: bool = True
    even: bool = False
    out: str = ""

    @property
    def bits(self) -> int:
        """Bits of an element of k and v."""
        return {"*fp32": 32, "*fp16": 16, "*bf16": 16}.get(self.kv, 8)

    @property
    def problem(self) -> Problem:
        """The properties, name -> value, by which a rule is chosen."""
        return {
            "head_dim": max(self.head_dims),
            "causal": self.causal,
            "element_bits": self.bits,
            "plain": self.feature not in ("window", "alibi", "bias") and len(set(self.head_dims)) == 1,
            "int8": self.feature if self.kv == "*i8" else "none",
            "rows": MANY_ROWS,
        }

    @property
    def tile(self) -> KeyTile | None:
        """Of the key loop; None with a bias, which the loop loads, too."""
        dims = sum(self.head_dims)
        return None if self.feature == "bias" else KeyTile(2 * dims, dims * self.bits // 8)

    def list_proofs(self, keys: int) -> tuple[Prefill, ...]:
        """Returns small problems with two query heads per K/V head, which launch this variant in tiles of `keys`.

        A window hides every key from some rows; without one, fewer keys than queries are another specialisation, in
        which the source is proven, too.
        """
        problem = Prefill(
            batch=1,
            seq_q=48 if self.even else 37,
            seq_kv=max(2 * keys, 64) if self.even else 83,
            heads=4,
            kv_heads=2,
            head_dim=self.head_dims[0],
            head_dim_v=self.head_dims[1],
            dtype=DTYPES[self.kv],
            causal=self.causal,
            lse=True,
            window=29 if self.feature == "window" else 0,
            alibi=self.feature == "alibi",
            bias=self.feature == "bias",
            int8=self.feature if self.feature in ("pv16", "kv8") else "",
        )
        more_rows = self.causal and not self.even and self.bits == 16
        return (problem, replace(problem, seq_q=45, seq_kv=19)) if more_rows else (problem,)

    def kernel_signature(self) -> dict[str, str]:
        """Returns name -> type of the launch's arguments that are neither None nor constants."""
        found = {"q_ptr": self.q, "k_ptr": self.kv, "v_ptr": self.kv}
        found |= {"out_ptr": self.out or (self.q if self.bits > 8 else "*bf16"), "lse_ptr": "*fp32"}
        if self.bits == 8:
            found |= dict.fromkeys(SCALES[1:] if self.feature == "kv8" else SCALES, "*fp32")
        if self.feature == "alibi":
            found["slopes_ptr"] = "*fp32"
        if self.feature == "bias":
            found["bias_ptr"] = found["out_ptr"]
        found |= dict.fromkeys(("heads", "kv_heads", *LENGTHS), "i32")
        if self.feature == "window":
            found["window"] = "i32"
        return found | {"scale_log2": "fp32"}

    def kernel_constants(self) -> dict[str, object]:
        """Returns name -> value of the launch's constants that no rule sets, None for absent tensors, as in
        `launch.kernel_constants`."""
        given = self.kernel_signature()
        absent = (*SCALES, "slopes_ptr", "bias_ptr", "window")
        return {
            **{name: None for name in absent if name not in given},
            "CAUSAL": self.causal,
            "WINDOWED": self.feature == "window",
            "WITH_LSE": True,
            "EVEN_N": self.even,
            "GUARDED": self.feature in ("window", "bias"),
            **head_dims(*self.head_dims),
            "INT8_WEIGHTS": self.feature == "pv8",
            "V_TRANSPOSED": self.bits == 8 and self.feature in ("", "pv8"),
            "PRECISION": "ieee",
            "IN_FP32": False,
            "XCDS": 1,
            "AS_READ": 0,
        }


FEATURES = (
    PrefillVariant("d128-bf16-causal-window", feature="window"),
    PrefillVariant("d128-bf16-causal-alibi", feature="alibi"),
    PrefillVariant("d128-bf16-full-bias", feature="bias", causal=False),
    PrefillVariant("d192-dv128-bf16-causal-ragged", head_dims=(192, 128)),
    PrefillVariant("d128-i8-causal-pv8", q="*i8", kv="*i8", feature="pv8"),
    PrefillVariant("d128-i8-causal-pv16", q="*i8", kv="*i8", feature="pv16"),
    PrefillVariant("d128-i8-causal-kv8", kv="*i8", feature="kv8"),
)
"""The variants of each feature that users run, except fp8."""


@dataclass(frozen=True)
class PrefillForwardKernel(TritonKernel):
    """`prefill_forward_kernel` at the largest head dimension of each rule for 16 and 32 bits, with log-sum-exp, and
    every feature once at a head dimension of 128.

    Ragged lengths (both key loops, masked tails) for both masks; and for causal masks lengths that tiles and 16 divide,
    where the launcher leaves the masks of the last tile out.
    """

    space: Space = SPACE
    name: str = "triton.prefill_forward"
    backends: tuple[str, ...] = ("triton.flash",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build per largest head dimension of a rule of `arch` (or of 'default'), element type, mask and
        kind of lengths; then one per feature."""
        return [
            build_variant(self.name, arch, self.space, each, backends=self.backends)
            for each in (*self._plain_variants(arch), *feature_variants(arch))
        ]

    def _plain_variants(self, arch: str) -> Iterator[PrefillVariant]:
        sizes = {
            (int(rule.when["head_dim_max"]), int(rule.when["element_bits"])): None
            for rule in self.space.load_rules(arch)
            if rule.when["element_bits"] != 8 and rule.when.get("plain", True)
        }
        for head_dim, bits in sizes:
            for dtype, element in TYPES[bits].items():
                for causal, even in ((True, False), (False, False), (True, True)):
                    mask, lengths = "causal" if causal else "full", "even" if even else "ragged"
                    config = f"d{head_dim}-{dtype}-{mask}-{lengths}"
                    yield PrefillVariant(config, element, element, (head_dim, head_dim), causal=causal, even=even)


@dataclass(frozen=True)
class PrefillPersistentKernel(TritonKernel):
    """`prefill_persistent_kernel` at a head dimension of 128 with log-sum-exp, causal, for both kinds of lengths."""

    space: Space = PERSISTENT
    name: str = "triton.prefill_persistent"
    backends: tuple[str, ...] = ("triton.flash_persistent",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns two builds for `arch`: for ragged lengths, and for multiples of 16 and of the tiles' sizes."""
        variants = (PrefillVariant("d128-bf16-causal-ragged"), PrefillVariant("d128-bf16-causal-even", even=True))
        further = {"batch_heads": "i32", "multiprocessors": "i32"}
        return [build_variant(self.name, arch, self.space, each, further, self.backends) for each in variants]


def feature_variants(arch: str) -> Iterator[PrefillVariant]:
    """Yields the variants in FEATURES, then one per fp8 format that the architecture multiplies."""
    yield from FEATURES
    for dtype, element in TYPES_8.items():
        if dtype in FLOAT_8.get(arch, ()):
            yield PrefillVariant(f"d128-{dtype}-causal-ragged", element, element)


def build_variant(
    kernel: str,
    arch: str,
    space: Space,
    variant: PrefillVariant,
    further: Mapping[str, str] | None = None,
    backends: Sequence[str] = (),
) -> KernelBuild:
    """Returns the build of a variant in the configuration of the rule that serves it. `further` holds more arguments,
    name -> type; `backends` prove it."""
    signature = {**variant.kernel_signature(), **(further or {})}
    aligned = [name for name, kind in signature.items() if kind.startswith("*")]
    rule = space.choose(arch, variant.problem).rule
    return make_build(
        kernel,
        arch,
        variant.config,
        space,
        rule,
        module=f"prefill.{space.kernel.removeprefix('prefill_')}",
        function=f"{space.kernel}_kernel",
        signature=signature,
        constants=variant.kernel_constants(),
        divisible_by_16=(*aligned, *(LENGTHS if variant.even else ())),
        matrix=has_matrix_instructions(arch, variant.bits),
        tile=variant.tile,
        proofs=[
            (backend, problem) for backend in backends for problem in variant.list_proofs(int(rule.config["BLOCK_N"]))
        ],
    )


KERNELS = (PrefillForwardKernel(), PrefillPersistentKernel())
