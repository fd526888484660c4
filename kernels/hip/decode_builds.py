"""What the two decode kernels are compiled as: head dimensions, groups and caches that serving engines run.

Names and values only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernels.hip.builds import HipKernelBuilds, make_build
from kernels.hip.decode import REDUCE_SPLITS, decode_reduce, decode_split, group_of
from pytest_attnperf.kernel_builds import KernelBuild, Proof
from pytest_attnperf.workloads.decode import Decode

LINES = (
    "b=64,kv=4096,h=32,hk=8,d=128,f16",
    "b=64,kv=4096,h=64,hk=8,d=64,page=16,bf16",
    "b=16,kv=4096,h=16,hk=1,d=128,page=64,bf16",
    "b=16,kv=4096,h=32,hk=16,d=256,bf16",
)
"""Llama 3 (arXiv:2407.21783), gpt-oss without its window (arXiv:2508.10925), the largest group, which has workgroups of
256, and the largest head."""

REDUCED = ((64, "bf16", 8), (128, "f16", 8), (128, "f16", 512), (256, "bf16", 8))
"""Head dimension, dtype and splits of the merge."""


@dataclass(frozen=True)
class HipDecodeSplit(HipKernelBuilds):
    """`decode_split` for the problems of `LINES`."""

    name: str = "hip.decode_split"
    backends: tuple[str, ...] = ("hip.decode",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build for `arch` per problem in LINES."""
        return [self._make_build(arch, Decode.parse_line(line)) for line in LINES]

    def _make_build(self, arch: str, workload: Decode) -> KernelBuild:
        group = group_of(workload)
        kernel = decode_split(workload.head_dim, group, workload.page, workload.dtype)
        words = [f"d{workload.head_dim}", f"g{group}", *([f"page{workload.page}"] if workload.page else [])]
        problem = replace(workload, batch=2, seq_kv=100, heads=2 * group, kv_heads=2, ragged=True)
        proofs = [Proof(self.backends[0], problem)]
        return make_build(self.name, "-".join([*words, workload.dtype]), arch, kernel, proofs=proofs)


@dataclass(frozen=True)
class HipDecodeReduce(HipKernelBuilds):
    """`decode_reduce` with the log-sum-exp."""

    name: str = "hip.decode_reduce"
    backends: tuple[str, ...] = ("hip.decode",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build for `arch` per entry of REDUCED: each head dimension, and one more with many splits."""
        return [self._make_build(arch, *each) for each in REDUCED]

    def _make_build(self, arch: str, head_dim: int, dtype: str, splits: int) -> KernelBuild:
        kernel = decode_reduce(head_dim, dtype, splits, with_lse=True)
        # Two splits of ragged sequences, or with more threads 18 of one sequence.
        sizes = "b=1,kv=4608,h=4,hk=1" if splits > REDUCE_SPLITS else "b=2,kv=600,h=4,hk=2,ragged"
        problem = Decode.parse_line(f"{sizes},d={head_dim},{dtype},lse")
        proofs = [Proof(self.backends[0], problem)]
        return make_build(self.name, f"d{head_dim}-s{splits}-{dtype}", arch, kernel, proofs=proofs)


KERNELS = (HipDecodeSplit(), HipDecodeReduce())
