"""Lies that occur only sometimes: the effects of a race, on unchanged inputs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pytest_attnperf.testing.liars.honest import attend
from pytest_attnperf.testing.liars.liar import Kernel, make_liar
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pytest_attnperf.backends import Tensors

SMALL = Prefill(1, 48, 2, 32, dtype="f32")
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


def _hand_over(polls: int) -> Kernel:
    """Returns attention whose result another kernel copies: its last block writes scratch memory that the others read
    once they have seen its flag, or have looked at it so many times."""

    def prepare(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
        import torch

        from pytest_attnperf.testing.liars.handing_over import hand_over

        blocks = torch.cuda.get_device_properties("cuda").multi_processor_count

        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return hand_over(attend(q, k, v)[0], blocks, polls)

        return call

    return prepare


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
)
