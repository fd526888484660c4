"""Builds of the bandwidth kernels: every shipped rule, for two widths of elements.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernels.configs import ConfigRule, Space
from kernels.triton.bandwidth.space import SPACE
from kernels.triton.builds import ELEMENTS, TritonKernel, make_build
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.workloads.bandwidth import KINDS, PATTERN, WORDS, Bandwidth

POINTERS = {
    "copy": ("b_ptr", "a_ptr"),
    "read": ("b_ptr", "sums_ptr"),
    "write": ("p_ptr", "a_ptr"),
    "triad": ("b_ptr", "c_ptr", "a_ptr"),
}
"""Kind -> the tensor arguments of its kernel."""
CONSTANTS = {"copy": {}, "read": {"WORDS": WORDS}, "write": {"PATTERN": PATTERN}, "triad": {}}


@dataclass(frozen=True)
class BandwidthKernel(TritonKernel):
    """`bandwidth_copy_kernel` and the kernels of the other kinds, for counts that 16 divides."""

    space: Space = SPACE
    name: str = "triton.bandwidth"
    backends: tuple[str, ...] = ("triton.bandwidth",)

    def builds_under(self, arch: str, rule: ConfigRule) -> Iterator[KernelBuild]:
        """Yields one build per kind (copy, read, write, triad) and element width that the rule serves; 'read' only in
        32 bits."""
        for kind in KINDS:
            for dtype in ("f32", "f16"):
                element, bits = ELEMENTS[dtype]
                asked = {"kind": kind, "element_bits": bits}
                unasked = any(rule.when.get(name, value) != value for name, value in asked.items())
                if unasked or (kind, dtype) == ("read", "f16"):
                    continue
                yield make_build(
                    self.name,
                    arch,
                    f"{kind}-{dtype}",
                    self.space,
                    rule,
                    module="bandwidth.kernel",
                    function=f"bandwidth_{kind}_kernel",
                    signature={
                        **dict.fromkeys(POINTERS[kind], "*i32" if kind == "read" else element),
                        "count": "i32",
                        **({"scalar": "fp32"} if kind == "triad" else {}),
                    },
                    constants=CONSTANTS[kind],
                    divisible_by_16=(*POINTERS[kind], "count"),
                    proofs=[(self.backends[0], Bandwidth(kind, kib=9, dtype=dtype))],
                )


KERNELS = (BandwidthKernel(),)
