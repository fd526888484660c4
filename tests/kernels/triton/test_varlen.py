from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kernels.triton.varlen.backend import BACKENDS, TritonFlashVarlen
from kernels.triton.varlen.launch import check_lengths
from pytest_attnperf.backends import Outputs
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.attention_math import AttentionProblem, compute_plain, plain_arithmetic
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.varlen import Varlen
from tests.kernels.triton import prefill_cases

BACKEND = TritonFlashVarlen("triton.flash_varlen")
BY_NAME = {backend.name: backend for backend in BACKENDS}
H200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
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
    """Offsets of the keys, or of the rows, that are one too large are rejected."""
    workload = Varlen.parse("varlen-q32_33-h2-d16-f16")
    q, k, v, cu_q, cu_k = workload.make_inputs(1, "cpu", planted=True)
    shifted = cu_k.clone()
    shifted[1] += 1
    liar = Varlen.parse("varlen-q32_33-kv33_32-h2-d16-f16")
    assert judge(workload.id, liar.plain((q, k, v, cu_q, shifted)))
    later = Varlen.parse("varlen-q33_32-kv32_33-h2-d16-f16")
    assert judge(workload.id, later.plain((q, k, v, shifted, cu_k)))
    assert judge(workload.id, workload.plain((q, k, v, cu_q, cu_k))) == ()


def changed_bias(text: str, pick: Callable[[Any, int, Prefill], Any]) -> Outputs:
    """What the plain computation makes of another bias in each sequence: `pick(bias, its first row, sequence)`."""
    workload = Varlen.parse(text)
    q, k, v, cu_q, _, bias = workload.make_inputs(1, "cpu", planted=True)
    found = [
        one.plain((q[None, rows], k[None, keys], v[None, keys], pick(bias, int(first), one).contiguous()))
        for one, (rows, keys), first in zip(workload.sequences, workload.iterate_slices(), cu_q, strict=False)
    ]
    return {"out": _joined(found)}


def _joined(found: Sequence[Outputs]) -> Any:
    import torch

    return torch.cat([one["out"][0] for one in found])


BIASED = "varlen-q20_33_17-kv31_33_40-h2-d40-f16-bias"


@pytest.mark.parametrize("pick", [
    lambda bias, first, one: bias.roll(-first, 1)[:, : one.seq_q, : one.seq_kv],
    lambda bias, first, one: bias.roll(-1, 1)[:, : one.seq_q, : one.seq_kv],
    lambda bias, first, one: bias.reshape(2, -1)[:, : one.seq_q * one.seq_kv].reshape(2, one.seq_q, one.seq_kv),
], ids=["counted in the packed rows", "the next row", "rows as long as the sequence"])  # fmt: skip
def test_the_judge_sees_another_bias(pick: Callable[[Any, int, Prefill], Any], judge: Any) -> None:
    """A sequence that reads the bias of other rows, or rows of another length, is rejected; its own is not."""
    assert judge(BIASED, changed_bias(BIASED, pick))
    assert judge(BIASED, changed_bias(BIASED, lambda bias, _, one: bias[:, : one.seq_q, : one.seq_kv])) == ()


def test_the_judge_sees_a_wrong_scale(judge: Any) -> None:
    """Keys with the scale of the queries, values without theirs, and weights rounded to int8 without their 127 steps
    are rejected."""
    torch = pytest.importorskip("torch")
    workload = Varlen.parse("varlen-q33_17-h2-d64-i8")
    inputs = workload.make_inputs(1, "cpu", planted=True)
    q, k, v, cu_q, cu_k, q_scale, _, v_scale = inputs
    honest = workload.plain(inputs)
    assert judge(workload.id, honest) == ()
    assert judge(workload.id, workload.plain((q, k, v, cu_q, cu_k, q_scale, q_scale, v_scale)))
    assert judge(workload.id, {"out": honest["out"] / v_scale.to(torch.bfloat16)})
    how = replace(plain_arithmetic("i8"), weights=torch.round)
    scales = dict(zip("qkv", inputs[5:8], strict=True))
    found = [
        compute_plain(q[None, rows], k[None, keys], v[None, keys], AttentionProblem(False, False, scales=scales), how)
        for rows, keys in workload.iterate_slices()
    ]
    assert judge(workload.id, {"out": _joined(found)})


@pytest.fixture(scope="module")
def scheduled(interpret: Any) -> Any:
    """The blocks of rows that the persistent kernel does, and those that changed ones do."""
    cases = [json.dumps([lengths, heads, causal, change]) for lengths, heads, causal in SCHEDULES for change in CHANGES]
    return interpret("tests.kernels.triton.judge_varlen", cases)


SCHEDULES: tuple[tuple[list[int], int, bool], ...] = (
    ([70, 1, 33], 3, True),
    ([17, 100, 5, 16], 2, False),
    ([1], 1, True),
)
CHANGES = (
    "",
    "skips the last item",
    "does items twice",
    "counts on from the wrong item",
    "halves an odd number down",
    "forgets the early block",
)


