"""Head dimensions of v, ALiBi, biases and the modes of i8 of a prefill: its figures, its inputs, what they mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.attention_math import alibi_slopes
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.quantisation import dequantise

ORDINARY = Prefill(2, 10, 4, 16, seq_kv=30, kv_heads=2, dtype="bf16", causal=True)
Q, K, OUT = 2 * 10 * 4, 2 * 30 * 2, 2 * 10 * 4


def test_a_default_written_out_is_the_same_workload() -> None:
    """head_dim_v given as head_dim makes no second workload."""
    assert replace(ORDINARY, head_dim_v=16) == ORDINARY == replace(ORDINARY, head_dim_v=0)


@pytest.mark.parametrize("value", [-1, 0.5, True, "8"])
def test_the_head_dimension_of_v_is_an_integer(value: Any) -> None:
    """What is no positive integer is refused with the field and the value seen."""
    with pytest.raises(WorkloadError, match=f"head_dim_v must be a positive integer, got {value!r}"):
        replace(ORDINARY, head_dim_v=value)


@pytest.mark.parametrize("mode", ["qkv8", "PV16", "8"])
def test_an_unknown_mode_lists_those_that_exist(mode: str) -> None:
    """A mode of i8 that nobody knows is refused with those that exist."""
    with pytest.raises(WorkloadError, match=f"int8 must be one of pv16, kv8, or empty, got '{mode}'"):
        replace(ORDINARY, dtype="i8", int8=mode)


def test_work_counts_both_head_dimensions() -> None:
    """The first product is over D, the second over Dv; v and out are Dv wide."""
    narrow = replace(ORDINARY, head_dim_v=8)
    assert ORDINARY.flops == 4 * 16 * ORDINARY.visible_pairs * 8
    assert narrow.flops == 2 * (16 + 8) * ORDINARY.visible_pairs * 8
    assert ORDINARY.bytes_min == 2 * (Q * 16 + 2 * K * 16 + OUT * 16)
    assert narrow.bytes_min == 2 * (Q * 16 + K * (16 + 8) + OUT * 8)


def test_bytes_min_counts_slopes_and_the_visible_part_of_a_bias() -> None:
    """H slopes of four bytes; of a bias what the mask lets through, in the dtype of out."""
    assert replace(ORDINARY, alibi=True).bytes_min == ORDINARY.bytes_min + 4 * 4
    assert replace(ORDINARY, bias=True).bytes_min == ORDINARY.bytes_min + 2 * 4 * ORDINARY.visible_pairs
    whole = replace(ORDINARY, bias=True, causal=False, dtype="f8e4m3")
    assert whole.bytes_min == replace(whole, bias=False).bytes_min + 2 * 4 * 10 * 30


@pytest.mark.parametrize(("mode", "q_bytes", "scales"), [("", 1, 3), ("pv16", 1, 3), ("kv8", 2, 2)])
def test_bytes_min_of_the_modes_of_i8(mode: str, q_bytes: int, scales: int) -> None:
    """q is stored in 8 bits but for kv8, where it has no scale either; out is bf16."""
    workload = replace(ORDINARY, dtype="i8", int8=mode)
    assert workload.bytes_min == q_bytes * Q * 16 + 2 * K * 16 + 2 * OUT * 16 + 4 * scales


@pytest.mark.parametrize(
    ("changed", "dtypes", "last"),
    [
        ({"head_dim_v": 8}, ["bfloat16"] * 3, (2, 30, 2, 8)),
        ({"alibi": True}, ["bfloat16"] * 3 + ["float32"], (4,)),
        ({"bias": True}, ["bfloat16"] * 4, (4, 10, 30)),
        ({"dtype": "i8", "int8": "pv16"}, ["int8"] * 3 + ["float32"] * 3, (1,)),
        ({"dtype": "i8", "int8": "kv8"}, ["bfloat16"] + ["int8"] * 2 + ["float32"] * 2, (1,)),
        ({"dtype": "i8", "int8": "kv8", "alibi": True}, ["bfloat16"] + ["int8"] * 2 + ["float32"] * 3, (4,)),
        ({"dtype": "f8e5m2", "bias": True}, ["float8_e5m2"] * 3 + ["float32"] * 3 + ["bfloat16"], (4, 10, 30)),
        ({"dtype": "tf32", "bias": True}, ["float32"] * 4, (4, 10, 30)),
    ],
)
@pytest.mark.parametrize("planted", [False, True])
def test_inputs_come_in_one_order(changed: dict[str, Any], dtypes: list[str], last: Any, planted: bool) -> None:
    """q, k and v, then scales, then slopes or bias; contiguous; `split_inputs` tells them apart."""
    workload = replace(ORDINARY, **changed)
    inputs = workload.make_inputs(3, "cpu", planted=planted)
    assert [str(tensor.dtype).removeprefix("torch.") for tensor in inputs] == dtypes
    assert tuple(inputs[-1].shape) == last
    assert all(tensor.is_contiguous() for tensor in inputs)
    split = workload.split_inputs(inputs)
    given = [*split.qkv, *split.scales.values(), *(x for x in (split.slopes, split.bias) if x is not None)]
    assert all(a is b for a, b in zip(given, inputs, strict=True))
    assert (split.slopes is not None, split.bias is not None) == (workload.alibi, workload.bias)


def test_q_k_and_v_are_the_same_with_and_without_features() -> None:
    """A bias is drawn behind q, k and v, and slopes are not drawn, so that these do not move."""
    plain = ORDINARY.make_inputs(3, "cpu", planted=False)
    for changed in ({"bias": True}, {"alibi": True}):
        inputs = replace(ORDINARY, **changed).make_inputs(3, "cpu", planted=False)
        assert all(torch.equal(a, b) for a, b in zip(plain, inputs[:3], strict=True))
    assert torch.equal(
        replace(ORDINARY, alibi=True).make_inputs(3, "cpu", planted=True)[3], torch.tensor(alibi_slopes(4))
    )


def test_plain_of_kv8_rounds_the_dequantised_keys_and_values() -> None:
    """Values that bf16 holds, dequantised, are multiplied as they are; others are rounded first."""
    workload = Prefill(1, 17, 2, 16, dtype="i8", int8="kv8", lse=True)
    q, k, v, k_scale, v_scale = workload.make_inputs(1, "cpu", planted=False)
    rounded = [dequantise(x, s, torch.float32).bfloat16().float() for x, s in ((k, k_scale), (v, v_scale))]
    exact = Prefill(1, 17, 2, 16, dtype="f32", lse=True).reference((q.float(), *rounded))
    got = workload.plain((q, k, v, k_scale, v_scale))
    torch.testing.assert_close(got["lse"].double(), exact["lse"], rtol=0, atol=1e-5)
    assert float((got["out"].double() - exact["out"]).abs().max()) < 2.0**-7
    assert float((workload.reference((q, k, v, k_scale, v_scale))["lse"] - exact["lse"]).abs().max()) > 1e-5


def test_the_modes_of_i8_differ_in_what_they_round() -> None:
    """Weights in steps of 1 / 127 cost more than weights in bf16; scores of 8-bit q and k are fp32 in both."""
    errors = {}
    for mode in ("", "pv16"):
        workload = Prefill(1, 64, 2, 32, dtype="i8", int8=mode, lse=True)
        inputs = workload.make_inputs(1, "cpu", planted=False)
        reference, plain = workload.reference(inputs), workload.plain(inputs)
        errors[mode] = float((plain["out"].double() - reference["out"]).abs().max())
        assert float((plain["lse"].double() - reference["lse"]).abs().max()) < 20 * 2.0**-23
    assert 0 < 2 * errors["pv16"] < errors[""]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"out": "f64", "dtype": "i8"}, "out must be one of f16, bf16, f32, or empty, got 'f64'"),
        ({"out": "f16"}, "out=f16 needs an 8-bit dtype, got bf16, whose result is bf16"),
    ],
)
def test_the_result_of_8_bits_alone_has_another_dtype(changed: dict[str, Any], message: str) -> None:
    """An unknown dtype of the result, and one for wider inputs, are refused with the value seen."""
    with pytest.raises(WorkloadError, match=message):
        replace(ORDINARY, **changed)


@pytest.mark.parametrize(
    ("out", "stored", "size"),
    [("", "bfloat16", 2), ("bf16", "bfloat16", 2), ("f16", "float16", 2), ("f32", "float32", 4)],
)
def test_the_chosen_dtype_is_that_of_out_q_and_bias(out: str, stored: str, size: int) -> None:
    """'out', a bias, and q of kv8 are stored in it, and count so many bytes; bf16 is what is meant without it."""
    workload = replace(ORDINARY, dtype="i8", int8="kv8", bias=True, out=out)
    assert (workload == replace(ORDINARY, dtype="i8", int8="kv8", bias=True)) is (out in ("", "bf16"))
    assert Prefill.parse(workload.id) == workload
    inputs = workload.make_inputs(1, "cpu", planted=False)
    kept = (inputs[0], inputs[-1], workload.plain(inputs)["out"])
    assert {str(tensor.dtype) for tensor in kept} == {f"torch.{stored}"}
    pairs = 4 * ORDINARY.visible_pairs
    assert workload.bytes_min == size * (Q * 16 + OUT * 16 + pairs) + 2 * K * 16 + 2 * 4


def test_a_wider_result_has_a_smaller_error() -> None:
    """fp16 and fp32 take the place of bf16 in what is multiplied, too: each is nearer to the reference."""
    for mode in ("pv16", "kv8"):
        errors = []
        for out in ("", "f16", "f32"):
            workload = Prefill(1, 64, 2, 32, dtype="i8", int8=mode, out=out)
            inputs = workload.make_inputs(1, "cpu", planted=False)
            reference, plain = workload.reference(inputs)["out"], workload.plain(inputs)["out"]
            errors.append(float((plain.double() - reference).abs().max()))
        assert 0 < 100 * errors[2] < 10 * errors[1] < 4 * errors[0]


def test_an_fp32_result_is_compared_in_fp64() -> None:
    """The reference of an fp32 result is fp64 whatever the inputs are; of others it is as before."""
    workload = Prefill(1, 8, 2, 16, dtype="i8", out="f32")
    assert workload.reference(workload.make_inputs(1, "cpu", planted=False))["out"].dtype == torch.float64
