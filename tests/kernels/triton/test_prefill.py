from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from kernels.configs import ConfigChoice, ConfigRule
from kernels.triton.prefill.backend import BACKENDS, TritonFlash
from kernels.triton.prefill.launch import head_dims, split_head_dim
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload
from pytest_attnperf.workloads.prefill import Prefill
from tests.kernels.triton import prefill_cases

BACKEND = TritonFlash("triton.flash")
BY_NAME = {backend.name: backend for backend in BACKENDS}
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
INTERPRETING = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)
H200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
MI300X = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
CONFIG = {"BLOCK_M": 32, "BLOCK_N": 32, "PRELOAD_V": False, "num_warps": 1, "num_stages": 1}
TF32 = "triton.flash/prefill-b1-s33-h4-hk2-d16-tf32-causal-lse"
TILES = {"BLOCK_M": 16, "BLOCK_N": 64}
"""Rows of half a tile, so that masks cut tiles elsewhere than where the interpreter's configuration does."""


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """Outputs and config of every case, computed by the interpreter in one process."""
    return interpret("kernels.triton.prefill.backend", (*prefill_cases.PREFILL_CASES, TF32))


@pytest.mark.parametrize("case", prefill_cases.PREFILL_CASES)
def test_right_on_every_small_problem(case: str, interpreted: Any, judge: Any) -> None:
    """The interpreted kernels are within budget on every two of dtype, mask, bias, heads, dims, lengths and lse."""
    assert judge(case.partition("/")[2], interpreted[case]["outputs"]) == ()
    assert interpreted[case]["unchanged"]
    assert interpreted[case]["replays"]


def test_tf32_is_multiplied_as_fp32(interpreted: Any, judge: Any) -> None:
    """tf32 inputs are right by the budget of f32 even."""
    assert judge(TF32.partition("/")[2].replace("tf32", "f32"), interpreted[TF32]["outputs"]) == ()


@pytest.mark.parametrize(("told", "truth"), [
    ("s63-h2-d64-f16-causal", "s63-h2-d64-w7-f16-causal"),
    ("s63-h2-d64-w8-f16-causal", "s63-h2-d64-w7-f16-causal"),
    ("s63-h2-d64-f16-causal", "s63-h2-d64-f16-causal-alibi"),
    ("s64-kv63-h2-d64-f16-causal", "s64-h2-d64-f16-causal"),
    ("s33-kv97-h2-d64-f16", "s33-kv97-h2-d64-f16-causal"),
])  # fmt: skip
def test_the_judge_sees_typical_mistakes(told: str, truth: str, judge: Any) -> None:
    """A kernel without its window, with one a key too wide, without ALiBi, a key or its mask is rejected."""
    liar, workload = Prefill.parse(f"prefill-b1-{told}"), Prefill.parse(f"prefill-b1-{truth}")
    q, k, v, *_ = workload.make_inputs(1, "cpu", planted=True)
    outputs = liar.plain((q, k[:, : liar.seq_kv].contiguous(), v[:, : liar.seq_kv].contiguous()))
    assert judge(workload.id, outputs)
    honest = workload.make_inputs(1, "cpu", planted=True)
    assert judge(workload.id, workload.plain(honest)) == ()


def test_what_the_kernels_declare() -> None:
    """Its own kernel must be among what ran on a GPU, and torch's attention must not; fp16, bf16 and 8 bits are
    multiplied by matrix instructions. Transposed values are recorded."""
    pytest.importorskip("triton")
    for name, kernel in (("triton.flash", "prefill_forward"), ("triton.flash_persistent", "prefill_persistent")):
        for dtype, matrix in (("f16", True), ("i8", True), ("f32", False)):
            workload = Prefill.parse(f"prefill-b1-s8-h2-d64-{dtype}")
            prepared = BY_NAME[name].prepare(workload, workload.make_inputs(1, "cpu", planted=False))
            assert prepared.declares.kernels == (f"{kernel}_kernel",)
            assert prepared.declares.never == ("scaled_dot_product",)
            assert prepared.declares.matrix is matrix
            assert prepared.config.get("v_layout") == ("(B, Hk, Dv, Skv)" if dtype == "i8" else None)


@pytest.mark.parametrize(
    ("text", "device", "reason"),
    [
        (
            "d512-f16",
            INTERPRETING,
            "head_dim 512 is above 256, the largest this kernel has tiles for: 128 rows of Q in 16 bits take "
            "128 x 512 x 2 = 131,072 bytes of LDS, a workgroup of gfx942 has 65,536, and 64 rows spill registers",
        ),
        ("d64-dv320-f16", INTERPRETING, "head_dim_v 320 is above 256, the largest this kernel has tiles for"),
        (
            "d64-f8e4m3-lse",
            H200,
            "a log-sum-exp of f8e4m3 must have fp32 precision, but the tensor cores add fp8 products with about "
            "14 bits (arXiv:2412.19437, section 3.3.2)",
        ),
        (
            "d64-f8e4m3",
            MI300X,
            "triton.flash takes bf16, f16, f32, f8e4m3fnuz, f8e5m2fnuz, i8, tf32, not f8e4m3",
        ),
        (
            "d64-f16",
            CPU,
            "Triton compiles for GPUs only; without one, set TRITON_INTERPRET=1 before triton is imported",
        ),
    ],
)
def test_says_what_it_does_not_compute(text: str, device: DeviceInfo, reason: str) -> None:
    """Large head dimensions, fp8 that the device lacks, and its log-sum-exp are each refused by one reason."""
    assert BACKEND.unsupported_reasons(Prefill.parse(f"prefill-b1-s8-h2-{text}"), device) == [reason]


