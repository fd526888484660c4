"""What candidates are compiled as, and the form of every declaration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import kernels
from kernels.configured import Configured
from kernels.triton.gemm.builds import KERNELS as GEMMS
from kernels.triton.prefill.builds import PrefillForwardKernel
from kernels.triton.rows.builds import KERNELS as ROWS
from kernels.tuning import declared_by_kernel
from kernels.tuning_spaces.target import Target
from pytest_attnperf.backends import Registry
from pytest_attnperf.kernel_builds import KernelBuild, TritonSource
from pytest_attnperf.records.code import KernelCode
from pytest_attnperf.tools.tuner.compiling import CompiledCandidate
from pytest_attnperf.tools.tuner.pruning import split_repeats
from pytest_attnperf.tuning_records import Candidate
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.decode import Decode
from pytest_attnperf.workloads.gemm import Gemm
from pytest_attnperf.workloads.mla import Mla
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.softmax import Softmax
from pytest_attnperf.workloads.varlen import Varlen

REGISTRY = Registry()
kernels.register(REGISTRY)
BACKENDS: dict[str, Any] = {each.name: each for each in REGISTRY if isinstance(each, Configured)}
D256 = Prefill.parse("prefill-b4-s512-h8-d256-f16-causal-lse")


def source_of(name: str, workload: Workload, arch: str = "sm_90", **changes: int) -> TritonSource:
    """What a candidate, the default with changes, is compiled as."""
    backend = BACKENDS[name]
    space = backend.tuning_space([workload], arch)
    candidate = Candidate({**space.default.values, **changes})
    (build,) = backend.tuning_builds(candidate, space, workload, arch)
    assert isinstance(build, KernelBuild)
    assert build.arch == arch
    assert isinstance(build.source, TritonSource)
    return build.source


def arguments(source: TritonSource) -> set[str]:
    """Every argument that the source gives a type or a value."""
    assert not source.signature.keys() & source.constants.keys()
    return {*source.signature, *source.constants}


@pytest.mark.parametrize("arch", ["sm_90", "gfx942", "gfx1201"])
def test_every_declaration_covers_its_space(arch: str) -> None:
    """A tuple of values for each constant and option, nothing that the space does not know, and none twice."""
    workloads: dict[str, Any] = {
        "prefill": D256,
        "varlen": Varlen.parse("varlen-q512-h8-d128-bf16"),
        "decode": Decode.parse("decode-b64-kv4096-h32-hk8-d128-f16"),
        "gemm": Gemm.parse("gemm-m4096-n4096-k4096-i8-nt"),
        "softmax": Softmax.parse("softmax-r8192-c4096-bf16"),
        "rmsnorm": RmsNorm.parse("rmsnorm-r8192-c4096-bf16"),
        "mla": Mla.parse("mla-b1-s2048-h16-d128-r64-c512-bf16-causal"),
    }
    for declared in declared_by_kernel().values():
        (family,) = declared.families
        values = declared.values([workloads.get(family, workloads["rmsnorm"])], Target(arch))
        space = declared.space
        assert values.keys() - space.further == space.constants.keys() | space.options
        assert values.keys() <= space.constants.keys() | space.options | space.further
        assert all(len(set(tried)) == len(tried) > 0 for tried in values.values())
        for name, tried in values.items():
            assert {type(each) for each in tried} == {space.constants.get(name, int)}


def test_a_default_is_compiled_as_the_shipped_build() -> None:
    """At a shipped head dimension, mask and kind of lengths, the candidate of today's figures is the build of today."""
    shipped = {each.config: each for each in PrefillForwardKernel().builds("sm_90")}
    for config, causal, length in (
        ("d256-f16-causal-even", True, 512), ("d256-f16-full-ragged", False, 500)
    ):  # fmt: skip
        source = source_of("triton.flash", replace(D256, causal=causal, seq_q=length, seq_kv=length))
        expected = shipped[config].source
        assert isinstance(expected, TritonSource)
        assert (source.signature, source.constants) == (expected.signature, expected.constants)
        assert (source.function, source.options) == (expected.function, expected.options)
        assert set(source.divisible_by_16) == set(expected.divisible_by_16)


