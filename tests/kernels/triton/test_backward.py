from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import pytest

from kernels.triton.backward.backend import BACKENDS
from kernels.triton.backward.builds import KERNELS, BackwardKernel
from pytest_attnperf.kernel_builds import ALL_ARCHS, TritonSource
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload

BACKEND = BACKENDS[0]
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
INTERPRETING = dataclasses.replace(CPU, interpreted=True)

CASES = (
    "backward-b1-s65-h4-hk2-d40-bf16-causal",
    "backward-b2-s33-kv70-h2-d64-f16-causal",
    "backward-b1-s70-kv31-h2-hk1-d16-f32-causal",
    "backward-b1-s64-h2-d128-f16",
    "backward-b2-s31-kv66-h3-hk1-d13-bf16",
    "backward-b1-s66-kv64-h2-d32-f32",
    "backward-b1-s1-kv97-h2-d64-f32-causal",
    "varlen_backward-q40_1_33-kv40_35_1-h4-hk2-d64-f16-causal",
    "varlen_backward-q33_64-h2-d80-bf16",
    "varlen_backward-q65_7-kv20_66-h2-hk1-d16-f32-causal",
)
"""Ragged, padded, grouped, causal both ways, rows without keys, packed: each with each at least once."""


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """What every case gives, interpreted when it is asked for."""
    return interpret("kernels.triton.backward.backend", [f"{BACKEND.name}/{case}" for case in CASES])


@pytest.mark.parametrize("case", CASES)
def test_right_on_every_small_problem(case: str, interpreted: Any, judge: Any) -> None:
    """The interpreted kernels are within budget, leave their inputs alone, and replay their configuration."""
    found = interpreted[f"{BACKEND.name}/{case}"]
    assert judge(case, found["outputs"]) == ()
    assert found["unchanged"]
    assert found["replays"]
    assert found["config"]["backward_dkv.BLOCK_N"] == "32"


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_right_on_a_gpu(case: str, judge: Any) -> None:
    """The compiled kernels are within budget on the same problems."""
    workload = parse_workload(case)
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    assert judge(case, prepared.outputs(prepared.run()), device="cuda") == ()


@pytest.mark.gpu
def test_two_runs_give_the_same_bits() -> None:
    """No sum depends on the order in which programs run."""
    import torch

    workload = parse_workload("backward-b1-s300-h8-hk2-d64-bf16-causal")
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    once, again = prepared.outputs(prepared.run()), prepared.outputs(prepared.run())
    assert all(torch.equal(once[name], again[name]) for name in once)


def test_the_judge_rejects_a_lost_tile_and_a_lost_head(interpreted: Any, judge: Any) -> None:
    """The last key's dv left out, dk of one query head fewer, and a sequence that reads its neighbour are seen."""
    dense = "backward-b1-s65-h4-hk2-d40-bf16-causal"
    good = interpreted[f"{BACKEND.name}/{dense}"]["outputs"]
    tail = {**good, "dv": good["dv"].clone()}
    tail["dv"][:, 64:] = 0
    assert judge(dense, tail)
    assert judge(dense, {**good, "dk": good["dk"] * 0.5})
    packed = "varlen_backward-q33_64-h2-d80-bf16"
    good = interpreted[f"{BACKEND.name}/{packed}"]["outputs"]
    assert judge(packed, {**good, "dq": good["dq"].roll(1, 0)})


def test_what_it_refuses() -> None:
    """A head dimension beyond the largest, and a machine that neither compiles nor interprets, are refused."""
    large = parse_workload("backward-b1-s8-h2-d320-f16")
    assert BACKEND.unsupported_reasons(large, INTERPRETING) == [
        "head_dim 320 is above 256, the largest these kernels take"
    ]
    (reason,) = BACKEND.unsupported_reasons(parse_workload("backward-b1-s8-h2-d64-f16"), CPU)
    assert "set TRITON_INTERPRET=1" in reason


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": (5, 4, 16)}, "q is 3 dimensions, must be 4"),
        ({"k": (1, 5, 3, 16)}, "k is 3 heads, must be a number of heads that divides q's 4"),
        ({"v": (1, 4, 2, 16)}, "v is shape (1, 4, 2, 16), must be (1, 5, 2, 16)"),
        ({"dout": (1, 5, 2, 16)}, "dout is shape (1, 5, 2, 16), must be (1, 5, 4, 16)"),
        ({"lse": (1, 5, 4)}, "lse is shape (1, 5, 4), must be (1, 4, 5)"),
        ({"q": (1, 5, 4, 512)}, "q is head_dim 512, must be a head_dim of at most 256"),
    ],
)
def test_the_launcher_names_a_bad_argument(change: dict[str, tuple[int, ...]], message: str) -> None:
    """Shapes that do not fit are refused with what was given and what is wanted, before anything is launched."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.backward.launch import make_geometry
    from pytest_attnperf.errors import UsageError

    rows, keys = (1, 5, 4, 16), (1, 5, 2, 16)
    shapes = {"q": rows, "k": keys, "v": keys, "dout": rows, "out": rows, "lse": (1, 4, 5)} | change
    with pytest.raises(UsageError, match=re.escape(f"flash_backward: {message}")):
        make_geometry(**{name: torch.zeros(shape) for name, shape in shapes.items()})


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_builds_give_every_argument_once(kernel: Any) -> None:
    """Every argument of the function has a type or a value, ids are unique, and there are at most eight a GPU."""
    pytest.importorskip("triton")
    import importlib

    for arch in (*ALL_ARCHS, "sm_90", "gfx908"):
        builds = kernel.builds(arch)
        assert len({build.config for build in builds}) == len(builds) <= 8
        for build in builds:
            assert isinstance(build.source, TritonSource)
            function = getattr(importlib.import_module(build.source.module), build.source.function)
            parameters = inspect.signature(getattr(function, "fn", function)).parameters
            given = build.source.signature.keys() | build.source.constants.keys()
            assert parameters.keys() - given <= {"XCDS"}, "XCDS has a default"
            assert given <= parameters.keys()
            assert set(build.source.divisible_by_16) <= build.source.signature.keys()


def test_both_large_kernels_promise_matrix_instructions() -> None:
    """16-bit products everywhere; delta is a sum, and promises none."""
    for kernel in KERNELS:
        promised = {build.matrix for build in kernel.builds("gfx942")}
        assert promised == {isinstance(kernel, BackwardKernel)}
