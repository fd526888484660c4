"""Lies that occur only sometimes: the effects of a race, and of what else is in the batch, on unchanged inputs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pytest_attnperf.testing.liars.honest import attend
from pytest_attnperf.testing.liars.liar import Kernel, make_liar
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    import triton.language as tl

    from pytest_attnperf.backends import Tensors

SMALL = Prefill(1, 48, 2, 32, dtype="f32")
BATCH = Prefill(4, 24, 2, 24, seq_kv=40)
SOME = 20
"""One call out of this many is wrong."""


def _wrong_now_and_then(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns attention whose last row is 0 in one of every SOME calls, as if a block had not been waited for."""
    calls = 0

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        out, _ = attend(q, k, v, causal=workload.causal)
        if calls % SOME == SOME - 1:
            out[:, -1] = 0
        return out

    return call


def _never_the_same_order(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns attention that sums the keys in another order in every call, like atomics: right, with other bits."""
    import torch

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        order = torch.randperm(k.shape[1], device=k.device)
        return attend(q, k[:, order], v[:, order], causal=workload.causal)[0]

    return call


WAIT_SECONDS = 0.015
"""How long a call waits for its thread: many times as long as that takes, unless it is held back."""


def _wait_for_thread(limit_seconds: float | None) -> Kernel:
    """Returns a kernel whose second half is computed by a thread, into a buffer that the call reads after it has waited
    for the thread this long, or, without a limit, until the thread is done."""

    def prepare(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
        import torch

        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            rows = q.shape[1] // 2
            first, _ = attend(q[:, :rows], k, v)
            scratch, done = torch.zeros_like(q[:, rows:]), threading.Event()

            def compute_rest() -> None:
                scratch.copy_(attend(q[:, rows:], k, v)[0])
                done.set()

            threading.Thread(target=compute_rest, daemon=True).start()
            done.wait(limit_seconds)
            return torch.cat((first, scratch), 1)

        return call

    return prepare


POLLS_FEW, POLLS_MANY = 50, 1 << 22
"""Looks at a flag: some ten microseconds, where its block is due after a few; and seconds."""


WARPS = 32
"""Warps of a block: so many that few blocks fit on a multiprocessor beside another kernel's."""


def _make_copy_kernel() -> Any:
    """Returns a Triton kernel that copies by way of scratch memory: its last block writes all of it there and sets a
    flag; each block copies its part from there once it has seen the flag, or has looked POLLS times."""
    import triton
    import triton.language

    globals()["tl"] = triton.language  # Triton looks names up where a kernel's file has them

    @triton.jit  # type: ignore[untyped-decorator]
    def copy_by_scratch(source, scratch, flag, out, size, POLLS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        block = tl.program_id(0)
        offsets = tl.arange(0, BLOCK)
        if block == tl.num_programs(0) - 1:
            for start in range(0, size, BLOCK):
                values = tl.load(source + start + offsets, mask=start + offsets < size)
                tl.store(scratch + start + offsets, values, mask=start + offsets < size)
            tl.debug_barrier()
            tl.atomic_xchg(flag, 1, sem="release")
        polls = 0
        done = tl.atomic_add(flag, 0, sem="acquire")
        while (done == 0) & (polls < POLLS):
            done = tl.atomic_add(flag, 0, sem="acquire")
            polls += 1
        for start in range(block * BLOCK, size, tl.num_programs(0) * BLOCK):
            values = tl.load(scratch + start + offsets, mask=start + offsets < size, volatile=True)
            tl.store(out + start + offsets, values, mask=start + offsets < size)

    return copy_by_scratch


def _hand_over(polls: int) -> Kernel:
    """Returns attention whose result another kernel copies, block by block of the device, with so many looks."""

    def prepare(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
        import torch

        kernel, blocks = _make_copy_kernel(), torch.cuda.get_device_properties("cuda").multi_processor_count

        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return copy_together(kernel, attend(q, k, v)[0], blocks, polls)

        return call

    return prepare


def copy_together(kernel: Any, source: torch.Tensor, blocks: int, polls: int) -> torch.Tensor:
    """Returns a copy of `source` that `blocks` blocks of `kernel` make together, each after at most `polls` looks."""
    import torch

    scratch, out = torch.zeros_like(source), torch.empty_like(source)
    flag = torch.zeros(1, dtype=torch.int32, device=source.device)
    kernel[(blocks,)](source, scratch, flag, out, source.numel(), polls, BLOCK=1024, num_warps=WARPS)
    return out


def _attend_in_splits(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, splits: int) -> torch.Tensor:
    """Returns attention whose keys are cut into `splits` parts, each rounded to the dtype before all are joined. Sums
    are in fp64, so that no order of them shows after the rounding."""
    import torch

    scores = torch.einsum("bshd,bthd->bhst", q.double(), k.double()) * q.shape[-1] ** -0.5
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    parts = zip(weights.chunk(splits, -1), v.double().chunk(splits, 1), strict=True)
    sums = [torch.einsum("bhst,bthd->bshd", own, values).to(q.dtype).double() for own, values in parts]
    out = torch.stack(sums).sum(0) / weights.sum(-1).transpose(1, 2)[..., None]
    return out.to(q.dtype)


def _splits_by_batch(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns attention that splits the keys of a small batch, as kernels do that fill a GPU."""
    return lambda q, k, v: _attend_in_splits(q, k, v, 4 if len(q) < 2 else 2)


def _splits_by_place(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns attention that splits the keys of every other sequence of a batch in another way."""
    import torch

    def call(*qkv: torch.Tensor) -> torch.Tensor:
        each = enumerate(zip(*(tensor.unsqueeze(1) for tensor in qkv), strict=True))
        return torch.cat([_attend_in_splits(q, k, v, 4 if place % 2 else 2) for place, (q, k, v) in each])

    return call


def _splits_in_two(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    return lambda q, k, v: _attend_in_splits(q, k, v, 2)


RACING = (
    make_liar(
        "wrong_now_and_then",
        "One call of 20 leaves a row unwritten.",
        SMALL,
        _wrong_now_and_then,
        r"\d+ of \d+ calls on the same inputs are wrong",
        twin=_never_the_same_order,
        needs_cpu=True,  # Python counts
    ),
    make_liar(
        "gives_up_waiting",
        "A thread computes half of the rows, and is waited for 15 ms at most.",
        SMALL,
        _wait_for_thread(WAIT_SECONDS),
        r"under delays: \d+ of \d+ calls on the same inputs are wrong",
        twin=_wait_for_thread(None),
        needs_cpu=True,  # a graph holds no threads
        needs_trial="jitter",
    ),
    make_liar(
        "gives_up_polling",
        "Blocks look at a flag 50 times, which its block has set by then unless the device is busy.",
        SMALL,
        _hand_over(POLLS_FEW),
        r"under neighbour(, replayed)?: \d+ of \d+ calls on the same inputs are wrong",
        twin=_hand_over(POLLS_MANY),
        needs_gpu=True,
        needs_trial="jitter",
    ),
    make_liar(
        "splits_by_batch",
        "It declares that results do not depend on the batch, and splits the keys of a single sequence in another way.",
        BATCH,
        _splits_by_batch,
        r"invariance, alone: .* other bits, by up to \d+ ulp",
        twin=_splits_in_two,
        invariant=True,
    ),
    make_liar(
        "splits_by_place",
        "It declares that results do not depend on the batch, and splits the keys of every other sequence differently.",
        BATCH,
        _splits_by_place,
        r"invariance, reversed: .* other bits, by up to \d+ ulp",
        twin=_splits_in_two,
        invariant=True,
    ),
)
