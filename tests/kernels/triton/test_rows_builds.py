"""What softmax, norms, rotary embeddings and the bandwidth kernels are compiled as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernels.configs import FOLDER, ConfigRule
from kernels.triton.bandwidth.backend import SPACE as BANDWIDTH
from kernels.triton.bandwidth.builds import KERNELS as BANDWIDTH_KERNELS
from kernels.triton.rope.backend import SPACE as ROPE
from kernels.triton.rope.builds import KERNELS as ROPE_KERNELS
from kernels.triton.rows.builds import KERNELS as ROWS_KERNELS
from kernels.triton.rows.space import LAYERNORM, RMSNORM, SOFTMAX
from pytest_attnperf.kernel_builds import ALL_ARCHS, KernelRegistry
from pytest_attnperf.workloads.bandwidth import KINDS, PATTERN, WORDS
from tests.kernels.triton.declared import assert_declares_every_argument

SPACES = (SOFTMAX, RMSNORM, LAYERNORM, ROPE, BANDWIDTH)
KERNELS: tuple[Any, ...] = (*ROWS_KERNELS, *ROPE_KERNELS, *BANDWIDTH_KERNELS)
BUILDS_MAX = 12
ARCHS = (*ALL_ARCHS, "sm_90", "interpreter", "default", "gfx1200")
PROBLEMS: dict[str, Any] = {
    "rows": [
        {"columns": columns, "element_bits": bits} for columns in (1, 1000, 8192, 32768, 10**7) for bits in (16, 32)
    ],
    "rope": [
        {"head_dim": head_dim, "interleaved": interleaved, "element_bits": 16}
        for head_dim in (2, 128, 130, 512)
        for interleaved in (False, True)
    ],
    "bandwidth": [{"kind": kind, "element_bits": bits} for kind in KINDS for bits in (16, 32)],
}


@pytest.mark.parametrize("arch", ARCHS)
def test_every_problem_has_a_configuration(arch: str) -> None:
    """Whatever a workload may ask for, each architecture's files hold a rule that takes it."""
    for space in SPACES:
        for problem in PROBLEMS.get(space.kernel, PROBLEMS["rows"]):
            assert space.choose(arch, problem).rule.source


@pytest.mark.parametrize("arch", ARCHS)
def test_sizes_are_powers_of_two_that_a_launch_can_use(arch: str) -> None:
    """Triton's ranges are powers of two; a block of words is whole stretches, and one of elements whole patterns."""
    for space in SPACES:
        for rule in space.load_rules(arch):
            sizes = [value for name, value in rule.constants.items() if name not in ("STREAM", "PROGRAMS", "STAGES")]
            assert all(value & (value - 1) == 0 < value for value in sizes)
            assert rule.constants.get("PROGRAMS", 0) >= 0 < rule.constants.get("STAGES", 1)
            if space is BANDWIDTH:
                assert rule.constants["BLOCK"] % max(WORDS, PATTERN) == 0


@pytest.mark.parametrize("arch", [*ALL_ARCHS, "sm_90"])
def test_few_builds_under_distinct_ids(arch: str) -> None:
    """Every kernel has at most 12 builds, every rule at least one, and all say which file they come from."""
    registry = KernelRegistry()
    registry.add(*KERNELS)
    builds = registry.list_builds([arch])
    for kernel in KERNELS:
        own = [build for build in builds if build.kernel == kernel.name]
        assert 0 < len(own) <= BUILDS_MAX
        assert {build.where for build in own} == {f"kernels/triton/configs/{kernel.space.kernel}/{arch}.json"}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_argument_is_declared(kernel: Any) -> None:
    """Signature and constants together are the arguments of the function, each once, in the module that holds it."""
    assert_declares_every_argument(kernel)
    assert not any(build.matrix for build in kernel.builds("gfx942"))


def test_the_first_rule_that_takes_a_problem_is_the_one_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that a narrower one before it leaves nothing to is not built twice."""
    (kernel,) = ROPE_KERNELS
    base = {"BLOCK_S": 1, "BLOCK_H": 8, "num_warps": 4, "num_stages": 1}
    rules = (
        ConfigRule({"head_dim_max": 128, "interleaved": True}, {**base, "BLOCK_H": 16}, "x"),
        ConfigRule({"head_dim_max": 128}, base, "x"),
    )
    monkeypatch.setattr(type(kernel.space), "load_rules", lambda self, arch: rules)
    held = {build.config: build.settings["BLOCK_H"] for build in kernel.builds("gfx942")}
    assert held == {
        "d128-bf16-halves": "8",
        "d128-bf16-interleaved": "16",
        "d128-f32-halves": "8",
        "d128-f32-interleaved": "16",
    }


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.kernel)
def test_every_architecture_has_a_file(space: Any) -> None:
    """None of the architectures that code objects are kept for falls back to the default."""
    folder = Path(FOLDER) / space.kernel
    assert {path.stem for path in folder.glob("*.json")} >= {*ALL_ARCHS, "sm_90", "interpreter", "default"}
    assert all(json.loads(path.read_text())["rules"] for path in folder.glob("*.json"))


def test_rows_that_a_tile_does_not_hold_are_built_with_two_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the launcher would decide of the longest rows of a rule is what is compiled."""
    kernel: Any = ROWS_KERNELS[0]
    tile = {"BLOCK_R": 1, "BLOCK_C": 8192, "PROGRAMS": 0, "STAGES": 1, "num_warps": 8, "num_stages": 1}
    rules = tuple(ConfigRule(when, tile, "x") for when in ({"columns_max": 8192}, {"columns_max": 16384}, {}))
    monkeypatch.setattr(type(kernel.space), "load_rules", lambda self, arch: rules)
    held = {build.config: build.source.constants["ONE_PASS"] for build in kernel.builds("gfx942")}
    assert {name: one_pass for name, one_pass in held.items() if name.endswith("-f16")} == {
        "c8192-f16": True,
        "c16384-f16": False,
        "long-f16": False,
    }