def every_block(lengths: list[int], heads: int) -> list[tuple[int, int, int]]:
    """(sequence, head, block of 16 rows) of all sequences."""
    return [
        (sequence, head, block)
        for sequence, length in enumerate(lengths)
        for head in range(heads)
        for block in range(-(-length // 16))
    ]


@pytest.mark.parametrize(("lengths", "heads", "causal"), SCHEDULES)
def test_six_programs_do_each_block_once(lengths: list[int], heads: int, causal: bool, scheduled: Any) -> None:
    """Whatever the lengths, more programs than items included, no block of rows is left out or done twice."""
    assert sorted(scheduled[json.dumps([lengths, heads, causal, ""])]) == every_block(lengths, heads)


@pytest.mark.parametrize("change", CHANGES[1:])
def test_a_wrong_loop_does_other_blocks(change: str, scheduled: Any) -> None:
    """A loop that skips an item, does one twice or pairs blocks wrongly is seen by which blocks are done."""
    lengths, heads, causal = SCHEDULES[0]
    assert sorted(scheduled[json.dumps([lengths, heads, causal, change])]) != every_block(lengths, heads)


def test_the_judge_sees_a_block_that_nobody_did(judge: Any) -> None:
    """The rows of a skipped item hold what memory held, which the run that proves fills with NaN."""
    workload = Varlen.parse("varlen-q33_17-h2-d16-f16-causal")
    out = workload.plain(workload.make_inputs(1, "cpu", planted=True))["out"].clone()
    assert judge(workload.id, {"out": out}) == ()
    out[32:33, 1] = float("nan")
    assert judge(workload.id, {"out": out})


def test_says_which_head_dim_is_too_large() -> None:
    """A head dimension above 256 is refused with both figures."""
    (reason,) = BACKEND.unsupported_reasons(Varlen.parse("varlen-q8_9-h2-d320-f16"), INTERPRETING)
    assert reason.startswith("head_dim 320 is above 256, the largest this kernel has tiles for: ")


@pytest.mark.parametrize(
    ("text", "matrix", "layout"),
    [
        ("f16", True, None),
        ("f32", False, None),
        ("i8", True, "(Hk, Dv, Tk), sequences from multiples of 16"),
        ("i8-kv8-outf32", False, None),
    ],
)
def test_what_the_kernels_declare(text: str, matrix: bool, layout: str | None) -> None:
    """Its own kernel must be among what ran on a GPU, and torch's attention must not. Matrix instructions are promised
    unless both products are in fp32; transposed values are recorded."""
    pytest.importorskip("triton")
    workload = Varlen.parse(f"varlen-q8_9-h2-d16-{text}")
    for name, kernel in (("triton.flash_varlen", "forward"), ("triton.flash_varlen_persistent", "persistent")):
        prepared = BY_NAME[name].prepare(workload, workload.make_inputs(1, "cpu", planted=False))
        assert prepared.declares.kernels == (f"varlen_{kernel}_kernel",)
        assert prepared.declares.never == ("scaled_dot_product",)
        assert prepared.declares.matrix is matrix
        assert prepared.config.get("v_layout") == layout


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
        ({"max_kv": 9}, "max_kv is 9; it must be 1 to 8, the rows of k"),
        ({"v": "float32"}, "q, k and v are float16, float16, float32; with int8='' they must be float16 or"),
        ({"bias": (2, 8, 7)}, r"bias has shape \(2, 8, 7\); it must be \(2, 8, 8\)"),
        ({"out_dtype": "float32"}, "out_dtype is torch.float32 for q in float16; it must be None or float16"),
        ({"multiprocessors": 0}, "multiprocessors is 0; it must be at least 1"),
    ],
)
def test_a_launch_with_bad_arguments(changes: dict[str, Any], text: str) -> None:
    """The launcher names the argument, its value and what is allowed."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.varlen.kernel import varlen_forward
    from kernels.triton.varlen.persistent import varlen_persistent

    q = torch.zeros(8, 2, 16, dtype=torch.float16)
    v = q.to(getattr(torch, changes.get("v", "float16")))
    cu_q = torch.zeros(3, dtype=getattr(torch, changes.get("cu_q", "int32")))
    cu_k = torch.zeros(changes.get("cu_k", 3), dtype=torch.int32)
    rest: dict[str, Any] = {"max_q": 8, "max_kv": 8, "causal": True, "with_lse": False, "config": CONFIG}
    rest |= {name: value for name, value in changes.items() if name not in ("cu_q", "cu_k", "v")}
    if "bias" in changes:
        rest["bias"] = torch.zeros(changes["bias"])
    if "out_dtype" in changes:
        rest["out_dtype"] = getattr(torch, changes["out_dtype"])
    function = varlen_persistent if "multiprocessors" in changes else varlen_forward
    with pytest.raises(UsageError, match=text):
        function(q, q, v, cu_q, cu_k, **rest)


@pytest.mark.gpu
@pytest.mark.parametrize("case", prefill_cases.VARLEN_CASES)
def test_right_on_every_small_problem_on_a_gpu(case: str, judge: Any) -> None:
    """The compiled kernels are within budget on the same problems, if the GPU multiplies their dtype."""
    name, _, text = case.partition("/")
    workload, backend = Varlen.parse(text), BY_NAME[name]
    if reasons := backend.unsupported_reasons(workload, H200):
        pytest.skip(reasons[0])
    prepared = backend.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    assert judge(text, prepared.outputs(prepared.run()), device="cuda") == ()