def test_gemm_and_rows_defaults_are_shipped_builds() -> None:
    """The same of matrix multiplication and of a norm with a residual."""
    workload = Gemm.parse("gemm-m2048-n14336-k4096-bf16-nt")
    (shipped,) = (each for each in GEMMS[0].builds("sm_90") if f"gemm-{each.config}" == workload.id)
    assert source_of("triton.gemm", workload) == shipped.source
    rows = RmsNorm.parse("rmsnorm-r8192-c8192-bf16-residual")
    (norm,) = (each for each in ROWS[1].builds("gfx942") if each.config == "c8192-bf16-residual")
    found = source_of("triton.rmsnorm", rows, "gfx942")
    assert isinstance(norm.source, TritonSource)
    assert (found.signature, found.constants, found.divisible_by_16) == (
        norm.source.signature, norm.source.constants, norm.source.divisible_by_16
    )  # fmt: skip


def test_a_candidate_s_values_are_compiled() -> None:
    """Constants reach the kernel, options the compiler; what follows from a tile (EVEN_N) follows it."""
    source = source_of("triton.flash", replace(D256, seq_q=96, seq_kv=96), BLOCK_N=32, BLOCK_M=64, num_warps=4)
    assert {name: source.constants[name] for name in ("BLOCK_M", "BLOCK_N", "EVEN_N")} == {
        "BLOCK_M": 64, "BLOCK_N": 32, "EVEN_N": True
    }  # fmt: skip
    assert source.options == {"num_warps": 4, "num_stages": 2}
    assert source_of("triton.flash", replace(D256, seq_q=96, seq_kv=96), BLOCK_N=64).constants["EVEN_N"] is False


@pytest.mark.parametrize(
    "text",
    [
        "prefill-b1-s512-h8-d128-bf16-causal",
        "prefill-b1-s512-h8-d128-w64-bf16-causal-lse",
        "prefill-b1-s512-kv100-h8-d128-bf16-causal-alibi",
        "prefill-b1-s512-h8-d192-dv128-f32-bias",
        "prefill-b1-s512-h8-d128-i8-kv8-causal",
        "prefill-b1-s512-h8-d128-f8e5m2-causal",
    ],
)
@pytest.mark.parametrize("name", ["triton.flash", "triton.flash_persistent"])
def test_every_feature_gives_the_kernel_all_its_arguments(name: str, text: str) -> None:
    """Whatever a workload asks for, each argument of the kernel has a type or a value, once."""
    pytest.importorskip("triton")
    from kernels.triton.prefill.forward import prefill_forward_kernel
    from kernels.triton.prefill.persistent import prefill_persistent_kernel

    kernel = prefill_forward_kernel if name == "triton.flash" else prefill_persistent_kernel
    workload = Prefill.parse(text)
    source = source_of(name, workload)
    assert arguments(source) == set(kernel.arg_names)
    assert ("lse_ptr" in source.signature) == source.constants["WITH_LSE"] == workload.lse
    assert source.constants["GUARDED"] == (bool(workload.window or workload.bias) or workload.seq_kv < workload.seq_q)


def test_other_families_give_their_kernels_all_arguments() -> None:
    """The same of packed sequences with a window, decoding and rows without a residual."""
    pytest.importorskip("triton")
    from kernels.triton.decode.kernel import decode_kernel
    from kernels.triton.rows.rmsnorm import rmsnorm_kernel
    from kernels.triton.varlen.kernel import varlen_forward_kernel

    packed = source_of("triton.flash_varlen", Varlen.parse("varlen-q512-h8-d64-w32-bf16-causal"))
    assert arguments(packed) == set(varlen_forward_kernel.arg_names)
    given = [packed.constants[name] for name in ("HEAD_DIM", "WINDOWED", "WITH_LSE")]
    assert given == [64, True, False]
    decode = source_of("triton.flash_decode", Decode.parse("decode-b64-kv4096-h32-hk8-d128-f16"), BLOCK_N=32)
    assert arguments(decode) == set(decode_kernel.arg_names)
    assert decode.constants["BLOCK_N"] == 32
    norm = source_of("triton.rmsnorm", RmsNorm.parse("rmsnorm-r8192-c256-bf16"), BLOCK_R=2)
    assert arguments(norm) == set(rmsnorm_kernel.arg_names)
    assert (norm.constants["BLOCK_R"], norm.constants["BLOCK_C"], norm.constants["RESIDUAL"]) == (16, 256, False)


