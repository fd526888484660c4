"""Lies about when the work is done: before the call, after it, or by another thread meanwhile."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from pytest_attnperf.testing.liars.honest import attend, prepare_attention
from pytest_attnperf.testing.liars.liar import OFF, WHILE_READ, make_liar
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.testing.liars.liar import Packing

SQUARE = Prefill(2, 48, 4, 32, kv_heads=2, causal=True)
LARGE = Prefill(1, 256, 4, 64, dtype="f32")
"""Takes milliseconds on a CPU, clearly more than a copy."""

SMALL = Prefill(1, 24, 2, 32, dtype="f32")

Rows = list[list[list[float]]]
"""Rows of heads of elements."""

BEFORE = "work is done before the call"


def _pack_answers(workload: Prefill) -> Packing:
    """Returns (conversion that computes the result and keeps it, call that returns a copy of the kept result)."""
    kept: list[torch.Tensor] = []

    def convert(inputs: Tensors) -> Tensors:
        kept[:] = [attend(*inputs, causal=workload.causal)[0]]
        return tuple(tensor.clone() for tensor in inputs)

    return convert, lambda *qkv: kept[0].clone()


def _pack_weights(workload: Prefill) -> Packing:
    """Returns (conversion to the softmax of the scores and v, call that only multiplies these two)."""
    import torch

    def convert(inputs: Tensors) -> Tensors:
        q, k, v = inputs
        wide = k.float().repeat_interleave(q.shape[2] // k.shape[2], 2)
        scores = torch.einsum("bqhd,bkhd->bqhk", q.float(), wide) * q.shape[-1] ** -0.5
        hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(1)[None, :, None]
        return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1), v.clone()

    def call(weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        wide = v.float().repeat_interleave(weights.shape[2] // v.shape[2], 2)
        return torch.einsum("bqhk,bkhd->bqhd", weights, wide).to(v.dtype)

    return convert, call


def _pack_heads_first(workload: Prefill) -> Packing:
    """Returns an honest (conversion to heads before rows, with K and V in one tensor, half of it padding; call that
    takes these)."""
    import torch

    def convert(inputs: Tensors) -> Tensors:
        q, k, v = (tensor.transpose(1, 2) for tensor in inputs)
        return q.contiguous(), torch.nn.functional.pad(torch.stack((k, v)), (0, k.shape[-1]))

    def call(q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        k, v = (tensor[..., : q.shape[-1]].transpose(1, 2) for tensor in kv)
        return attend(q.transpose(1, 2), k, v, causal=workload.causal)[0]

    return convert, call


def _in_a_thread(*, wait: bool) -> Callable[[Prefill, Tensors], Callable[..., Any]]:
    """Returns a kernel whose call starts a thread that computes into the returned buffer. With `wait` the call waits
    for the thread; else it returns [buffer, object that waits]."""

    def prepare_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
        import torch

        honest = prepare_attention(workload, inputs)

        def call(*qkv: torch.Tensor) -> Any:
            out, copies = torch.empty_like(qkv[0]), tuple(tensor.clone() for tensor in qkv)
            thread = threading.Thread(target=lambda: out.copy_(honest(*copies)))
            thread.start()
            if wait:
                thread.join()
            return out if wait else [out, _Joined(thread)]

        return call

    return prepare_kernel


def _behind_the_next(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    """Returns a call that starts a thread which computes into the returned buffer, after it has waited for the thread
    of the call before: the order of a stream, on which nothing waits for the last call."""
    import torch

    honest, started = prepare_attention(workload, inputs), list[threading.Thread]()

    def call(*qkv: torch.Tensor) -> torch.Tensor:
        while started:
            started.pop().join()
        out, copies = torch.empty_like(qkv[0]), tuple(tensor.clone() for tensor in qkv)
        started.append(threading.Thread(target=lambda: out.copy_(honest(*copies))))
        started[0].start()
        return out

    return call


class _Joined:
    """Waits for a thread when the result is read."""

    def __init__(self, thread: threading.Thread) -> None:
        self.wait = thread.join


def _join_thread(raw: Any) -> Outputs:
    raw[1].wait()
    return {"out": raw[0]}


def _first_output(raw: Any) -> Outputs:
    return {"out": raw[0]}


def _return_lists(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    """Returns a call that returns [zeros, the inputs as Python lists]: the lists do not look like tensors to the
    judge."""
    import torch

    return lambda *qkv: [torch.zeros_like(qkv[0]), [tensor.tolist() for tensor in qkv]]


def _computed_by_python(raw: Any) -> Outputs:
    return {"out": attend_in_python(raw[1])}


def attend_in_python(lists: Iterable[list[Rows]]) -> torch.Tensor:
    """Returns the attention of q, k and v as nested lists, without a mask, computed where torch runs no operator."""
    import torch

    return torch.tensor([_one_batch(*qkv) for qkv in zip(*lists, strict=True)])


def _one_batch(q: Rows, k: Rows, v: Rows) -> Rows:
    """Returns attention of one batch as nested lists, computed in pure Python, without a mask, row by row and head by
    head."""
    scale = len(q[0][0]) ** -0.5
    rows: Rows = []
    for query in q:
        heads = []
        for head, vector in enumerate(query):
            scores = [scale * _dot_product(vector, key[head]) for key in k]
            largest = max(scores)
            weights = [math.exp(score - largest) for score in scores]
            columns = zip(*(value[head] for value in v), strict=True)
            heads.append([_dot_product(weights, column) / sum(weights) for column in columns])
        rows.append(heads)
    return rows


def _dot_product(one: Iterable[float], other: Iterable[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


UNTIMED = (
    make_liar(
        "answers_in_convert",
        "The result is computed while the inputs are brought into their layout, and kept for the call.",
        SQUARE,
        prepare_attention,
        OFF,
        packs=(_pack_answers, _pack_heads_first),
    ),
    make_liar(
        "packs_weights",
        "The layout that the call takes holds the softmax of the scores already.",
        SQUARE,
        prepare_attention,
        BEFORE,
        packs=(_pack_weights, _pack_heads_first),
    ),
    make_liar(
        "joins_when_read",
        "A thread computes, and is waited for when the result is read.",
        LARGE,
        _in_a_thread(wait=False),
        r"(still being written|while the result is read)",
        twin=_in_a_thread(wait=True),
        outputs=_join_thread,
        needs_cpu=True,
    ),
    make_liar(
        "writes_after_return",
        "A thread computes, and nothing ever waits for it.",
        LARGE,
        _in_a_thread(wait=False),
        r"still being written|is off by|holds",
        twin=_in_a_thread(wait=True),
        outputs=_first_output,
        needs_cpu=True,
    ),
    make_liar(
        "only_the_next_waits",
        "A thread computes, for which only the next call waits.",
        LARGE,
        _behind_the_next,
        r"still being written|is off by|holds",
        twin=_in_a_thread(wait=True),
        needs_cpu=True,
    ),
    make_liar(
        "python_when_read",
        "Python computes the result when it is read, where torch runs no operator.",
        SMALL,
        _return_lists,
        WHILE_READ,
        outputs=_computed_by_python,
        needs_cpu=True,
    ),
)
