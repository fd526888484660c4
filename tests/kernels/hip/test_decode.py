"""HIP flash decoding, emulated and on a GPU: right on crossed features, what it refuses, wrongly merged splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernels.hip.compiler import LaunchableKernel
from kernels.hip.decode import BACKENDS, GROUP_MAX, REDUCE_SPLITS, mma_splits_of, splits_of
from kernels.hip.decode_builds import KERNELS
from kernels.hip.emulator import load as emulated
from kernels.hip.sources import HipKernel
from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import HipSource
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.decode import Decode

BACKEND = replace(BACKENDS[0], split_keys_min=32)
"""The backend with splits as short as small problems need to have several."""

ROCM = DeviceInfo(kind="rocm", arch="gfx942", product="AMD Instinct MI300X")
NVIDIA = DeviceInfo(kind="cuda", arch="sm_90", product="NVIDIA H200")
SPLIT = "decode-b3-kv257-h8-hk2-d128-bf16-ragged-lse"
MANY_SPLITS = "decode-b1-kv1090-h2-hk1-d32-f16"
CASES = (
    "decode-b2-kv70-h2-d64-f16",
    SPLIT,
    "decode-b3-kv130-h8-hk1-d96-page16-f16-ragged-lse",
    "decode-b2-kv150-h14-hk1-d40-page32-bf16-ragged",
    "decode-b1-kv1-h3-hk1-d256-f16",
    "decode-b2-kv20-h4-hk1-d128-bf16",
    MANY_SPLITS,
)
"""Groups of 1, 2, 3, 4, 8 and 14; a single key, fewer keys than a split has, and lengths that no split and no page
divides; rows that fill 4, 8, 16 and 32 lanes, and rows that leave some of them without work."""

Judged = Callable[..., tuple[str, ...]]


@pytest.mark.parametrize(("arch", "order"), [("gfx942", "reverse"), ("gfx1100", "shuffled-1"), ("sm_90", "shuffled-2")])
@pytest.mark.parametrize("case", CASES)
def test_right_on_crossed_features(
    case: str, arch: str, order: str, emulate: Callable[[str], None], judged: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With waves of 64 and of 32 and on NVIDIA's matrix units, in any order of threads, checked for races, inputs left
    alone."""
    emulate(arch)
    monkeypatch.setattr("kernels.hip.decode.load", lambda kernel, device: emulated(kernel, arch=arch, order=order))
    assert judged(BACKEND, case) == ()


def lose_the_last_split(maxima: Any, sums: Any, lens: Any, split_keys: int) -> None:
    """The longest sequence, as if its last split had not been written."""
    lens -= (lens == lens.max()).int() * split_keys


def weigh_splits_alike(maxima: Any, sums: Any, lens: Any, split_keys: int) -> None:
    """Splits merged without regard to their maxima."""
    maxima.fill_(maxima[0, 0, 0])


def add_a_sum_twice(maxima: Any, sums: Any, lens: Any, split_keys: int) -> None:
    """The first split's denominator counted twice."""
    sums[..., 0] *= 2


