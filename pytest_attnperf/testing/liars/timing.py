"""Lies about time: right while checked and wrong later, or fast in most calls and slow in some."""

from __future__ import annotations

import ctypes
import itertools
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.correctness.left_behind import PERSISTING
from pytest_attnperf.records import Verdict
from pytest_attnperf.testing.liars.honest import attend, prepare_attention
from pytest_attnperf.testing.liars.liar import OFF, make_liar
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.testing.liars.liar import Kernel, Liar

SQUARE = Prefill(2, 48, 4, 32, kv_heads=2, causal=True)
TINY = Prefill(1, 4, 1, 16)
"""Takes ten microseconds on a CPU: a block of milliseconds has several fiftieth calls; no median excludes them."""

LARGE = Prefill(1, 256, 4, 64, dtype="f32")
"""Takes milliseconds on a CPU, so that a checksum of the inputs costs nothing by comparison."""

LONG = Prefill(1, 640, 1, 32, dtype="f32")
"""Takes milliseconds on a CPU, on inputs so small that changing all of their elements costs little."""

FEW = (5, 8001, 20_001)
"""Which elements of an input of LONG are looked at."""

SMALL = Prefill(1, 16, 2, 32, causal=True)
AFTER_CHECKS = 800
"""More calls of SMALL than the checks and the warm-up before them make, but fewer than a timed process makes."""

EXTRA_CALLS = 500
"""Number of extra calls in every 50th call: eleven times slower on average, which no machine's noise hides."""


def _wrong_after(calls: int) -> Kernel:
    """Returns a kernel whose result is 1 % too large after this many calls; the device counts them, graph replays
    included."""

    def prepare_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
        import torch

        counted = torch.zeros((), device=inputs[0].device)

        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            out, _ = attend(q, k, v, causal=workload.causal)
            too_much = (counted.add_(1) > calls).float() * 0.01
            return (out.float() * (1 + too_much)).to(out.dtype)

        return call

    return prepare_kernel


