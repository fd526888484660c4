from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import UnsupportedError
from pytest_attnperf.workloads.backward import Backward
from tests.kernels.aiter.dispatch_rows import PARTS, device, package, part, workload

CK, ASM = "aiter's mha_bwd (CK)", "aiter's fmha_v3_bwd (assembly)"
PACKED_ASM = "aiter's fmha_v3_varlen_bwd (assembly)"
TOP_LEFT = (
    " was not verified with causal masks where a sequence has not as many keys as queries: aiter's source says of some "
    'kernels that they align masks top-left ("v3 kernel only support mask_enum::top_left")'
)


def prepared(name: str, text: str) -> tuple[Any, dict[str, Any]]:
    """A case, and what the compiled function got in its first run."""
    problem = workload(text)
    case = part(name, text).prepare(problem, problem.make_inputs(1, "cpu", planted=False))
    return case, importlib.import_module("aiter.ops.mha").CALLS[0][1]


@pytest.mark.parametrize(
    ("name", "text", "arch", "reason"),
    [
        ("ck", "backward-b1-s33-h2-d64-f32", "gfx942", f"{CK} takes bf16, f16, not f32"),
        ("ck", "backward-b1-s33-h2-d20-f16", "gfx942", f"{CK} needs head_dim to be a multiple of 8, not 20"),
        (
            "ck",
            "backward-b1-s33-kv9-h2-d64-f16-causal",
            "gfx942",
            f"{CK} is not known to give zero gradients for rows that see no key, and some rows see none",
        ),
        ("aiter.asm", "backward-b1-s33-h2-d64-f16", "gfx950", f"{ASM} takes head_dim 72 to 128 on gfx950, not 64"),
        ("aiter.asm", "backward-b1-s33-h2-d200-f16", "gfx942", f"{ASM} takes head_dim 64 to 192 on gfx942, not 200"),
        (
            "aiter.asm",
            "backward-b1-s16-h2-d64-f16",
            "gfx942",
            f"{ASM} was not verified below 17 queries, where aiter itself takes CK",
        ),
        ("aiter.asm", "backward-b1-s33-kv40-h2-d64-f16-causal", "gfx942", ASM + TOP_LEFT),
        ("aiter.asm", "varlen_backward-q5_20-kv5_31-h2-d64-f16-causal", "gfx942", PACKED_ASM + TOP_LEFT),
    ],
)
def test_limits_are_named_with_the_value(
    name: str, text: str, arch: str, reason: str, aiter_package: Callable[..., Path]
) -> None:
    """Whatever is refused has one reason, which names the value and what exists."""
    aiter_package()
    assert part(name, text).unsupported_reasons(workload(text), device(arch)) == [reason]


@pytest.mark.parametrize("name", ["ck", "aiter.asm", "aiter.auto"])
def test_gradients_are_not_asked_to_be_deterministic(name: str, aiter_package: Callable[..., Path]) -> None:
    """A deterministic pass is another kernel; what was asked for is recorded, and dropout's state has an address."""
    pytest.importorskip("torch")
    aiter_package(package())
    case, values = prepared(name, "backward-b1-s33-h2-d64-f16")
    assert (case.config["deterministic"], values["deterministic"]) == ("False", False)
    assert values["rng_state"].shape == (2,)
    assert (values["window_size_left"], values["window_size_right"], values["dropout_p"]) == (-1, -1, 0.0)


def test_assembly_gets_a_cleared_dq(aiter_package: Callable[..., Path]) -> None:
    """It may add to dq, so a new one of zeros is given in every call, as aiter's dispatcher does."""
    torch = pytest.importorskip("torch")
    aiter_package(
        package(
            changed={
                "        return result(name, bound.arguments)": """
        if name == "fmha_v3_bwd":
            assert not bound.arguments["dq"].any()
        return result(name, bound.arguments)"""
            }
        )
    )
    case, _ = prepared("aiter.asm", "backward-b1-s33-h2-d64-f16")
    first, second = case.run(), case.run()
    assert torch.equal(first[0], second[0])
    assert first[0].data_ptr() != second[0].data_ptr()


