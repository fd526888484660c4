"""Flash decoding under the interpreter and on a GPU: right on crossed features, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernels.triton.decode.backend import BACKENDS
from kernels.triton.decode.builds import LINES, DecodeKernel, DecodeReduceKernel
from pytest_attnperf.backends import Outputs
from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import TritonSource
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.decode import Decode

(BACKEND,) = BACKENDS
INTERPRETING = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)
NVIDIA = DeviceInfo(kind="cuda", arch="sm_90", product="NVIDIA H200")
CASES = (
    "decode-b2-kv70-h4-hk2-d32-f16",
    "decode-b1-kv20-h4-hk2-d32-f16-sinks-lse",
    "decode-b3-kv33-h4-hk1-d64-page16-bf16-ragged-lse",
    "decode-b3-q4-kv100-h4-hk2-d32-page16-cap30-w20-bf16-kvf8e4m3-sinks-ragged-lse",
    "decode-b2-kv257-h4-hk1-d40-page128-w100-f32-kvi8-ragged",
    "decode-b2-q2-kv129-h2-d16-page64-cap5-f32-lse",
    "decode-b2-q8-kv65-h8-hk1-d16-w3-f32-lse",
    "decode-b2-q3-kv97-h4-hk2-d24-page32-f16-sinks",
    "decode-b2-kv64-h2-d16-page32-cap8-f16-kvi8-sinks-lse",
    "decode-b2-q5-kv96-h2-d32-w33-bf16-kvi8-sinks",
    "decode-b2-q8-kv8-h2-d16-cap2-f16-ragged",
    "decode-b2-q8-kv40-h8-hk1-d32-page16-bf16-ragged",
    "decode-b2-kv130-h16-hk1-d16-page16-w64-f16-sinks-ragged-lse",
    "decode-b1-kv1-h2-d16-page16-f32",
)


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """What the interpreted kernels give for every case."""
    return interpret("kernels.triton.decode.backend", [f"{BACKEND.name}/{case}" for case in CASES])


@pytest.mark.parametrize("case", CASES)
def test_right_on_crossed_features(case: str, interpreted: Any, judge: Callable[..., Any]) -> None:
    """Pages, caps, windows, sinks, 8-bit caches, tokens, lse and ragged lengths are right in pairs."""
    result = interpreted[f"{BACKEND.name}/{case}"]
    assert judge(case, result["outputs"]) == ()
    assert result["unchanged"]
    assert result["replays"]


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_right_on_crossed_features_on_a_gpu(case: str, judge: Callable[..., Any]) -> None:
    """The compiled kernels are within budget on the same problems."""
    workload = Decode.parse(case)
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    outputs: Outputs = prepared.outputs(prepared.run())
    assert judge(case, outputs, device="cuda") == ()


@pytest.mark.gpu
def test_positions_past_32_bits_are_right() -> None:
    """The last sequence of a cache of more than 2^31 elements gives what it gives alone."""
    import torch

    from kernels.triton.decode.kernel import flash_decode

    keys = torch.zeros(2**31 // (64 * 8 * 128) + 1, 64, 8, 128, dtype=torch.float16, device="cuda")
    keys[-1].normal_()
    q = torch.randn(keys.shape[0], 1, 8, 128, dtype=torch.float16, device="cuda")
    lens = torch.full((keys.shape[0],), 64, dtype=torch.int32, device="cuda")
    config = {"BLOCK_N": 64, "PROGRAMS": 1, "SPLIT_KEYS_MIN": 256, "num_warps": 4, "num_stages": 2}
    how: dict[str, Any] = {"config": config, "reduce_config": {"BLOCK_SPLITS": 16, "num_warps": 4, "num_stages": 1}}
    out, _ = flash_decode(q, keys, keys, lens, **how)
    alone, _ = flash_decode(q[-1:], keys[-1:], keys[-1:], lens[-1:], **how)
    assert keys.numel() > 2**31
    assert torch.equal(out[-1:], alone)


def test_several_splits_and_a_single_one_are_both_interpreted() -> None:
    """The cases hold problems of one split, which is written at once, and of more, which are joined."""
    pytest.importorskip("triton")
    from kernels.configs import FOLDER
    from kernels.triton.decode.kernel import splits_of

    assert (FOLDER / "decode/interpreter.json").is_file()
    config = {"BLOCK_N": 32, "PROGRAMS": 16, "SPLIT_KEYS_MIN": 32}
    assert splits_of(20, 2, config) == (1, 32)
    assert splits_of(257, 2, config) == (5, 64)
    assert splits_of(130, 2, config) == (3, 64)
    assert splits_of(70, 64, config) == (1, 96)


def test_both_kernels_configurations_are_recorded(interpreted: Any) -> None:
    """What was launched, and where its figures come from, is part of the result, for each of the two kernels."""
    config = interpreted[f"{BACKEND.name}/{CASES[0]}"]["config"]
    assert config["decode.config_arch"] == config["decode_reduce.config_arch"] == "interpreter"
    assert config["decode.BLOCK_N"] == "32"
    assert config["decode_reduce.BLOCK_SPLITS"] == "2"


@pytest.mark.parametrize(
    ("text", "device", "reason"),
    [
        ("b1-kv64-h2-d320-f16", INTERPRETING, "head_dim 320 is above 256, the largest this kernel takes"),
        (
            "b1-q8-kv64-h16-hk1-d64-f16",
            INTERPRETING,
            "128 rows of one K/V head (16 query heads of 8 tokens) are above 64, the most that one program of this "
            "kernel takes",
        ),
        ("b1-kv64-h2-d64-f16-kvf8e4m3fnuz", NVIDIA, "Triton has no f8e4m3fnuz on NVIDIA GPUs"),
    ],
)
def test_says_what_it_does_not_compute(text: str, device: DeviceInfo, reason: str) -> None:
    """Each limit is one reason with the value seen."""
    assert BACKEND.unsupported_reasons(Decode.parse(f"decode-{text}"), device) == [reason]


def arguments(**changed: Any) -> dict[str, Any]:
    """Arguments that `require_arguments` takes: fp16 over a paged int8 cache, but for what is changed."""
    import torch

    scale = torch.ones(1)
    cache = torch.zeros(4, 16, 2, 32, dtype=torch.int8)
    good = {
        "q": torch.zeros(2, 1, 4, 32, dtype=torch.float16),
        "k": cache,
        "v": cache,
        "seq_lens": torch.ones(2, dtype=torch.int32),
        "block_table": torch.zeros(2, 2, dtype=torch.int32),
        "sinks": torch.zeros(4),
        "k_scale": scale,
        "v_scale": scale,
        "cap": 0.0,
        "window": 0,
    }
    return good | {name: make(torch) for name, make in changed.items()}


BAD_ARGUMENTS: list[tuple[dict[str, Callable[[Any], Any]], str]] = [
    ({"q": lambda t: t.zeros(2, 9, 4, 32, dtype=t.float16)}, "q must be .* Q of at most 8, got torch.float16"),
    ({"q": lambda t: t.zeros(2, 1, 4, 320, dtype=t.float16)}, "q must be .* D of at most 256"),
    ({"q": lambda t: t.zeros(2, 1, 4, 32).long()}, "q must be float16, bfloat16 or float32, got torch.int64"),
    ({"q": lambda t: t.zeros(2, 1, 3, 32)}, "k must be .* Hk dividing the 3 heads of q"),
    ({"q": lambda t: t.zeros(2, 8, 32, 32)}, "H / Hk . Q is at most 64, it is 128"),
    ({"v": lambda t: t.zeros(4, 16, 2, 16, dtype=t.int8)}, r"v must be torch.int8 \(4, 16, 2, 32\), as k"),
    ({"seq_lens": lambda t: t.ones(3, dtype=t.int32)}, r"seq_lens must be contiguous torch.int32 \(2,\)"),
    ({"seq_lens": lambda t: t.ones(2)}, "seq_lens must be contiguous torch.int32"),
    ({"block_table": lambda t: t.zeros(2, 2)}, r"block_table must be int32 \(2, pages\), got torch.float32"),
    ({"block_table": lambda t: None}, r"k must be \(2, Skv, Hk, D\) without block_table"),
    ({"k": lambda t: t.zeros(4, 24, 2, 32, dtype=t.int8), "v": lambda t: t.zeros(4, 24, 2, 32, dtype=t.int8)},
     "k must be of pages of a power of two of at least 16 keys"),
    ({"sinks": lambda t: t.zeros(2)}, r"sinks must be contiguous torch.float32 \(4,\)"),
    ({"k_scale": lambda t: None}, r"k_scale is missing: a cache of torch.int8 needs it, float32 \(1,\)"),
    ({"v_scale": lambda t: t.ones(2)}, r"v_scale must be contiguous torch.float32 \(1,\), got torch.float32 \(2,\)"),
    ({name: lambda t: t.zeros(4, 16, 2, 32, dtype=t.float16) for name in ("k", "v")}, "k_scale is given for keys of"),
    ({name: lambda t: t.zeros(4, 16, 2, 32) for name in ("k", "v")}, "k must be torch.float16, as q"),
    ({"cap": lambda t: -1.0}, "cap must be 0 for none, or positive, got -1.0"),
    ({"window": lambda t: -1}, "window must be 0 for none, or positive, got -1"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "message"), BAD_ARGUMENTS)
def test_bad_arguments_are_named(changed: dict[str, Callable[[Any], Any]], message: str) -> None:
    """The launcher says which argument is wrong, what it is, and what is allowed."""
    pytest.importorskip("torch")
    from kernels.triton.decode.checks import require_arguments

    with pytest.raises(UsageError, match=message):
        require_arguments(**arguments(**changed))


def test_good_arguments_are_taken() -> None:
    """What the bad cases change is right without the change."""
    pytest.importorskip("torch")
    from kernels.triton.decode.checks import require_arguments

    require_arguments(**arguments())


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201", "sm_90", "gfx908"])
def test_every_problem_is_built_for_every_architecture(arch: str) -> None:
    """Every line has a rule and an id of its own, and an architecture without a file uses the default's."""
    builds = DecodeKernel().builds(arch)
    assert len({build.id for build in builds}) == len(LINES)
    assert len(DecodeReduceKernel().builds(arch)) == 3
    formats = {source.signature["k_ptr"] for build in builds if isinstance(source := build.source, TritonSource)}
    assert ("*fp8e4b8" if arch == "gfx942" else "*fp8e4nv") in formats


def test_signatures_are_the_kernels_own() -> None:
    """Every argument of both kernels has a type or a value, and nothing else is given."""
    pytest.importorskip("triton")
    from kernels.triton.decode.kernel import decode_kernel
    from kernels.triton.decode.reduce import decode_reduce_kernel

    for function, kernel in ((decode_kernel, DecodeKernel()), (decode_reduce_kernel, DecodeReduceKernel())):
        for build in kernel.builds("gfx942"):
            assert isinstance(build.source, TritonSource)
            assert build.source.signature.keys() | build.source.constants.keys() == set(function.arg_names)
            assert set(build.source.divisible_by_16) <= build.source.signature.keys()
