from __future__ import annotations

from typing import Any

import pytest

from kernels.triton.varlen.launch import check_lengths
from kernels.triton.varlen.backend import TritonFlashVarlen
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.varlen import Varlen
from tests.kernels.triton import prefill_cases

BACKEND = TritonFlashVarlen("triton.flash_varlen")
INTERPRETING = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)
CONFIG = {"BLOCK_M": 32, "BLOCK_N": 32, "PRELOAD_V": False, "num_warps": 1, "num_stages": 1}


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """Outputs and config of every case, computed by the interpreter in one process."""
    return interpret("kernels.triton.varlen.backend", prefill_cases.VARLEN_CASES)


@pytest.mark.parametrize("case", prefill_cases.VARLEN_CASES)
def test_right_on_every_small_problem(case: str, interpreted: Any, judge: Any) -> None:
    """Sequences of any lengths are within budget under causal masks, windows and ALiBi, with grouped heads."""
    assert judge(case.partition("/")[2], interpreted[case]["outputs"]) == ()
    assert interpreted[case]["unchanged"]
    assert interpreted[case]["replays"]


def test_the_judge_sees_a_neighbour_s_key(judge: Any) -> None:
    """A sequence that sees the first key of the next one is rejected."""
    workload = Varlen.parse("varlen-q32_33-h2-d16-f16")
    q, k, v, cu_q, cu_k = workload.make_inputs(1, "cpu", planted=True)
    shifted = cu_k.clone()
    shifted[1] += 1
    liar = Varlen.parse("varlen-q32_33-kv33_32-h2-d16-f16")
    assert judge(workload.id, liar.plain((q, k, v, cu_q, shifted)))
    assert judge(workload.id, workload.plain((q, k, v, cu_q, cu_k))) == ()


def test_says_which_head_dim_is_too_large() -> None:
    """A head dimension above 256 is refused with both figures."""
    assert BACKEND.unsupported_reasons(Varlen.parse("varlen-q8_9-h2-d320-f16"), INTERPRETING) == [
        "head_dim 320 is above 256, the largest this kernel takes"
    ]


def test_what_the_kernel_declares() -> None:
    """Its own kernel must be among what ran on a GPU, and torch's attention must not."""
    pytest.importorskip("triton")
    workload = Varlen.parse("varlen-q8_9-h2-d16-f16")
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
    assert prepared.declares.kernels == ("varlen_forward_kernel",)
    assert prepared.declares.never == ("scaled_dot_product",)
    assert prepared.declares.matrix


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ([0, 4, 4, 8], "cu_seqlens_q gives sequence 1 a length of 0; it must be at least 1"),
        ([0, 5, 3, 8], "cu_seqlens_q gives sequence 1 a length of -2; it must be at least 1"),
        ([1, 4, 8], "cu_seqlens_q goes from 1 to 8; it must go from 0 to 8, the rows it divides"),
        ([0, 4, 7], "cu_seqlens_q goes from 0 to 7; it must go from 0 to 8"),
    ],
)
def test_lengths_that_are_none(ends: list[int], text: str) -> None:
    """Empty sequences and offsets that do not divide the rows are named with the argument."""
    torch = pytest.importorskip("torch")
    with pytest.raises(UsageError, match=text):
        check_lengths("cu_seqlens_q", torch.tensor(ends, dtype=torch.int32), 8)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"max_q": 0}, "max_q is 0; it must be 1 to 8, the rows of q"),
        ({"max_q": 9}, "max_q is 9; it must be 1 to 8, the rows of q"),
        ({"window": 3, "causal": False}, "window is 3 with causal=False"),
        ({"cu_q": "int64"}, r"cu_seqlens_q is int64 of shape \(3,\); it must be int32 \(sequences \+ 1,\)"),
        ({"cu_k": 4}, "cu_seqlens_k has 4 entries and cu_seqlens_q 3; they must have the same number"),
        ({"v": "float32"}, "v is float32 and q float16; both must be the same of float16, bfloat16, float32"),
    ],
)
def test_a_launch_with_bad_arguments(changes: dict[str, Any], text: str) -> None:
    """The launcher names the argument, its value and what is allowed."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.varlen.kernel import varlen_forward

    q = torch.zeros(8, 2, 16, dtype=torch.float16)
    v = q.to(getattr(torch, changes.get("v", "float16")))
    cu_q = torch.zeros(3, dtype=getattr(torch, changes.get("cu_q", "int32")))
    cu_k = torch.zeros(changes.get("cu_k", 3), dtype=torch.int32)
    rest = {"max_q": 8, "causal": True, "window": 0} | {
        n: changes[n] for n in changes if n in ("max_q", "causal", "window")
    }
    with pytest.raises(UsageError, match=text):
        varlen_forward(q, q, v, cu_q, cu_k, with_lse=False, config=CONFIG, **rest)


@pytest.mark.gpu
@pytest.mark.parametrize("case", prefill_cases.VARLEN_CASES)
def test_right_on_every_small_problem_on_a_gpu(case: str, judge: Any) -> None:
    """The compiled kernel is within budget on the same problems."""
    text = case.partition("/")[2]
    workload = Varlen.parse(text)
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    assert judge(text, prepared.outputs(prepared.run()), device="cuda") == ()