@pytest.mark.parametrize(
    ("arch", "text", "atomic32", "rounding"),
    [
        ("gfx942", "backward-b1-s33-h2-d128-bf16", "True", "1"),
        ("gfx950", "backward-b1-s33-h2-d128-bf16", "False", "0"),
        ("gfx950", "backward-b1-s33-kv257-h2-d128-bf16", "True", "0"),
    ],
)
def test_assembly_is_called_as_the_dispatcher_calls_it(
    arch: str, text: str, atomic32: str, rounding: str, aiter_package: Callable[..., Path]
) -> None:
    """On gfx950 up to 256 keys are one block, whose dq is added up in 16 bits, and results are rounded to even."""
    pytest.importorskip("torch")
    aiter_package(package(arch))
    case, values = prepared("aiter.asm", text)
    assert (case.config["is_v3_atomic_fp32"], case.config["how_v3_bf16_cvt"]) == (atomic32, rounding)
    assert (str(values["is_v3_atomic_fp32"]), str(values["how_v3_bf16_cvt"])) == (atomic32, rounding)


def test_what_is_given_is_the_forward_pass_of_the_workload(aiter_package: Callable[..., Path]) -> None:
    """dout comes first; 'out' and 'lse' are the workload's own, so no forward pass is built or run."""
    pytest.importorskip("torch")
    aiter_package(package())
    case, values = prepared("ck", "backward-b1-s33-h2-d64-f16")
    names = ("dout", "q", "k", "v", "out", "softmax_lse")
    assert [values[name] is own for name, own in zip(names, case.tensors, strict=True)] == [True] * 6
    problem = Backward.parse("backward-b1-s33-h2-d64-f16")
    assert case.tensors[0].equal(problem.make_inputs(1, "cpu", planted=False)[3])


def test_gradients_have_aiters_own_budget_with_its_source() -> None:
    """Ten times the plain error of dq, dk and dv, as aiter's tests allow, and twice of everything else."""
    for (_, family), backend in PARTS.items():
        expected = 10.0 if family.endswith("backward") else 2.0
        assert [backend.tolerance.for_output(name) for name in ("dq", "dk", "dv")] == [expected] * 3
        assert backend.tolerance.for_output("out") == 2.0
        assert ("op_tests/test_mha.py" in backend.tolerance.source) == family.endswith("backward")


@pytest.mark.parametrize("text", ["backward-b1-s33-h2-d128-bf16", "varlen_backward-q5_20-h2-d128-bf16"])
def test_with_ck_switched_off_the_public_backward_is_triton(
    text: str, aiter_package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ENABLE_CK=0 what stands below the public function is not what it runs: `aiter.auto` refuses."""
    aiter_package(package())
    assert part("aiter.auto", text).unsupported_reasons(workload(text), device("gfx942")) == []
    monkeypatch.setenv("ENABLE_CK", "0")
    (reason,) = part("aiter.auto", text).unsupported_reasons(workload(text), device("gfx942"))
    assert reason.endswith(
        "is not what aiter's public functions run with ENABLE_CK=0: they take Triton, whose backward pass aiter.triton "
        "times; unset it"
    )


def test_an_architecture_that_cannot_be_asked_for_is_not_guessed(aiter_package: Callable[..., Path]) -> None:
    """gfx950 wants another rounding than gfx942: without aiter's word for the GPU nothing is chosen."""
    pytest.importorskip("torch")
    files = package("gfx950")
    aiter_package({"ops/mha.py": files["ops/mha.py"].replace("get_gfx", "get_arch")})
    with pytest.raises(UnsupportedError, match=r"has no aiter\.ops\.mha\.get_gfx$"):
        prepared("aiter.asm", "backward-b1-s33-h2-d128-bf16")
