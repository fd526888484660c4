"""How a HIP kernel of this folder is declared for being compiled without a GPU. Names and values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernels.hip.sources import HipKernel
from pytest_attnperf.kernel_builds import HipSource, Kernel, KernelBuild, KeyTile, Proof

FLAGS = ("-std=c++17",)


def make_source(kernel: HipKernel) -> HipSource:
    """Returns what clang compiles for a kernel of this folder."""
    return HipSource(kernel.path, kernel.function, kernel.defines, FLAGS, kernel.threads, kernel.lds_bytes)


def make_build(
    name: str,
    config: str,
    arch: str,
    kernel: HipKernel,
    *,
    settings: Mapping[str, str] | None = None,
    matrix: bool = False,
    where: str = "",
    tile: KeyTile | None = None,
    proofs: Iterable[Proof] = (),
) -> KernelBuild:
    """Returns the build of a HIP kernel of this folder for `arch`. `settings`, by default the kernel's macros, describe
    its configuration; `where` is the file to look them up, by default the kernel's."""
    return KernelBuild(
        kernel=name,
        config=config,
        arch=arch,
        source=make_source(kernel),
        settings=kernel.defines if settings is None else settings,
        matrix=matrix,
        where=where or f"kernels/hip/{kernel.file}",
        tile=tile,
        proofs=tuple(proofs),
    )


@dataclass(frozen=True)
class HipKernelBuilds(Kernel):
    """A kernel of this folder: compiled ahead by clang, for AMD; a subclass gives `builds`."""

    def unsupported_reasons(self, arch: str) -> list[str]:
        """Returns a reason for architectures other than AMD's: only AMD's are compiled without a GPU. Else empty."""
        if arch.startswith("gfx"):
            return []
        return [f"{self.name} is compiled ahead for AMD architectures only; {arch} compiles it when it is run"]
