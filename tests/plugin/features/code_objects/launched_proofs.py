"""Prints the builds of the given architectures whose proofs do not launch them; nothing is compiled or executed.

A process of its own: Triton's kernels must not be interpreted in it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernels import register, register_kernels
from pytest_attnperf.backends import Registry, replay_choice
from pytest_attnperf.codeobject.built import Built
from pytest_attnperf.environment.device import interpreted_gpu
from pytest_attnperf.kernel_builds import KernelBuild, KernelRegistry, KernelSource
from pytest_attnperf.measure.build_proofs import prepare_executed
from pytest_attnperf.measure.executing import Executor, executing

NOT_COMPILED = Built("", "", "", 64, 0, "")


@dataclass
class Noting(Executor):
    """Notes whether the given build is launched, and in what other launches of its function differ from it."""

    launched: bool = False
    differing: list[str] = field(default_factory=list)

    def launch_source(
        self,
        source: KernelSource,
        name: str,
        grid: Sequence[int],
        arguments: Sequence[Any],
        differs: tuple[str, ...] = (),
    ) -> None:
        """Launches nothing."""
        assert self.given is not None
        self.launched |= source == self.given[0].source
        self.differing += differs


def why_not_launched(build: KernelBuild, registry: Registry) -> str:
    """'' if one of the build's proofs launches it."""
    device, found = interpreted_gpu(build.arch), [""] * (not build.proofs)
    for proof in build.proofs:
        backend = replay_choice(registry.get(proof.backend), proof.config)
        found += backend.unsupported_reasons(proof.workload, device)
        executor = Noting(build.arch, Path(), (build, NOT_COMPILED))
        with executing(executor):
            prepare_executed(backend, proof.workload, device).run()
        if executor.launched:
            return ""
        found += executor.differing
    return "; ".join(found) or "another kernel is launched"


def main(archs: Sequence[str]) -> None:
    """Prints a line per build that no proof launches, and then how many builds there are."""
    torch.set_num_threads(1)
    registry, kernels = Registry(), KernelRegistry()
    register(registry)
    register_kernels(kernels)
    builds = kernels.list_builds(archs)
    for build in builds:
        if why := why_not_launched(build, registry):
            print(f"{build.id}: {why}")
    print(f"{len(builds)} builds")


if __name__ == "__main__":
    main(sys.argv[1:])
