from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernels.triton.gemm.builds import KERNELS, MODULES, GemmKernel
from kernels.triton.gemm.space import problem_of
from pytest_attnperf.kernel_builds import ALL_ARCHS, KernelBuild, TritonSource
from pytest_attnperf.workloads.gemm import Gemm

ROOT = Path(__file__).parents[3]
ARCHS = (*ALL_ARCHS, "sm_90", "gfx908")
BUILDS_MAX = 10
MULTIPLYING = [kernel for kernel in KERNELS if kernel.function != "gemm_fix_up_kernel"]


def source(build: KernelBuild) -> TritonSource:
    """What is compiled."""
    assert isinstance(build.source, TritonSource)
    return build.source


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_handful_of_builds_with_ids_of_their_own(kernel: GemmKernel, arch: str) -> None:
    """Every architecture has at most ten builds of a kernel, and no two have one id."""
    ids = [build.id for build in kernel.builds(arch)]
    assert 0 < len(ids) <= BUILDS_MAX
    assert len(set(ids)) == len(ids)
    assert kernel.unsupported_reasons(arch) == []


@pytest.mark.parametrize("kernel", MULTIPLYING, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("arch", ARCHS)
def test_every_rule_is_built(kernel: GemmKernel, arch: str) -> None:
    """Each rule that a kernel can be launched under takes one of the problems, so that it is held to zero spills.

    The fix-up, which has the rules of stream-K and only adds, stands for less.
    """
    rules = kernel.space.load_rules(arch)
    problems = [problem_of(Gemm.parse(text)) for text in kernel.problems]
    taken = [next(index for index, rule in enumerate(rules) if rule.is_for(problem)) for problem in problems]
    assert set(taken) == set(range(len(rules)))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "sm_90"])
def test_signature_and_constants_are_the_kernels_own(kernel: GemmKernel, arch: str) -> None:
    """Every argument of the kernel has a type or a value, and nothing else is given."""
    path = ROOT / f"kernels/triton/{MODULES[kernel.space.kernel].replace('.', '/')}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == kernel.function]
    arguments = {argument.arg for argument in function.args.args}
    for build in kernel.builds(arch):
        assert source(build).signature.keys() | source(build).constants.keys() == arguments
        assert set(source(build).divisible_by_16) <= source(build).signature.keys()


def test_fp8_is_built_in_the_format_of_the_architecture() -> None:
    """gfx942 multiplies fnuz, gfx950 and sm_90 OCP's format, and gfx1100 none, so that nothing is built for it."""
    types = {}
    for arch in ("gfx942", "gfx950", "gfx1201", "sm_90", "gfx1100"):
        found = {source(build).signature["a_ptr"] for build in KERNELS[0].builds(arch)}
        types[arch] = sorted(kind for kind in found if "fp8" in kind)
    assert types["gfx942"] == ["*fp8e4b8", "*fp8e5b16"]
    assert types["gfx950"] == types["gfx1201"] == ["*fp8e4nv", "*fp8e5"]
    assert types["gfx1100"] == []
    assert ["fp8e4nv" in kind or "fp8e5" in kind for kind in types["sm_90"]] == [True, True]


@pytest.mark.parametrize(
    ("arch", "dtype", "promised"),
    [
        *[("gfx942", "f32", True), ("gfx1100", "f32", False), ("sm_90", "f32", False)],
        *[("gfx1100", "i8-nt", True), ("gfx1100", "i32-nt", True), ("gfx942", "i32-nt", True)],
    ],
)
def test_matrix_instructions_are_promised_where_there_are_some(arch: str, dtype: str, promised: bool) -> None:
    """Up to 16 bits, and int32 made of int8, everywhere, exact fp32 products on CDNA only; never by multiply-reduce."""
    builds = [build for build in KERNELS[0].builds(arch) if build.config.endswith(dtype)]
    assert {build.matrix for build in builds} == {promised}
    assert not any(build.matrix for build in KERNELS[-1].builds(arch))
