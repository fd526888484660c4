"""The backward pass over transposed values."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from kernels.triton.backward.backend import BACKENDS
from kernels.triton.backward.builds import KERNELS
from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import ALL_ARCHS, TritonSource
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload

pytestmark = pytest.mark.usefixtures("one_thread")

BACKEND = BACKENDS[1]
INTERPRETING = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)
CASES = (
    "backward-b1-s65-h4-hk2-d64-bf16-causal",
    "backward-b2-s33-kv70-h2-d128-f16-causal",
    "backward-b1-s70-kv31-h2-hk1-d64-f32-causal",
    "backward-b1-s64-h2-d128-f16",
    "backward-b2-s31-kv66-h3-hk1-d13-bf16",
)
"""Ragged, padded, grouped, two sequences, causal both ways, rows without keys, each type."""

ONE_HEAD = "backward-b1-s40-h1-d64-bf16-causal"
"""With one K/V head and as many keys as rows every wrong order of V is inside the tensor."""

MISTAKES = (
    "dq reads v untransposed",
    "dkv reads v untransposed",
    "dkv reads k transposed",
    "dv is written untransposed",
    "dkv takes delta of the row before",
    "dq takes delta of the row before",
)


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """What every case gives, interpreted when it is asked for."""
    return interpret("kernels.triton.backward.backend", [f"{BACKEND.name}/{case}" for case in (*CASES, ONE_HEAD)])


@pytest.fixture(scope="module")
def mutated(interpret: Any) -> Any:
    """The outputs of the kernels with one mistake."""
    return interpret("tests.kernels.triton.mutated", [f"{mistake}/{ONE_HEAD}" for mistake in MISTAKES])


@pytest.mark.parametrize("case", [*CASES, ONE_HEAD])
def test_right_on_every_small_problem(case: str, interpreted: Any, judge: Any) -> None:
    """The interpreted kernels are within budget, leave their inputs alone, and replay their configuration."""
    found = interpreted[f"{BACKEND.name}/{case}"]
    assert judge(case, found["outputs"]) == ()
    assert found["unchanged"]
    assert found["replays"]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_kernel_is_incorrect(mistake: str, mutated: Any, judge: Any) -> None:
    """A kernel that forgets the transposition of K or V, or takes delta of another row, is beyond the budget."""
    problems = judge(ONE_HEAD, mutated[f"{mistake}/{ONE_HEAD}"])
    wrong = {name for name in ("dq", "dk", "dv") if any(name in problem for problem in problems)}
    expected = {"dq": {"dq"}, "dv": {"dv"}, "dkv": {"dk", "dv"} if "reads k" in mistake else {"dk"}}
    assert wrong == expected[mistake.partition(" ")[0]]


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*CASES, ONE_HEAD])
def test_right_on_a_gpu(case: str, judge: Any) -> None:
    """The compiled kernels are within budget on the same problems."""
    workload = parse_workload(case)
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    assert judge(case, prepared.outputs(prepared.run()), device="cuda") == ()


def test_v_is_transposed_before_the_call_and_dv_after_it(interpreted: Any) -> None:
    """The timed v is contiguous (B, Hk, D, Skv) and is refilled from the canonical layout; dv comes back in it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    workload = parse_workload("backward-b2-s5-kv7-h4-hk2-d64-f16")
    first, second = (workload.make_inputs(seed, "cpu", planted=False) for seed in (1, 2))
    prepared = BACKEND.prepare(workload, first)
    assert prepared.tensors[2].shape == (2, 2, 64, 7)
    assert prepared.tensors[2].is_contiguous()
    prepared.load(second)
    assert torch.equal(prepared.tensors[2].permute(0, 3, 1, 2), second[2])
    dq, dk, dv = torch.zeros(2, 5, 4, 64), torch.zeros(2, 7, 2, 64), torch.zeros(2, 2, 64, 7)
    assert prepared.outputs((dq, dk, dv))["dv"].shape == dk.shape


def test_it_is_offered_for_dense_problems_only() -> None:
    """Packed sequences have no transposed layout here, in the backend and in the launcher, which says so."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.backward.launch import Packed, make_geometry

    assert BACKEND.families == ("backward",)
    assert BACKEND.unsupported_reasons(parse_workload(CASES[0]), INTERPRETING) == []
    rows, offsets = torch.zeros(5, 2, 16), torch.tensor([0, 5], dtype=torch.int32)
    packed = Packed(offsets, offsets, 5, 5)
    with pytest.raises(UsageError, match="v_transposed is True of packed sequences, must be False"):
        make_geometry(rows, rows, rows, rows, rows, torch.zeros(2, 5), packed, v_transposed=True)


def test_the_launcher_names_values_that_are_not_transposed() -> None:
    """v in the canonical layout is refused, with the shape that is needed."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.backward.launch import make_geometry

    rows, keys = torch.zeros(1, 5, 4, 16), torch.zeros(1, 6, 2, 16)
    text = "flash_backward: v is shape (1, 6, 2, 16), must be (1, 2, 16, 6)"
    with pytest.raises(UsageError, match=re.escape(text)):
        make_geometry(rows, keys, keys, rows, rows, torch.zeros(1, 4, 5), v_transposed=True)


def test_both_kernels_are_built_transposed() -> None:
    """Head dimensions 64 and 128 of each architecture, every argument once, and the others as they were."""
    pytest.importorskip("triton")
    for kernel in KERNELS[1:]:
        transposed = kernel.name.endswith("_trans_v")
        for arch in ALL_ARCHS:
            builds = kernel.builds(arch)
            assert len(builds) <= 8
            for build in builds:
                assert isinstance(build.source, TritonSource)
                assert build.source.constants["V_TRANSPOSED"] is transposed
                function: Any = getattr(importlib.import_module(build.source.module), build.source.function)
                given = build.source.signature.keys() | build.source.constants.keys()
                assert given | {"XCDS"} == {*function.arg_names, "XCDS"}, "XCDS has a default"
            if transposed:
                assert {str(build.config).partition("-")[0] for build in builds} == {"d64", "d128"}