@pytest.mark.parametrize("text", ["d64-f8e4m3", "d192-dv128-bf16-causal-lse-alibi", "d64-i8-pv16", "d64-w4-f16-causal"])
def test_takes_the_features(text: str) -> None:
    """Nothing is refused of what an H200 has."""
    assert BACKEND.unsupported_reasons(Prefill.parse(f"prefill-b1-s8-h2-{text}"), H200) == []


def test_says_that_triton_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing triton is a reason, not an import error."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    workload = Prefill.parse("prefill-b1-s8-h2-d64-f16")
    assert BACKEND.unsupported_reasons(workload, INTERPRETING) == ["triton is not installed"]


@pytest.mark.parametrize(
    ("head_dim", "expected"),
    [(8, (16, 0)), (59, (64, 0)), (80, (64, 16)), (111, (128, 0)), (128, (128, 0)), (160, (128, 32)), (192, (128, 64))],
)
def test_head_dimensions_are_cut_where_that_saves_a_quarter(head_dim: int, expected: tuple[int, int]) -> None:
    """Powers of two that cover the head dimension, two where one would be a quarter larger at least."""
    assert split_head_dim(head_dim) == expected


def test_8_bit_products_sum_over_at_least_32_elements() -> None:
    """Of keys of one byte both parts of a head dimension hold 32 elements or more; values are not summed over."""
    for head_dim in (8, 16, 80, 144, 192):
        sizes = head_dims(head_dim, head_dim, element_bytes=1)
        assert sizes["BLOCK_D"] >= 32
        assert sizes["TAIL_D"] == 0 or sizes["TAIL_D"] >= 32
    assert head_dims(16, 16, element_bytes=1)["BLOCK_DV"] == 16


@pytest.mark.parametrize(("int8", "widened"), [("kv8", ("BLOCK_D", "BLOCK_DV")), ("pv16", ("BLOCK_DV",))])
def test_int8_that_is_widened_is_never_narrow(int8: str, widened: tuple[str, ...]) -> None:
    """Tiles of int8 that become bf16 before a product have 64 columns or more, and so has a tail."""
    for head_dim in (16, 80):
        sizes = head_dims(head_dim, head_dim, 1, int8)
        assert all(sizes[name] >= 64 for name in widened)
        assert sizes["TAIL_DV"] == 0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"window": -1}, "window is -1 with causal=True; it must be 0, or with causal the most keys per row"),
        ({"window": 4, "causal": False}, "window is 4 with causal=False"),
        ({"int8": "kv16"}, "int8 is 'kv16'; it must be one of '', 'pv16', 'kv8'"),
        ({"int8": "pv16"}, "q, k and v are float16, float16, float16; with int8='pv16' they must be int8"),
        ({"descales": ((1,), (1,), (1,))}, "descales holds 3; float16 keys with int8='' need none"),
        ({"alibi_slopes": (3,)}, r"alibi_slopes has shape \(3,\); it must be \(4,\)"),
        ({"bias": (4, 8, 9)}, r"bias has shape \(4, 8, 9\); it must be \(4, 8, 8\)"),
        ({"bias": (4, 8, 8), "alibi_slopes": (4,)}, "bias and alibi_slopes were both given; give at most one"),
        ({"k": (1, 8, 3, 16)}, r"v has shape \(1, 8, 2, 16\); it must be \(1, 8, 3, 16\)"),
        ({"k": (1, 8, 3, 16), "v": (1, 8, 3, 16)}, "q has 4 heads and k 3; those of q must be a multiple"),
        ({"q": (1, 8, 4, 17)}, r"k has shape \(1, 8, 2, 16\); it must be \(1, 8, 2, 17\)"),
        ({"out_dtype": "int8"}, "out_dtype is torch.int8 for q in float16; it must be None or float16"),
        ({"q": (8, 4, 16)}, r"q must be contiguous with 4 dimensions, got shape \(8, 4, 16\)"),
    ],
)
def test_a_launch_with_bad_arguments(changes: dict[str, Any], text: str) -> None:
    """The launcher names the argument, its value and what is allowed."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.prefill.forward import prefill_forward

    def tensor(shape: Any) -> Any:
        return torch.zeros(shape, dtype=torch.float16 if len(shape) > 2 else torch.float32)

    given = {"q": (1, 8, 4, 16), "k": (1, 8, 2, 16), "v": (1, 8, 2, 16), "causal": True, **changes}
    for name in ("q", "k", "v", "alibi_slopes", "bias"):
        if name in given:
            given[name] = tensor(given[name])
    if "out_dtype" in given:
        given["out_dtype"] = getattr(torch, given["out_dtype"])
    if "descales" in given:
        given["descales"] = tuple(map(tensor, given["descales"]))
    with pytest.raises(UsageError, match=text):
        prefill_forward(given.pop("q"), given.pop("k"), given.pop("v"), with_lse=False, config=CONFIG, **given)


def test_8_bit_launches_need_their_descales() -> None:
    """The error says how many, and of what; values must be transposed where they are multiplied in 8 bits."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.prefill.forward import prefill_forward

    q, one = torch.zeros((1, 8, 2, 16), dtype=torch.int8), torch.ones(1)
    v = torch.zeros((1, 2, 16, 16), dtype=torch.int8)
    with pytest.raises(UsageError, match="descales holds 0; int8 keys with int8='' need those of q, k and v"):
        prefill_forward(q, q, v, causal=True, with_lse=False, config=CONFIG)
    with pytest.raises(UsageError, match=r"descales\[1\] is float32 of shape \(2,\); it must be float32 \(1,\)"):
        prefill_forward(q, q, v, causal=True, with_lse=False, config=CONFIG, descales=(one, torch.ones(2), one))
    with pytest.raises(UsageError, match=r"v has shape \(1, 8, 2, 16\); it must be \(1, 2, 2, 16\)"):
        prefill_forward(q, q, q, causal=True, with_lse=False, config=CONFIG, descales=(one, one, one))
    with pytest.raises(UsageError, match=r"out_dtype is torch\.int8 for q in int8; it must be None or float16, bf"):
        prefill_forward(
            q, q, v, causal=True, with_lse=False, config=CONFIG, descales=(one, one, one), out_dtype=torch.int8
        )