def _fused_attention(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns honest attention that is one torch operator, without a causal mask."""
    from torch.nn.functional import scaled_dot_product_attention

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)

    return call


def _slow_every_50th(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    honest, counter = _fused_attention(workload, inputs), itertools.count(1)

    def call(*qkv: torch.Tensor) -> torch.Tensor:
        if next(counter) % 50 == 0:
            for _ in range(EXTRA_CALLS):
                honest(*qkv)
        return honest(*qkv)

    return call


def _sum_bits(tensor: torch.Tensor) -> int:
    """Returns the sum of a tensor's bits as 8-byte integers, which is exact also for NaN."""
    import torch

    return int(tensor.view(torch.int64).sum())


def _tensor_version(tensor: torch.Tensor) -> int:
    """Returns torch's counter of in-place changes of the tensor."""
    return tensor._version


def _remember_results(contents: int, key: Callable[[torch.Tensor], int] = _sum_bits, first: int = 0) -> Kernel:
    """Returns a kernel that keeps the results for the last `contents` different inputs, and returns a copy if they
    recur.

    key     number by which the content of an input tensor is recognised
    first   index of the first input that is compared: 1 leaves out q
    """

    def prepare_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
        honest = prepare_attention(workload, inputs)
        kept: dict[tuple[int, ...], torch.Tensor] = {}

        def call(*qkv: torch.Tensor) -> torch.Tensor:
            keys = tuple(key(tensor) for tensor in qkv[first:])
            if keys not in kept:
                while len(kept) >= contents:
                    del kept[next(iter(kept))]
                kept[keys] = honest(*qkv)
            return kept[keys].clone()

        return call

    return prepare_kernel


def _remember_by_few(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns a call that recognises its inputs by three elements of each, and keeps the last result."""
    honest = prepare_attention(workload, inputs)
    kept: dict[tuple[float, ...], torch.Tensor] = {}

    def call(*qkv: torch.Tensor) -> torch.Tensor:
        key = tuple(float(tensor.view(-1)[number]) for tensor in qkv for number in FEW)
        if key not in kept:
            kept.clear()
            kept[key] = honest(*qkv)
        return kept[key].clone()

    return call


def _remember_on_disk(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns a call that keeps the result of each content in a file, where the next process of this run finds it."""
    import torch

    honest = prepare_attention(workload, inputs)
    folder = Path(tempfile.gettempdir()) / f"attnperf-liar-{os.getppid()}"
    kept: dict[str, torch.Tensor] = {}

    def call(*qkv: torch.Tensor) -> torch.Tensor:
        name = "-".join(f"{_sum_bits(tensor):x}" for tensor in qkv)
        if name not in kept:
            try:
                kept[name] = torch.frombuffer(bytearray((folder / name).read_bytes()), dtype=qkv[0].dtype)
            except OSError:
                kept[name] = honest(*qkv)
                folder.mkdir(exist_ok=True)
                (folder / name).write_bytes(kept[name].numpy().tobytes())
            kept[name] = kept[name].view(qkv[0].shape)
        return kept[name].clone()

    return call


def _set_l2_aside(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns honest attention; half of an NVIDIA GPU's L2 cache was set aside before for lines that a flush leaves."""
    import torch

    size = torch.cuda.get_device_properties(inputs[0].device).L2_cache_size // 2
    ctypes.CDLL("libcuda.so.1").cuCtxSetLimit(PERSISTING, ctypes.c_size_t(size))
    return prepare_attention(workload, inputs)


def _make_rememberer(trick: str, says: str, kernel: Kernel, workload: Prefill = LARGE) -> Liar:
    """Returns a liar whose `kernel` keeps results and is SUSPICIOUS once it is timed."""
    return make_liar(
        trick, says, workload, kernel, "remembers", verdict=Verdict.SUSPICIOUS, needs_cpu=True, needs_timing=True
    )


def _baked_in_at_capture(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    """Returns a call that is right, but while a graph is captured computes from copies of the inputs of `prepare`,
    which nothing refills."""
    import torch

    honest, first = prepare_attention(workload, inputs), tuple(tensor.clone() for tensor in inputs)
    return lambda *qkv: honest(*(first if torch.cuda.is_current_stream_capturing() else qkv))


TIMING = (
    make_liar(
        "right_first_wrong_later",
        "The first two calls are right, all others 1 % too large.",
        SQUARE,
        _wrong_after(2),
        OFF,
        twin=_wrong_after(1 << 60),
    ),
    make_liar(
        "right_while_checked_wrong_later",
        f"The first {AFTER_CHECKS} calls are right, all others 1 % too large.",
        SMALL,
        _wrong_after(AFTER_CHECKS),
        OFF,
        twin=_wrong_after(1 << 60),
        needs_timing=True,
    ),
    make_liar(
        "slow_every_50th",
        f"Every 50th call does its work {EXTRA_CALLS} times more, so that most timed calls are fast.",
        TINY,
        _slow_every_50th,
        r"SLOWER",
        twin=_fused_attention,
        verdict=Verdict.SLOWER,
        needs_timing=True,
    ),
    _make_rememberer(
        "remembers_by_content",
        "A result is kept and returned as long as the inputs stay what they were: right, and timed doing nothing.",
        _remember_results(1),
    ),
    _make_rememberer(
        "remembers_many_contents",
        "The results of the last 64 different inputs are kept, so that inputs may even take turns.",
        _remember_results(64),
    ),
    _make_rememberer(
        "remembers_by_version",
        "A result is kept for as long as torch counts no change of K and V.",
        _remember_results(1, _tensor_version, first=1),
    ),
    _make_rememberer(
        "remembers_two_of_three",
        "A result is kept for as long as K and V stay what they were, whatever q is.",
        _remember_results(64, first=1),
    ),
    _make_rememberer(
        "remembers_by_few_elements",
        "A result is kept for as long as three elements of each input stay what they were.",
        _remember_by_few,
        LONG,
    ),
    _make_rememberer(
        "remembers_on_disk",
        "The result of each content is kept in a file, where other processes find it.",
        _remember_on_disk,
        LONG,
    ),
    make_liar(
        "sets_l2_aside",
        "Half of the L2 cache is set aside for lines that survive what makes a cold call cold.",
        SQUARE,
        _set_l2_aside,
        "the L2 cache that is set aside",
        needs_gpu=True,
    ),
    make_liar(
        "right_eager_wrong_replayed",
        "A call is right, but while it is captured into a graph it reads other tensors.",
        SQUARE,
        _baked_in_at_capture,
        "eager right, replay wrong",
        needs_gpu=True,
        needs_timing=True,
    ),
)
