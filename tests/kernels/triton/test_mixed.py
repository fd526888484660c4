from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest

from kernels.triton.mixed.backend import BACKENDS, GROUP_MAX, HEAD_DIM_MAX, SPACE
from kernels.triton.mixed.builds import MixedKernel
from pytest_attnperf.backends import Outputs
from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import ALL_ARCHS, TritonSource
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads import mixed
from pytest_attnperf.workloads.mixed import Mixed

(BACKEND,) = BACKENDS
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
INTERPRETING = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)
SEED = 1

CASES = (
    "mixed-2q17_q9s40_5q1s70-h4-hk2-d128-page16-w10-cap20-bf16-kvi8",
    "mixed-7q1s100_q1-h8-hk1-d40-page32-f16-kvf8e4m3-sinks",
    "mixed-q33_2q1s130_q5s33-h3-hk1-d128-page64-w10-cap20-f16-sinks",
    "mixed-q64_q3s64_q1s65-h8-hk1-d64-page64-bf16",
    "mixed-q64_q3s64_q1s65-h2-d64-page32-w10-cap20-f16-kvi8",
    "mixed-q33_2q1s130_q5s33-h3-hk1-d64-page16-bf16-kvf8e4m3",
    "mixed-2q17_q9s40_5q1s70-h2-d128-page32-bf16-kvf8e4m3-sinks",
    "mixed-7q1s100_q1-h4-hk2-d40-page16-w10-bf16-kvi8-sinks",
    "mixed-7q1s100_q1-h3-hk1-d40-page64-w10-cap20-f16-kvf8e4m3",
    "mixed-q64_q3s64_q1s65-h4-hk2-d128-page16-cap20-f16-kvf8e4m3-sinks",
    "mixed-2q17_q9s40_5q1s70-h8-hk1-d64-page16-w10-cap20-f16-sinks",
    "mixed-q33_2q1s130_q5s33-h8-hk1-d128-page32-f16-kvi8",
    "mixed-q33_2q1s130_q5s33-h2-d40-page64-f16",
    "mixed-7q1s100_q1-h4-hk2-d64-page32-f16",
    "mixed-2q17_q9s40_5q1s70-h3-hk1-d40-page64-cap20-f16-kvi8-sinks",
    "mixed-7q1s100_q1-h2-d128-page16-w10-bf16",
    "mixed-q64_q3s64_q1s65-h3-hk1-d40-page32-cap20-bf16-kvi8-sinks",
    "mixed-q33_2q1s130_q5s33-h4-hk2-d40-page64-w10-cap20-f16",
    "mixed-q5s200-h2-d64-page16-f16",
)
"""Any two values of different properties meet in one; the last is a single sequence."""

Judge = Callable[..., tuple[str, ...]]


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """What the interpreted kernel gives in every case, interpreted when it is asked for."""
    return interpret("kernels.triton.mixed.backend", [f"{BACKEND.name}/{text}" for text in CASES])


@pytest.mark.parametrize("text", CASES)
def test_right_interpreted(text: str, interpreted: Any, judge: Judge) -> None:
    """Within the ordinary budget on prompts, chunks and single tokens with every two features, inputs untouched."""
    result = interpreted[f"{BACKEND.name}/{text}"]
    assert judge(text, result["outputs"]) == ()
    assert result["unchanged"]
    assert result["replays"]
    assert result["config"]["config_arch"] == "interpreter"


@pytest.mark.gpu
@pytest.mark.parametrize("text", CASES)
def test_right_on_a_gpu(text: str, judge: Judge) -> None:
    """The compiled kernel is within budget on the same problems."""
    workload = Mixed.parse(text)
    prepared = BACKEND.prepare(workload, workload.make_inputs(SEED, "cuda", planted=True))
    assert judge(text, prepared.outputs(prepared.run()), device="cuda") == ()