@pytest.mark.gpu
@pytest.mark.parametrize("case", prefill_cases.PREFILL_CASES)
def test_right_on_every_small_problem_on_a_gpu(case: str, judge: Any) -> None:
    """The compiled kernels are within budget on the same problems, but for formats that the device lacks."""
    import torch

    name, _, text = case.partition("/")
    major, minor = torch.cuda.get_device_capability()
    device = DeviceInfo(kind="cuda", arch=f"sm_{major}{minor}", product="gpu")
    workload = Prefill.parse(text)
    if reasons := BY_NAME[name].unsupported_reasons(workload, device):
        pytest.skip(reasons[0])
    prepared = BY_NAME[name].prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    assert judge(text, prepared.outputs(prepared.run()), device="cuda") == ()


@pytest.mark.gpu
@pytest.mark.parametrize("name", BY_NAME)
def test_right_with_a_stored_configuration_on_a_gpu(name: str, judge: Any) -> None:
    """Other block sizes than the files' are compiled, recorded, and right."""
    text = "prefill-b1-s65-h4-hk2-d64-f16-causal-lse"
    inputs = parse_workload(text).make_inputs(1, "cuda", planted=True)
    backend = BY_NAME[name]
    stored = backend.prepare(parse_workload(text), inputs).config | {"BLOCK_M": "32", "BLOCK_N": "16", "num_warps": "2"}
    prepared = backend.replay_config(stored).prepare(parse_workload(text), inputs)
    assert prepared.config["BLOCK_M"] == "32"
    assert judge(text, prepared.outputs(prepared.run()), device="cuda") == ()


@pytest.mark.gpu
def test_positions_past_32_bits_are_right() -> None:
    """The last rows of tensors of more than 2^31 elements equal the same rows of a small problem."""
    import torch

    from kernels.triton.prefill.forward import prefill_forward

    config = {"BLOCK_M": 64, "BLOCK_N": 64, "PRELOAD_V": False, "GROUP_HEADS": 8, "num_warps": 4, "num_stages": 2}
    rows, batch = 64, 2**31 // (64 * 128 * 64) + 1
    q = torch.zeros(batch, rows, 64, 128, dtype=torch.float16, device="cuda")
    q[-1] = torch.randn(rows, 64, 128, device="cuda")
    out, _ = prefill_forward(q, q, q, causal=True, with_lse=False, config=config)
    alone, _ = prefill_forward(q[-1:], q[-1:], q[-1:], causal=True, with_lse=False, config=config)
    assert q.numel() > 2**31
    assert torch.equal(out[-1:], alone)


def test_another_configuration_can_be_given() -> None:
    """A sweep replaces the configuration of the one kernel; another kernel's name is refused."""
    choice = ConfigChoice("swept", ConfigRule({}, CONFIG | TILES, "a test"))
    assert BACKEND.with_choice("prefill_forward", choice).pinned_choices == {"prefill_forward": choice}
    with pytest.raises(UsageError, match="has no kernel 'decode'; it has prefill_forward"):
        BACKEND.with_choice("decode", choice)
