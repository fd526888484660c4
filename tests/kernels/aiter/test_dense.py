from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.backends import Declares
from pytest_attnperf.errors import UnsupportedError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.prefill import Prefill
from tests.kernels.aiter.dispatch_rows import device, package, part

CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
CK, ASM, AUTO = "aiter's mha_fwd (CK)", "aiter's fmha_v3_fwd (assembly)", "aiter's flash_attn_func"
FP8 = "aiter's flash_attn_fp8_pertensor_func"
TAKEN = "prefill-b1-s130-h2-d128-bf16-causal"


def reasons(name: str, text: str, on: DeviceInfo | str = "gfx942") -> list[str]:
    """What a backend says against a workload on a device."""
    problem = Prefill.parse(text)
    return part(name, text).unsupported_reasons(problem, device(on) if isinstance(on, str) else on)


@pytest.mark.parametrize("name", ["ck", "aiter.asm", "aiter.auto"])
def test_rocms_aiter_is_accepted_without_importing_it(name: str, aiter_package: Callable[..., Path]) -> None:
    """Its files are enough; importing may build for minutes."""
    aiter_package({"ops/mha.py": "raise AssertionError('imported')"}, "raise AssertionError('imported')")
    assert reasons(name, TAKEN) == []
    assert "aiter" not in sys.modules