def test_the_cases_cross_every_two_properties() -> None:
    """Any two values of different properties meet in a case."""
    rows = [
        (w.batch, w.heads // w.kv_heads, w.head_dim, w.page, w.window, w.cap, w.cache, w.dtype, w.sinks)
        for w in map(Mixed.parse, CASES[:-1])
    ]
    met = {pair for row in rows for pair in itertools.combinations(enumerate(row), 2)}
    values = [sorted({(number, row[number]) for row in rows}, key=str) for number in range(9)]
    for first, second in itertools.combinations(values, 2):
        assert set(itertools.product(first, second)) <= met


def test_both_kinds_of_tiles_are_interpreted(interpreted: Any) -> None:
    """Some cases do short sequences in tiles of their own, and some steps have tiles for short sequences only."""
    sizes = {
        "mixed-7q1s100_q1-h3-hk1-d40-page64-w10-cap20-f16-kvf8e4m3": ("16", "16"),
        "mixed-q33_2q1s130_q5s33-h3-hk1-d128-page64-w10-cap20-f16-sinks": ("32", "16"),
        "mixed-q64_q3s64_q1s65-h2-d64-page32-w10-cap20-f16-kvi8": ("64", "16"),
    }
    for text, (tile, small) in sizes.items():
        config = interpreted[f"{BACKEND.name}/{text}"]["config"]
        assert (config["BLOCK_M"], config["SMALL_M"]) == (tile, small)


LIAR = "mixed-q33s60_2q1s130-h4-hk2-d64-page16-w20-cap20-f16-kvi8-sinks"


def wrong(text: str, **changes: Any) -> Outputs:
    """What plain attention gives of the same inputs under another definition."""
    workload = Mixed.parse(text)
    inputs = workload.make_inputs(SEED, "cpu", planted=True)
    return dataclasses.replace(workload, **changes).plain(inputs)


@pytest.mark.parametrize(
    "changes", [{}, {"window": 21}, {"window": 19}, {"window": 0}, {"cap": 0}, {"batch": "q33s60_2q1s129"}], ids=str
)
def test_another_definition_is_rejected(changes: dict[str, Any], judge: Judge) -> None:
    """A window off by one either way or ignored, a soft cap left out, and a lost last key are each found."""
    assert bool(judge(LIAR, wrong(LIAR, **changes))) == bool(changes)


def test_sinks_left_out_are_rejected(judge: Judge) -> None:
    """Weights that add up to 1 without the sinks are found."""
    workload = Mixed.parse(LIAR)
    inputs = workload.make_inputs(SEED, "cpu", planted=True)
    without = (*inputs[:6], *inputs[7:])
    assert judge(LIAR, dataclasses.replace(workload, sinks=False).plain(without))


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_mask_off_by_one_is_rejected(shift: int, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A causal mask that is a key too short or too long is found, in a chunk that has keys before it."""
    text = "mixed-2q33s60-h4-hk2-d64-page16-f16"
    hidden_keys = mixed.hidden_keys
    workload = Mixed.parse(text)
    inputs = workload.make_inputs(SEED, "cpu", planted=True)
    monkeypatch.setattr(mixed, "hidden_keys", lambda position, *rest: hidden_keys(position + shift, *rest))
    outputs = workload.plain(inputs)
    monkeypatch.undo()
    assert judge(text, outputs)


def test_a_wrong_page_is_rejected(judge: Judge) -> None:
    """One page of one sequence taken from another sequence is found, whichever it is."""
    text = "mixed-3q1s100-h4-hk2-d64-page16-f16"
    workload = Mixed.parse(text)
    inputs = workload.make_inputs(SEED, "cpu", planted=True)
    for entry in range(7):
        table = inputs[3].clone()
        table[1, entry] = table[0, entry]
        assert judge(text, workload.plain((*inputs[:3], table, *inputs[4:])))


def launch(**changes: Any) -> Any:
    """The launcher on a small problem, with some arguments replaced."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.mixed.kernel import mixed_attention as launcher

    arguments: dict[str, Any] = {
        "q": torch.zeros(4, 8, 16, dtype=torch.float16),
        "k_cache": torch.zeros(5, 16, 2, 16, dtype=torch.float16),
        "v_cache": torch.zeros(5, 16, 2, 16, dtype=torch.float16),
        "block_table": torch.zeros(2, 2, dtype=torch.int32),
        "cu_seqlens_q": torch.tensor([0, 3, 4], dtype=torch.int32),
        "seq_lens": torch.tensor([3, 17], dtype=torch.int32),
        "config": {"BLOCK_M": 16, "BLOCK_N": 16, "SMALL_M": 16, "SMALL_N": 16, "num_warps": 4, "num_stages": 1},
    }
    for name, change in changes.items():
        arguments[name] = change(torch, arguments.get(name)) if callable(change) else change
    return launcher(**arguments)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("q", lambda torch, q: q.float(), "q must be fp16 or bf16 (T, H, D), got torch.float32 (4, 8, 16)"),
        ("q", lambda torch, q: q[:, :7], "an Hk that divides its H"),
        ("q", lambda torch, q: q.transpose(0, 1).contiguous().transpose(0, 1), "q must be contiguous"),
        ("k_cache", lambda torch, k: k[0], "k_cache must be (pages, page_size, Hk, D)"),
        ("k_cache", lambda torch, k: k[..., :8], "k_cache must be (pages, page_size, Hk, D) with the D of q"),
        ("v_cache", lambda torch, v: v[:4], "v_cache must match k_cache, got torch.float16 (4, 16, 2, 16)"),
        ("v_cache", lambda torch, v: v.bfloat16(), "v_cache must match k_cache, got torch.bfloat16"),
        (
            "block_table",
            lambda torch, t: t.long(),
            "block_table must be int32 (B, pages_per_sequence), got torch.int64",
        ),
        ("block_table", lambda torch, t: t[:, 0], "block_table must be int32 (B, pages_per_sequence), got"),
        ("cu_seqlens_q", lambda torch, t: t[:2], "cu_seqlens_q must be int32 (3,) for a block_table of 2 rows, got"),
        ("seq_lens", lambda torch, t: t.long(), "seq_lens must be int32 (2,) for a block_table of 2 rows, got"),
        ("seq_lens", lambda torch, t: t.to("meta"), "seq_lens is on meta, and q on cpu; put all on one device"),
        ("sinks", lambda torch, t: torch.zeros(4), "sinks must be fp32 (8,), got torch.float32 (4,)"),
        ("k_scale", lambda torch, t: torch.ones(1), "k_scale must be given with an 8-bit cache and only then, got"),
        ("window", -1, "window and cap must be at least 0, where 0 is none, got window=-1 and cap=0.0"),
        ("config", {"BLOCK_M": 2}, "BLOCK_M is 2; it must be at least 4, the query heads of a K/V head"),
    ],
)
def test_a_bad_argument_is_named(name: str, change: Any, message: str) -> None:
    """The launcher says which argument is off, what it is and what is allowed, before anything runs."""
    with pytest.raises(UsageError, match=re.escape(message)):
        launch(**{name: change})