@pytest.mark.parametrize("lie", [None, lose_the_last_split, weigh_splits_alike, add_a_sum_twice])
def test_lost_and_wrongly_merged_splits_are_seen(
    lie: Callable[..., None] | None,
    emulate: Callable[[str], None],
    judged: Judged,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The judge rejects what comes out when partial results are changed between the two kernels, and only then."""
    emulate("gfx942")

    def load(kernel: HipKernel, device: Any) -> LaunchableKernel:
        honest = emulated(kernel, checked=False)
        if kernel.function != "decode_reduce" or lie is None:
            return honest

        def lying(grid: tuple[int, int, int], *arguments: Any) -> None:
            partial_out, maxima, sums, lens, *others = arguments
            changed = [tensor.clone() for tensor in (maxima, sums, lens)]
            lie(*changed, others[-1])
            honest(grid, partial_out, *changed, *others)

        return lying

    monkeypatch.setattr("kernels.hip.decode.load", load)
    assert bool(judged(BACKEND, SPLIT)) == (lie is not None)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_right_on_crossed_features_on_a_gpu(case: str, judged: Judged) -> None:
    """The compiled kernels are within budget on the same problems; captured in a graph they give the same bits."""
    import torch

    assert judged(BACKEND, case, "cuda") == ()
    workload = Decode.parse(case)
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cuda", planted=True))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = prepared.run()
    graph.replay()
    torch.cuda.synchronize()
    first, second = prepared.outputs(result), prepared.outputs(prepared.run())
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.gpu
def test_positions_past_32_bits_are_right() -> None:
    """The last sequence of a cache of more than 2^31 elements gives what it gives alone."""
    import torch

    many = Decode(2**31 // (64 * 8 * 128) + 1, 64, 8, 128)
    keys = torch.zeros(many.batch, 64, 8, 128, dtype=torch.float16, device="cuda")
    keys[-1].normal_()
    q = torch.randn(many.batch, 1, 8, 128, dtype=torch.float16, device="cuda")
    lens = torch.full((many.batch,), 64, dtype=torch.int32, device="cuda")
    prepared = BACKENDS[0].prepare(many, (q, keys, keys, lens))
    alone = BACKENDS[0].prepare(replace(many, batch=1), (q[-1:], keys[-1:], keys[-1:], lens[-1:]))
    assert keys.numel() > 2**31
    assert torch.equal(prepared.outputs(prepared.run())["out"][-1:], alone.outputs(alone.run())["out"])


@pytest.mark.parametrize(
    ("seq_kv", "workgroups_per_split", "multiprocessors", "splits", "split_keys"),
    [
        (4096, 512, 132, 2, 2048),  # a full batch: as many as fill the multiprocessors
        (131072, 8, 132, 128, 1024),  # one long sequence
        (131072, 1, 132, 512, 256),  # one head of it: as many as the shortest split allows
        (4096, 8192, 132, 1, 4096),  # enough work without splits
        (200, 8, 132, 1, 224),  # shorter than the shortest split
        (1, 8, 132, 1, 32),
        (513, 1, 304, 2, 288),  # the last one is shorter
    ],
)
def test_splits_follow_from_the_problem_and_the_device(
    seq_kv: int, workgroups_per_split: int, multiprocessors: int, splits: int, split_keys: int
) -> None:
    """Enough workgroups for the device, no split below the least, and every key is in one."""
    assert splits_of(seq_kv, workgroups_per_split, multiprocessors) == (splits, split_keys)
    assert (splits - 1) * split_keys < seq_kv <= splits * split_keys


@pytest.mark.parametrize(
    ("seq_kv", "workgroups_per_split", "splits", "split_keys"),
    [
        (4096, 512, 1, 4096),  # more workgroups than multiprocessors without a split
        (8192, 128, 1, 8192),  # nearly one for each
        (8192, 72, 2, 4096),  # a split more, where many would have none
        (131072, 8, 16, 8192),
        (1024, 8, 16, 64),  # the shortest splits
        (100, 8, 1, 128),
    ],
)
def test_matrix_units_have_one_workgroup_a_multiprocessor(
    seq_kv: int, workgroups_per_split: int, splits: int, split_keys: int
) -> None:
    """On an H200's 132: as few splits as leave hardly a multiprocessor without one."""
    assert mma_splits_of(seq_kv, workgroups_per_split, 132) == (splits, split_keys)


@pytest.mark.parametrize(
    ("arch", "text", "kernels"),
    [
        ("sm_90", "decode-b1-kv150-h8-hk2-d64-f16", ("decode_split_mma", "decode_reduce")),
        ("sm_90", "decode-b8-kv70-h8-hk2-d64-f16", ("decode_split_mma",)),
        ("sm_90", "decode-b8-kv70-h4-hk2-d64-f16", ("decode_split", "decode_reduce")),
        ("gfx942", "decode-b2-kv70-h8-hk2-d64-f16", ("decode_split", "decode_reduce")),
    ],
)
def test_which_kernels_run(arch: str, text: str, kernels: tuple[str, ...], emulate: Callable[[str], None]) -> None:
    """NVIDIA multiplies groups of three heads and more on matrix units, and merges nothing where there is one split."""
    emulate(arch)
    workload = Decode.parse(text)
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
    assert prepared.declares.kernels == kernels


WHOLE_PIECES = (
    "hip.decode takes a head_dim of 32 to 256 that is a multiple of 8 (a wave reads a row in pieces of 16 bytes)"
)


def test_the_cases_hold_one_split_several_and_many() -> None:
    """What is merged is a single split, a few, and more than a small workgroup is launched for."""
    counts = {case: splits_of(w.seq_kv, w.batch * w.kv_heads, 4, 32)[0] for case in CASES for w in [Decode.parse(case)]}
    assert 1 in counts.values()
    assert 2 < counts[SPLIT] <= REDUCE_SPLITS
    assert counts[MANY_SPLITS] > REDUCE_SPLITS


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("b2-q4-kv64-h2-d64-f16", ["hip.decode takes one token per sequence, not 4"]),
        ("b2-kv64-h2-d64-f32", ["hip.decode takes bf16, f16, not f32"]),
        ("b2-kv64-h2-d24-f16", [f"{WHOLE_PIECES}, not 24"]),
        ("b2-kv64-h2-d264-f16", [f"{WHOLE_PIECES}, not 264"]),
        ("b2-kv64-h2-d68-f16", [f"{WHOLE_PIECES}, not 68"]),
        ("b2-kv64-h32-hk1-d64-f16", ["hip.decode takes 16 query heads per K/V head at most, not 32"]),
        ("b2-kv64-h2-d64-cap30-w16-f16-kvi8-sinks", [
            "hip.decode takes no sliding window", "hip.decode takes no soft cap", "hip.decode takes no 8-bit cache",
            "hip.decode takes no sinks",
        ]),
        ("b2-kv64-h16-hk1-d256-page64-bf16-ragged-lse", []),
    ],
)  # fmt: skip
def test_says_what_it_does_not_compute(text: str, reasons: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each limit is one reason with the value seen."""
    monkeypatch.setattr("kernels.hip.decode.missing_hip", lambda device: [])
    for device in (ROCM, NVIDIA):
        assert BACKEND.unsupported_reasons(Decode.parse(f"decode-{text}"), device) == reasons


def test_a_wrong_block_table_is_refused_when_prepared() -> None:
    """An entry beyond the cache is named before anything reads there."""
    pytest.importorskip("torch")
    workload = Decode.parse("decode-b2-kv40-h2-d32-page16-f16")
    inputs = workload.make_inputs(1, "cpu", planted=False)
    inputs[3][1, 2] = 99
    with pytest.raises(UsageError, match=r"block_table\[1, 2\] is 99, allowed is 0 to 6"):
        BACKEND.prepare(workload, inputs)


def test_builds_have_the_largest_group_and_both_workgroups_of_the_merge() -> None:
    """What registers and LDS are tightest for is compiled."""
    sources = [d.source for kernel in KERNELS for d in kernel.builds("gfx942") if isinstance(d.source, HipSource)]
    assert str(GROUP_MAX) in {source.defines.get("GROUP") for source in sources}
    assert {source.threads for source in sources if source.kernel == "decode_reduce"} == {128, 512}