@pytest.mark.parametrize("name", ["ck", "aiter.asm", "aiter.auto"])
def test_without_aiter_every_route_is_closed(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reason says which aiter is meant."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "aiter", raising=False)
    (reason,) = reasons(name, TAKEN)
    assert reason.startswith("aiter is not installed (it is ROCm/aiter on GitHub")


@pytest.mark.parametrize(
    ("name", "text", "on", "reason"),
    [
        ("ck", TAKEN, CUDA, "aiter runs on ROCm devices, this one is cuda (sm_90)"),
        ("ck", TAKEN, "gfx1201", f"{CK} is offered on gfx90a, gfx942, gfx950; on gfx1201 it was not verified"),
        ("aiter.asm", TAKEN, "gfx90a", f"{ASM} is offered on gfx942, gfx950; on gfx90a it was not verified"),
        ("ck", "prefill-b1-s8-h2-d64-f32", "gfx90a", f"{CK} takes bf16, f16, not f32"),
        ("ck", "prefill-b1-s8-h2-d64-i8", "gfx942", f"{CK} takes bf16, f16, f8e4m3fnuz, not i8"),
        ("ck", "prefill-b1-s8-h2-d64-f8e4m3", "gfx942", f"{CK} takes bf16, f16, f8e4m3fnuz, not f8e4m3"),
        ("ck", "prefill-b1-s8-h2-d320-f16", "gfx942", f"{CK} takes head_dim up to 256, not 320"),
        ("ck", "prefill-b1-s8-h2-d20-f16", "gfx942", f"{CK} needs head_dim to be a multiple of 8, not 20"),
        (
            "ck",
            "prefill-b1-s8-h2-d64-f16-bias",
            "gfx942",
            f"{CK} takes one bias of (Sq, Skv) for all heads, this workload has one for each of its 2 heads",
        ),
        (
            "ck",
            "prefill-b1-s8-kv5-h2-d64-f16-causal-lse",
            "gfx942",
            f"{CK} is not known to give -inf as log-sum-exp of rows that see no key (aiter's tests look at 'out' "
            "alone), and the first 3 rows of this workload see none",
        ),
        (
            "ck",
            "prefill-b1-s1-kv9-h4-hk2-d64-dv32-f16",
            "gfx942",
            f"{CK} takes one head dimension for q, k and v where one query meets grouped heads, not 64 and 32",
        ),
        ("ck", "prefill-b1-s8-h2-d128-f8e4m3-lse", "gfx950", f"{FP8} gives no log-sum-exp"),
        (
            "aiter.auto",
            "prefill-b1-s8-h2-d128-w4-f8e4m3-causal",
            "gfx950",
            f"{FP8} takes no sliding window, this workload has one of 4 keys",
        ),
        ("aiter.asm", "prefill-b1-s130-h2-d128-f16", "gfx942", f"{ASM} takes bf16, f8e4m3fnuz, not f16"),
        (
            "aiter.asm",
            "prefill-b1-s130-h2-d64-bf16",
            "gfx942",
            f"{ASM} takes head_dim 128/128, 192/128 of bf16, not 64/64",
        ),
        (
            "aiter.asm",
            "prefill-b1-s130-h2-d256-f8e4m3fnuz",
            "gfx942",
            f"{ASM} takes head_dim 128/128 of f8e4m3fnuz, not 256/256",
        ),
        (
            "aiter.asm",
            "prefill-b1-s130-h3-hk1-d128-f8e4m3",
            "gfx950",
            f"{ASM} takes 1, 2, 4, 8 or 16 query heads per key head of fp8, not 3",
        ),
        (
            "aiter.asm",
            "prefill-b1-s128-h2-d128-bf16",
            "gfx942",
            f"{ASM} was not verified below 129 queries, where aiter itself takes CK; this workload has 128",
        ),
        (
            "aiter.asm",
            "prefill-b1-s256-kv1048576-h16-d192-dv128-bf16",
            "gfx942",
            f"{ASM} takes keys of less than 4 GiB per sequence, not 6442450944 bytes",
        ),
        (
            "aiter.asm",
            "prefill-b1-s130-h2-d128-w4-bf16-causal",
            "gfx942",
            f"{ASM} takes no sliding window, this workload has one of 4 keys",
        ),
        (
            "aiter.auto",
            "prefill-b1-s8-h2-d64-w1-f16-causal",
            "gfx942",
            f"{AUTO} takes windows of at least 2 keys: its dispatcher asks whether window_size is above 0, and gives a "
            "window of one key to kernels that know none",
        ),
    ],
)
def test_limits_are_named_with_the_value(
    name: str, text: str, on: DeviceInfo | str, reason: str, aiter_package: Callable[..., Path]
) -> None:
    """Whatever is refused has one reason, which names the value and what exists."""
    aiter_package()
    assert reasons(name, text, on) == [reason]


def test_triton_in_place_of_ck_takes_less(aiter_package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """With ENABLE_CK=0 the public function cannot do what Triton's cannot."""
    aiter_package()
    assert reasons("aiter.auto", "prefill-b1-s8-h2-d64-w4-f16-causal") == []
    monkeypatch.setenv("ENABLE_CK", "0")
    assert reasons("aiter.auto", "prefill-b1-s8-h2-d64-w4-f16-causal") == [
        f"{AUTO} takes Triton with ENABLE_CK=0, which knows neither such a window nor a bias, and whose fp8 was not "
        "verified"
    ]


@pytest.mark.parametrize(
    ("name", "text", "given"),
    [
        ("ck", "prefill-b1-s9-h2-d64-w4-f16-causal-lse", {"is_causal": True, "window_size_left": 3, "sink_size": 0}),
        ("ck", "prefill-b2-s9-kv20-h2-d64-bf16", {"is_causal": False, "window_size_left": -1, "window_size_right": -1}),
        ("aiter.asm", "prefill-b1-s130-h1-d128-bf16-causal", {"how_v3_bf16_cvt": 1, "dropout_p": 0.0, "gen": None}),
    ],
)
def test_what_a_workload_says_reaches_the_function(
    name: str, text: str, given: dict[str, object], aiter_package: Callable[..., Path]
) -> None:
    """Scale, mask and log-sum-exp, in the places that this version has for them, and nothing random."""
    pytest.importorskip("torch")
    aiter_package(package())
    problem = Prefill.parse(text)
    case = part(name, text).prepare(problem, problem.make_inputs(1, "cpu", planted=False))
    (_, values), *others = importlib.import_module("aiter.ops.mha").CALLS
    assert others == []  # once in prepare, which builds
    common = {
        "softmax_scale": 1 / math.sqrt(problem.head_dim),
        "return_softmax_lse": problem.lse,
        "return_dropout_randval": False,
    }
    assert {**common, **given}.items() <= values.items()
    assert [values[one] for one in ("out", "bias", "alibi_slopes", "q_descale")] == [None] * 4
    assert [values[one] is own for one, own in zip("qkv", case.tensors, strict=True)] == [True] * 3
    assert case.config["padded_in_call"] == "False"
    assert case.declares.matrix


def test_padding_and_the_route_are_recorded(aiter_package: Callable[..., Path]) -> None:
    """aiter pads head dimensions inside the call, which is then timed with it; nothing is promised of the path."""
    pytest.importorskip("torch")
    aiter_package(package())
    problem = Prefill.parse("prefill-b1-s9-h1-d20-dv24-f16")
    case = part("aiter.auto", problem.id).prepare(problem, problem.make_inputs(1, "cpu", planted=False))
    assert (case.config["padded_in_call"], case.config["aiter"]) == ("True", "unknown")
    assert case.config["function"] == "flash_attn_func"
    assert case.declares == Declares(never=("scaled_dot_product",))


def test_other_inputs_can_be_loaded(
    aiter_package: Callable[..., Path], assert_right: Callable[[Prefill, object, object], None]
) -> None:
    """A bias, which is handed over as one matrix, is copied into the memory of the first one."""
    pytest.importorskip("torch")
    aiter_package(package())
    problem = Prefill.parse("prefill-b2-s9-kv20-h1-d64-f16-bias")
    case = part("ck", problem.id).prepare(problem, problem.make_inputs(1, "cpu", planted=False))
    inputs = problem.make_inputs(2, "cpu", planted=True)
    case.load(inputs)
    assert_right(problem, inputs, case.outputs(case.run()))


def test_a_failing_import_is_unsupported(aiter_package: Callable[..., Path]) -> None:
    """What aiter's import raises is the reason."""
    pytest.importorskip("torch")
    aiter_package({"ops/mha.py": "raise AssertionError('Could not find hipcc in PATH or ROCM_HOME')"})
    problem = Prefill.parse(TAKEN)
    with pytest.raises(UnsupportedError, match="hipcc missing"):
        part("ck", TAKEN).prepare(problem, problem.make_inputs(1, "cpu", planted=False))
