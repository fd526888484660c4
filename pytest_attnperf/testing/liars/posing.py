"""Lies about what ran: another implementation, another processor, another stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_attnperf.backends import Declares
from pytest_attnperf.testing.liars.honest import pinned_flash, pinned_math, prepare_attention
from pytest_attnperf.testing.liars.liar import make_liar
from pytest_attnperf.testing.liars.untimed import SMALL, attend_in_python
from pytest_attnperf.workloads.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import torch

    from pytest_attnperf.backends import Tensors

SQUARE = Prefill(2, 64, 4, 64, causal=True)

FLASH_OPERATOR = Declares(operators=("aten::_scaled_dot_product_flash_attention",))
FLASH_KERNEL = Declares(kernels=("flash|fmha|attn_fwd",))
"""FlashAttention's kernels in torch for CUDA, and those of composable kernel and AOTriton for ROCm."""

UNDECLARED = r"declares .* but"
CROSSING = "between host and device"
OTHER_STREAM = "another stream"


def _cpu_fallback(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    honest = prepare_attention(workload, inputs)
    return lambda *qkv: honest(*(tensor.cpu() for tensor in qkv)).to(qkv[0].device)


def _host_round_trip(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    honest = prepare_attention(workload, inputs)
    return lambda *qkv: honest(*qkv).cpu().to(qkv[0].device)


def _python_fallback(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    return lambda *qkv: attend_in_python([tensor.tolist() for tensor in qkv])


def _side_stream(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    """Returns a call that computes on a second stream for which nothing waits, not even a capture of the calling
    stream."""
    import torch

    honest, stream = prepare_attention(workload, inputs), torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def call(*qkv: torch.Tensor) -> Any:
        with torch.cuda.stream(stream):
            return honest(*qkv)

    return call


def _forked_side_stream(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    """Returns a call that computes on a second stream; each stream waits for the other, so the result is right, also in
    a graph."""
    import torch

    honest, stream = prepare_attention(workload, inputs), torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def call(*qkv: torch.Tensor) -> Any:
        calling = torch.cuda.current_stream()
        stream.wait_stream(calling)
        with torch.cuda.stream(stream):
            out = honest(*qkv)
        calling.wait_stream(stream)
        out.record_stream(calling)
        return out

    return call


POSING = (
    make_liar(
        "another_backend",
        "Products around a softmax, as torch composes them, run under the name of its flash attention.",
        SQUARE,
        pinned_math,
        UNDECLARED,
        twin=pinned_flash,
        declares=FLASH_OPERATOR,
    ),
    make_liar(
        "silent_eager",
        "A call that says it is one fused operator is products around a softmax.",
        SQUARE,
        prepare_attention,
        UNDECLARED,
        twin=pinned_flash,
        declares=FLASH_OPERATOR,
    ),
    make_liar(
        "another_kernel",
        "Matrix products run under the name of a flash kernel.",
        SQUARE,
        prepare_attention,
        UNDECLARED,
        twin=pinned_flash,
        declares=FLASH_KERNEL,
        needs_gpu=True,
    ),
    make_liar(
        "cpu_fallback",
        "Everything is computed on the CPU, and the result is copied back.",
        SQUARE,
        _cpu_fallback,
        CROSSING,
        needs_gpu=True,
    ),
    make_liar(
        "host_round_trip",
        "The result visits host memory before it is returned.",
        SQUARE,
        _host_round_trip,
        CROSSING,
        needs_gpu=True,
    ),
    make_liar(
        "python_fallback",
        "Python computes under the name of torch's flash attention.",
        SMALL,
        _python_fallback,
        UNDECLARED,
        twin=pinned_flash,
        declares=FLASH_OPERATOR,
        needs_cpu=True,
    ),
    make_liar(
        "side_stream",
        "The work is launched on another stream, and nothing waits for it.",
        SQUARE,
        _side_stream,
        rf"{OTHER_STREAM}|'out' (holds|is off by)|right after another is off by",
        needs_gpu=True,
    ),
    make_liar(
        "forked_side_stream",
        "The work is launched on another stream, which the timer does not measure, and waited for.",
        SQUARE,
        _forked_side_stream,
        OTHER_STREAM,
        needs_gpu=True,
    ),
)
