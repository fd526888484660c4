"""Lies about what is written, and where."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from pytest_attnperf.testing.liars.honest import attend
from pytest_attnperf.testing.liars.liar import UNWRITTEN, make_liar
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.testing.liars.liar import Kernel

SQUARE = Prefill(2, 48, 4, 32, kv_heads=2, causal=True)
RAGGED = Prefill(2, 40, 4, 32, causal=True)
WITH_LSE = Prefill(2, 40, 4, 32, causal=True, lse=True)
PADDED = Prefill(1, 40, 2, 40, causal=True)
"""Its tensors of 6,400 bytes end inside the 512 bytes that a GPU's allocator gives at least, and 8 bytes before what
malloc uses next: beyond their ends a few bytes can be written without harm."""
TILE = 16


def _writes_nothing(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    import torch

    return lambda q, k, v: torch.empty_like(q)


def _empty_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    import torch

    buffer, nothing = torch.empty_like(inputs[0]), inputs[0].new_empty(0)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        nothing.add_(1)
        return buffer

    return call


def into_buffer(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns honest attention that writes its whole result into one buffer, which is kept for the life of the case."""
    return _part_of_buffer(slice(None))(workload, inputs)


def _part_of_buffer(batches: slice) -> Kernel:
    """Returns a kernel that stores only `batches` of its result in one buffer, kept for the life of the case, and
    returns the whole buffer."""

    def prepare_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
        import torch

        buffer = torch.empty_like(inputs[0])

        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            buffer[batches] = attend(q, k, v, causal=workload.causal)[0][batches]
            return buffer

        return call

    return prepare_kernel


def _first_rows(rows: int | None) -> Kernel:
    """Returns a kernel that writes only the first `rows` rows of its result (None: all) into memory allocated in the
    call."""

    def prepare_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
        import torch

        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(q)
            out[:, :rows] = attend(q, k, v, causal=workload.causal)[0][:, :rows]
            return out

        return call

    return prepare_kernel


def _spoil_result(spoil: Callable[[torch.Tensor], Any]) -> Kernel:
    """Returns a kernel whose call returns `spoil(right result)`."""

    def prepare_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
        return lambda q, k, v: spoil(attend(q, k, v, causal=workload.causal)[0])

    return prepare_kernel


def _nan_in_one_tile(out: torch.Tensor) -> torch.Tensor:
    out[:, TILE : 2 * TILE, 0] = float("nan")
    return out


def _copy_elsewhere(out: torch.Tensor) -> torch.Tensor:
    return out.to("meta") if out.device.type == "cpu" else out.cpu()


def _unwritten_lse(workload: Prefill, inputs: Tensors) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    import torch

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        lse = torch.empty((q.shape[0], q.shape[2], q.shape[1]), device=q.device)
        return attend(q, k, v, causal=workload.causal)[0], lse

    return call


