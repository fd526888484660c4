from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.workloads.varlen import Varlen
from tests.kernels.aiter.dispatch_rows import device, package, part

CK, ASM = "aiter's mha_varlen_fwd (CK)", "aiter's fmha_v3_varlen_fwd (assembly)"
AUTO = "aiter's flash_attn_varlen_func"


def reasons(name: str, text: str, arch: str = "gfx942") -> list[str]:
    """What a backend says against a workload on a GPU."""
    return part(name, text).unsupported_reasons(Varlen.parse(text), device(arch))


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("ck", "varlen-q3_20-h2-d128-f32", f"{CK} takes bf16, f16, not f32"),
        ("ck", "varlen-q3_20-h2-d20-f16", f"{CK} needs head_dim to be a multiple of 8, not 20"),
        ("aiter.auto", "varlen-q3_20-h2-d264-f16", f"{AUTO} takes head_dim up to 256, not 264"),
        (
            "ck",
            "varlen-q3_20-kv9_15-h2-d64-f16-causal-lse",
            f"{CK} is not known to give -inf as log-sum-exp of rows that see no key (aiter's tests look at 'out' "
            "alone), and 5 rows of this workload see none",
        ),
        ("aiter.asm", "varlen-q3_20-h2-d64-bf16", f"{ASM} takes head_dim 128, not 64"),
        ("aiter.asm", "varlen-q3_20-h2-d128-f16", f"{ASM} takes bf16, not f16"),
        (
            "aiter.asm",
            "varlen-q3_20-h2-d128-bf16-causal-alibi",
            f"{ASM} takes no ALiBi slopes, this workload has them",
        ),
        (
            "aiter.auto",
            "varlen-q3_20-h2-d128-w1-bf16-causal",
            f"{AUTO} takes windows of at least 2 keys: its dispatcher asks whether window_size is above 0, and gives a "
            "window of one key to kernels that know none",
        ),
    ],
)
def test_limits_are_named_with_the_value(name: str, text: str, reason: str, aiter_package: Callable[..., Path]) -> None:
    """Whatever is refused has one reason, which names the value and what exists."""
    aiter_package()
    assert reasons(name, text) == [reason]


def test_triton_in_place_of_ck_takes_less(aiter_package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """With ENABLE_CK=0 the public function gives Triton's log-sum-exp, which lies another way, and is written past the
    end of a sequence with rows that see no key, asked for or not."""
    aiter_package()
    monkeypatch.setenv("ENABLE_CK", "0")
    assert reasons("aiter.auto", "varlen-q3_20-h2-d128-f16") == []
    for text in ("varlen-q3_20-h2-d128-f16-lse", "varlen-q3_20-kv9_7-h2-d128-f16-causal"):
        assert reasons("aiter.auto", text) == [
            f"{AUTO} takes Triton with ENABLE_CK=0, which knows no such window, whose log-sum-exp is laid out another "
            "way, and which writes past the end of a sequence whose first rows see no key"
        ]


@pytest.mark.parametrize("name", ["ck", "aiter.asm"])
def test_what_a_workload_says_reaches_the_function(name: str, aiter_package: Callable[..., Path]) -> None:
    """Offsets as they are, the longest lengths, scale and mask; never a table of pages."""
    pytest.importorskip("torch")
    aiter_package(package())
    problem = Varlen.parse("varlen-q3_20-kv9_31-h2-d128-bf16-causal-lse")
    case = part(name, problem.id).prepare(problem, problem.make_inputs(1, "cpu", planted=False))
    (_, values), *others = importlib.import_module("aiter.ops.mha").CALLS
    assert others == []
    expected = {
        "max_seqlen_q": 20,
        "max_seqlen_k": 31,
        "min_seqlen_q": 0,
        "logits_soft_cap": 0.0,
        "zero_tensors": False,
        "is_causal": True,
        "window_size_left": -1,
        "window_size_right": -1,
        "softmax_scale": 1 / math.sqrt(128),
        "return_softmax_lse": True,
        "block_table": None,
    }
    assert expected.items() <= values.items()
    assert values["cu_seqlens_q"] is case.tensors[3]
    assert values["cu_seqlens_k"] is case.tensors[4]
