"""What the kernels of the staged pipeline are configured by and compiled as."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.configs import FOLDER
from kernels.triton.staged.backend import PRODUCTS, SPACE_OF
from kernels.triton.staged.builds import HEAD_DIM, KERNELS
from kernels.triton.staged.space import CAUSAL_MASK, QK_SCORES, ROW_SOFTMAX, SPACES, WEIGHTED_VALUES
from pytest_attnperf.kernel_builds import ALL_ARCHS, KernelRegistry, TritonSource
from tests.kernels.triton.declared import assert_declares_every_argument

BUILDS_MAX = 2
ARCHS = (*ALL_ARCHS, "sm_90", "interpreter", "default", "gfx1200")
SIZES = (1, 1000, 8192, 16384, 10**6)
PROBLEMS: dict[str, list[Any]] = {
    QK_SCORES.kernel: [
        {"head_dim": head_dim, "element_bits": bits, "pairs": pairs}
        for head_dim in (1, 64, 256)
        for bits in (16, 32)
        for pairs in (1, 1 << 22, 1 << 30)
    ],
    CAUSAL_MASK.kernel: [{"columns": size} for size in SIZES],
    ROW_SOFTMAX.kernel: [{"columns": size, "element_bits": bits} for size in SIZES for bits in (16, 32)],
    WEIGHTED_VALUES.kernel: [
        {"head_dim": head_dim, "element_bits": bits, "rows": rows}
        for head_dim in (1, 64, 256)
        for bits in (16, 32)
        for rows in (1, 1 << 15, 1 << 20)
    ],
}


@pytest.mark.parametrize("arch", ARCHS)
def test_every_problem_has_a_configuration(arch: str) -> None:
    """Whatever a workload may ask for, each architecture's files hold a rule that takes it."""
    for space in SPACES:
        for problem in PROBLEMS[space.kernel]:
            assert space.choose(arch, problem).rule.source


@pytest.mark.parametrize("arch", ARCHS)
def test_tiles_are_powers_of_two(arch: str) -> None:
    """Triton's ranges are; those of a product are at least the 16 of a matrix instruction and at most the head
    dimension that is built, so that a build is what a launch compiles."""
    for stage, space in SPACE_OF.items():
        for rule in space.load_rules(arch):
            assert all(size & (size - 1) == 0 < size for size in rule.constants.values())
            if stage in PRODUCTS:
                assert min(rule.constants.values()) >= 16
                inner = "BLOCK_K" if stage == "qk_scores" else "BLOCK_N"
                assert rule.constants[inner] <= HEAD_DIM


@pytest.mark.parametrize("arch", ALL_ARCHS)
def test_few_builds_under_distinct_ids(arch: str) -> None:
    """Every rule of an architecture is built, two at most of a kernel, and says which file it comes from."""
    registry = KernelRegistry()
    registry.add(*KERNELS)
    builds = registry.list_builds([arch])
    for kernel in KERNELS:
        own = [build for build in builds if build.kernel == kernel.name]
        assert 0 < len(own) == len(kernel.space.load_rules(arch)) <= BUILDS_MAX
        assert {build.where for build in own} == {f"kernels/triton/configs/{kernel.space.kernel}/{arch}.json"}


def test_large_and_small_problems_are_built_apart() -> None:
    """Where the rules of one type differ by size, so do the ids of their builds."""
    registry = KernelRegistry()
    registry.add(*KERNELS)
    ids = {build.id for build in registry.list_builds(["sm_90"])}
    assert {"triton.staged_qk_scores-d128-bf16-pairs4194304-sm_90", "triton.staged_qk_scores-d128-bf16-sm_90"} < ids
    assert {"triton.staged_row_softmax-c2048-sm_90", "triton.staged_row_softmax-long-sm_90"} < ids
    assert "triton.staged_causal_mask-any-sm_90" in ids


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_argument_is_declared(kernel: Any) -> None:
    """Signature and constants together are the arguments of the function, each once, in the module that holds it."""
    assert_declares_every_argument(kernel)


@pytest.mark.parametrize(("arch", "bits"), [("gfx942", {"bf16", "f32"}), ("gfx1100", {"bf16"}), ("sm_90", {"bf16"})])
def test_matrix_instructions_are_promised_where_there_are_some(arch: str, bits: set[str]) -> None:
    """Of products of 16 bits everywhere, of exact 32-bit ones on CDNA, and of nothing else."""
    promised = {build.config.split("-")[1] for kernel in KERNELS for build in kernel.builds(arch) if build.matrix}
    assert promised == bits
    assert not any(build.matrix for kernel in KERNELS if not kernel.product for build in kernel.builds(arch))


def test_rows_of_one_tile_are_built_in_one_pass() -> None:
    """A rule for rows up to its tile is built as one pass, and the one for longer rows as two walks."""
    (kernel,) = [each for each in KERNELS if each.space is ROW_SOFTMAX]
    for arch in (*ALL_ARCHS, "sm_90"):
        for build in kernel.builds(arch):
            assert isinstance(build.source, TritonSource)
            constants = build.source.constants
            assert constants["ONE_PASS"] == (build.config == f"c{constants['BLOCK_C']}")


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.kernel)
def test_every_architecture_has_a_file(space: Any) -> None:
    """None of the architectures that code objects are kept for falls back to the default."""
    held = {path.stem for path in (FOLDER / space.kernel).glob("*.json")}
    assert held == {*ALL_ARCHS, "sm_90", "interpreter", "default"}