def test_what_is_not_compiled_without_a_gpu_is_empty() -> None:
    """Packed f32 has no declared build: nothing is pruned of it, and nothing is invented."""
    backend, workload = BACKENDS["triton.flash_varlen"], Varlen.parse("varlen-q512-h8-d64-f32")
    space = backend.tuning_space([workload], "gfx942")
    assert backend.tuning_builds(space.default, space, workload, "gfx942") == []


@pytest.mark.parametrize(
    ("arch", "lanes", "registers", "shared"),
    [
        ("sm_90", 32, 256, 227 * 1024),
        ("sm_61", 32, 256, None),
        ("gfx942", 64, 512, 64 * 1024),
        ("gfx950", 64, 512, 160 * 1024),
        ("gfx1201", 32, 256, 64 * 1024),
        ("gfx1250", 32, 256, None),
    ],
)
def test_what_an_architecture_holds(arch: str, lanes: int, registers: int, shared: int | None) -> None:
    """Lanes of a warp, registers of a lane, and shared memory where it is known; 1,024 threads everywhere."""
    target = Target(arch)
    assert (target.lanes, target.registers, target.shared_bytes) == (lanes, registers, shared)
    assert target.possible_warps(4, 16, 32)[-1] * lanes <= 1024


@pytest.mark.parametrize(
    ("name", "workload", "parameter"),
    [
        ("triton.flash_decode", Decode.parse("decode-b8-kv4096-h32-hk8-d128-bf16"), "PROGRAMS"),
        ("triton.flash_decode", Decode.parse("decode-b8-kv4096-h32-hk8-d128-bf16"), "SPLIT_KEYS_MIN"),
        ("triton.flash_persistent", D256, "PROGRAMS_PER_SM"),
        ("triton.rmsnorm", RmsNorm.parse("rmsnorm-r8192-c4096-bf16"), "PROGRAMS"),
    ],
)
def test_what_makes_the_grid_is_tried_though_the_code_is_the_same(
    name: str, workload: Workload, parameter: str
) -> None:
    """A tuner times one of several candidates of the same machine code: a grid is not in it."""
    backend = BACKENDS[name]
    space = backend.tuning_space([workload], "sm_90")
    tried = [Candidate({**space.default.values, parameter: value}) for value in space.values[parameter]]
    builds = {each.id: backend.tuning_builds(each, space, workload, "sm_90") for each in tried}
    code = KernelCode("one", "sm_90", 8, 0, 8, 8, 0, 0, 0, 0, 0, 0, 128, 128, 32, None, False, 64, "ab12")
    compiled = {each.id: CompiledCandidate((code,)) for each in tried}
    assert len(tried) > 1
    assert split_repeats(tried, compiled, builds, space.default) == (tried, [])


def test_int32_is_multiplied_as_int8_along_k() -> None:
    """NVIDIA multiplies int8 by 32 along K at least, so no candidate for int32 has the 16 that fp32 may have."""
    values = {
        dtype: BACKENDS["triton.gemm"]
        .tuning_space([Gemm.parse(f"gemm-m4096-n4096-k4096-{dtype}-nt")], "sm_90")
        .values["BLOCK_K"]
        for dtype in ("i32", "f32")
    }
    assert values == {"i32": (32, 64), "f32": (16, 32, 64)}