def test_caches_of_another_width_or_without_scales_are_refused() -> None:
    """A cache of another 16-bit type, of odd pages, and an 8-bit cache without scales are named."""

    def cached(dtype: str, page: int = 16) -> Any:
        return lambda torch, k: torch.zeros(5, page, 2, 16, dtype=getattr(torch, dtype))

    for dtype, page, message in (
        ("bfloat16", 16, "k_cache must be of q's dtype or of 8 bits, got torch.bfloat16"),
        ("float16", 24, "k_cache has pages of 24 keys; it must be a power of two"),
        ("int8", 16, "k_scale must be given with an 8-bit cache and only then, got none"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            launch(k_cache=cached(dtype, page), v_cache=cached(dtype, page))


def test_a_block_table_out_of_range_is_refused() -> None:
    """A page that does not exist is named by its entry when a backend is prepared."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    workload = Mixed.parse("mixed-q5_q1s20-h2-d16-page16-f16")
    inputs = workload.make_inputs(SEED, "cpu", planted=False)
    inputs[3][1, 0] = 99
    with pytest.raises(UsageError, match=re.escape("block_table[1, 0] is 99, allowed is 0 to 3")):
        BACKEND.prepare(workload, inputs)


def test_says_what_it_cannot_run() -> None:
    """Without a GPU and the interpreter, and beyond the largest sizes, each reason names the value seen."""
    small = Mixed.parse("mixed-q5-h2-d16-page16-f16")
    assert BACKEND.unsupported_reasons(small, INTERPRETING) == []
    assert "set TRITON_INTERPRET=1" in BACKEND.unsupported_reasons(small, CPU)[0]
    large = Mixed("q5", 2 * GROUP_MAX, HEAD_DIM_MAX + 1, kv_heads=1)
    assert BACKEND.unsupported_reasons(large, INTERPRETING) == [
        "head_dim 257 is above 256, the largest this kernel takes",
        "128 query heads per K/V head are more than 64, the most this kernel takes",
    ]


@pytest.mark.parametrize("arch", [*ALL_ARCHS, "sm_90", "sm_80", "interpreter"])
def test_every_problem_it_takes_has_a_configuration(arch: str) -> None:
    """Whatever the head dimension, heads per K/V head, longest query and cache, a rule takes it, and its rows fit."""
    for head_dim, group, longest, bits in itertools.product((16, 128, 256), (1, 4, 16, 64), (1, 4, 4096), (8, 16)):
        problem = {"head_dim": head_dim, "group": group, "longest_query": longest, "cache_bits": bits}
        config = SPACE.choose(arch, problem).config
        assert config["BLOCK_M"] >= max(group, config["SMALL_M"])


@pytest.mark.parametrize("arch", [*ALL_ARCHS, "sm_90"])
def test_builds_are_what_is_launched(arch: str) -> None:
    """At most 8, each with an id of its own, and with a type or a value for every argument of the kernel."""
    pytest.importorskip("triton")
    from kernels.triton.mixed.kernel import mixed_kernel

    builds = MixedKernel().builds(arch)
    assert len({build.id for build in builds}) == len(builds) <= 8
    for build in builds:
        assert isinstance(build.source, TritonSource)
        assert build.source.signature.keys() | build.source.constants.keys() == set(mixed_kernel.arg_names)
        assert build.matrix


@pytest.mark.gpu
def test_pages_past_32_bits_are_right() -> None:
    """Keys past the first 2^31 elements of a cache are found."""
    import torch

    from kernels.triton.mixed.kernel import mixed_attention as launcher

    config = SPACE.choose("default", {"head_dim": 128, "group": 1, "longest_query": 5, "cache_bits": 16}).config
    pages = 2**31 // (16 * 8 * 128) + 3
    k = torch.zeros(pages, 16, 8, 128, dtype=torch.float16, device="cuda")
    k[-3:] = torch.randn(3, 16, 8, 128, device="cuda")
    q = torch.randn(5, 8, 128, device="cuda").half()
    starts, lengths = (torch.tensor(values, dtype=torch.int32, device="cuda") for values in ([0, 5], [40]))
    table = torch.tensor([[2, 0, 1]], dtype=torch.int32, device="cuda")
    far = launcher(q, k, k, table + (pages - 3), starts, lengths, config=config)
    near = launcher(q, k[-3:], k[-3:], table, starts, lengths, config=config)
    assert torch.equal(far, near)