def view_memory(address: int, elements: int, like: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of the type and device of `like` over memory at `address`, whoever owns it."""
    import torch

    size_bytes = elements * like.element_size()
    if like.device.type == "cpu":
        memory = (ctypes.c_char * size_bytes).from_address(address)
        return torch.frombuffer(memory, dtype=torch.uint8).view(like.dtype)
    raw = {"shape": (size_bytes,), "typestr": "|u1", "data": (address, False), "version": 3}
    return torch.as_tensor(type("Raw", (), {"__cuda_array_interface__": raw})(), device=like.device).view(like.dtype)


def _writes_beyond(elements: int) -> Kernel:
    """Returns a kernel that writes its result, and `elements` zeros behind it."""

    def prepare_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
        import torch

        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(q)
            out.copy_(attend(q, k, v, causal=workload.causal)[0])
            if elements:
                view_memory(out.data_ptr() + out.numel() * out.element_size(), elements, out).zero_()
            return out

        return call

    return prepare_kernel


def _reads_beyond(elements: int) -> Kernel:
    """Returns a kernel that multiplies `elements` behind K by zero, and adds them to its result."""

    def prepare_kernel(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            out, _ = attend(q, k, v, causal=workload.causal)
            if elements:
                out += 0 * view_memory(k.data_ptr() + k.numel() * k.element_size(), elements, k).sum()
            return out

        return call

    return prepare_kernel


def _over_q(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    return lambda q, k, v: q.copy_(attend(q, k, v, causal=workload.causal)[0])


def _scales_k_in_place(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out, _ = attend(q, k, v, causal=workload.causal)
        k.mul_(0.5)
        return out

    return call


def _scales_a_copy_of_k(workload: Prefill, inputs: Tensors) -> Callable[..., torch.Tensor]:
    """Returns honest attention of k / 2 with twice the scale: a power of two changes no bit of the mantissa. K itself
    is not changed."""
    scale = workload.head_dim**-0.5
    return lambda q, k, v: attend(q, k.mul(0.5), v, causal=workload.causal, scale=2 * scale)[0]


WRITING = (
    make_liar("writes_nothing", "The output is allocated and never written.", SQUARE, _writes_nothing, UNWRITTEN),
    make_liar(
        "empty_kernel",
        "Something is launched that touches nothing, and a buffer made beforehand is returned.",
        SQUARE,
        _empty_kernel,
        UNWRITTEN,
        twin=into_buffer,
    ),
    make_liar(
        "nan_in_one_tile",
        "One tile of 16 rows of one head is NaN.",
        SQUARE,
        _spoil_result(_nan_in_one_tile),
        rf"'out' holds {2 * TILE * 32} NaN",
    ),
    make_liar(
        "first_batch_only",
        "Only the first batch is stored; the others keep what the buffer held.",
        SQUARE,
        _part_of_buffer(slice(0, 1)),
        UNWRITTEN,
        twin=into_buffer,
    ),
    make_liar(
        "skips_last_ragged_tile",
        "The last rows, fewer than a tile, are never stored.",
        RAGGED,
        _first_rows(RAGGED.seq_q // TILE * TILE),
        UNWRITTEN,
        twin=_first_rows(None),
    ),
    make_liar(
        "unwritten_lse",
        "The log-sum-exp is allocated and never written, beside a right result.",
        WITH_LSE,
        _unwritten_lse,
        r"'lse' (holds|is off by)",
    ),
    make_liar(
        "result_in_input_memory",
        "The right result is written over q.",
        SQUARE,
        _over_q,
        "memory of an input",
    ),
    make_liar(
        "mutates_k",
        "K is scaled in place, after a right result was computed from it.",
        SQUARE,
        _scales_k_in_place,
        "changed its inputs: tensor 1",
        twin=_scales_a_copy_of_k,
    ),
    make_liar(
        "writes_behind_output",
        "Four elements behind the result are set to zero, in memory that nobody else uses.",
        PADDED,
        _writes_beyond(4),
        r"wrote to memory that is neither its input nor its output: 8 bytes, 0 behind",
        twin=_writes_beyond(0),
    ),
    make_liar(
        "reads_behind_keys",
        "Four elements behind K enter the result, times zero.",
        PADDED,
        _reads_beyond(4),
        r"'out' holds \d+ NaN",
        twin=_reads_beyond(0),
    ),
    make_liar(
        "wrong_dtype",
        "The result is stored in fp32, which saves the rounding.",
        SQUARE,
        _spoil_result(lambda out: out.float()),
        r"'out'.*float32",
    ),
    make_liar(
        "wrong_shape",
        "The result has its heads before its rows.",
        SQUARE,
        _spoil_result(lambda out: out.transpose(1, 2).contiguous()),
        r"'out'.*\(2, 4, 48, 32\)",
    ),
    make_liar(
        "wrong_device",
        "The result lies on another device: nowhere ('meta') on a CPU, in host memory on a GPU.",
        SQUARE,
        _spoil_result(_copy_elsewhere),
        r"'out'.*\b(meta|cpu)\b",
    ),
)
