"""The static rank on compiled kernels: what a review found better comes before what was shipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernels.hip.builds import make_build
from kernels.hip.steps import STEPS, problem_of
from pytest_attnperf.codeobject.analysis import Analyser
from pytest_attnperf.codeobject.building import build_object, unsupported_reasons
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.tools.tuner.pruning import rank, static_figures
from pytest_attnperf.tuning_records import Candidate
from pytest_attnperf.workloads.prefill import Prefill

BEST = next(step for step in STEPS if step.name == "hip.best")
SHIPPED_BEFORE = {
    "gfx942": {"WAVES": 4, "ROW_TILES": 2, "BLOCK_N": 32, "Q_IN_REGISTERS": 0},
    "gfx950": {"WAVES": 4, "ROW_TILES": 2, "BLOCK_N": 64, "Q_IN_REGISTERS": 1},
}


def build(arch: str, workload: Prefill, config: dict[str, int]) -> KernelBuild:
    """`hip.best` under a configuration; {} is the shipped one."""
    choice = BEST.space.choose(arch, problem_of(workload))
    if config:
        choice = replace(choice, rule=replace(choice.rule, config=config))
    kernel, _ = BEST.make_kernel(workload, arch, choice)
    return make_build(BEST.name, "d128", arch, kernel)


@pytest.mark.parametrize(
    ("arch", "dtype", "causal"),
    [("gfx942", "bf16", True), ("gfx942", "f16", False), ("gfx950", "bf16", True), ("gfx950", "f16", False)],
)
def test_what_hip_best_ships_comes_before_what_it_shipped(arch: str, dtype: str, causal: bool, tmp_path: Path) -> None:
    """At D = 128: on gfx942 queries in registers and 64 keys before queries in LDS and 32 keys, on gfx950 32 keys and
    three waves per SIMD before 64 keys and two."""
    workload = Prefill(batch=4, seq_q=4096, heads=32, kv_heads=8, head_dim=128, dtype=dtype, causal=causal)
    builds = {"before": build(arch, workload, SHIPPED_BEFORE[arch]), "shipped": build(arch, workload, {})}
    for reason in unsupported_reasons(builds["before"]):
        pytest.skip(reason)
    figures = {
        Candidate({}, label): static_figures([Analyser()(build_object(one, tmp_path), one)])
        for label, one in builds.items()
    }
    assert all(found.peak_share for found in figures.values())
    assert [one.label for one in rank(figures, arch)] == ["shipped", "before"]
