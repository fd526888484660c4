from __future__ import annotations

import pytest
import torch

from pytest_attnperf.measure.timers.capture import (
    CaptureFailedError,
    capture_graph,
    first_line,
    warm_up_for_capture,
)
from pytest_attnperf.measure.timers.stream import side_stream


def test_the_reason_is_the_first_line() -> None:
    """CUDA's advice on debugging, which follows every error, is left out."""
    error = RuntimeError("CUDA error: operation not permitted when stream is capturing\nCompile with ...")
    assert first_line(error) == "CUDA error: operation not permitted when stream is capturing"


def test_an_error_without_text_gives_its_type() -> None:
    """An empty error is named by its type."""
    assert first_line(RuntimeError()) == "RuntimeError"


@pytest.mark.gpu
def test_a_synchronising_call_is_found_before_the_capture() -> None:
    """A call that reads a value back is named as synchronising, and the debug mode is put back."""
    value = torch.ones(1, device="cuda")
    with pytest.raises(CaptureFailedError, match="synchronises with the host"):
        warm_up_for_capture(lambda: value.item(), side_stream())
    assert torch.cuda.get_sync_debug_mode() == 0


@pytest.mark.gpu
def test_a_failed_capture_leaves_the_process_in_order() -> None:
    """After a failed capture the stream, the default generator, the allocator and the next capture all work."""
    value = torch.ones(4, device="cuda")
    stream_before = torch.cuda.current_stream()
    with pytest.raises(CaptureFailedError, match="capturing"):
        capture_graph(lambda: (value * 2).sum().item(), 1, side_stream())
    assert torch.cuda.current_stream() == stream_before
    assert torch.rand(4, device="cuda").shape == (4,)
    torch.cuda.empty_cache()
    graph, result = capture_graph(lambda: value * 3, 2, side_stream())
    value.fill_(2.0)
    graph.replay()
    torch.cuda.synchronize()
    assert result.tolist() == [6.0] * 4


@pytest.mark.gpu
@pytest.mark.parametrize("error", [RuntimeError("not here"), KeyError("not here")])
def test_a_call_that_raises_while_captured(error: Exception) -> None:
    """A RuntimeError says that the call cannot be captured; any other is a fault and is passed on as it is."""
    value = torch.ones(4, device="cuda")

    def call() -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            raise error
        return value * 2

    with pytest.raises(CaptureFailedError if isinstance(error, RuntimeError) else KeyError, match="not here"):
        capture_graph(call, 1, side_stream())
    graph, result = capture_graph(lambda: value + 1, 1, side_stream())
    graph.replay()
    torch.cuda.synchronize()
    assert result.tolist() == [2.0] * 4


@pytest.mark.gpu
def test_out_of_memory_is_not_a_failed_capture() -> None:
    """Running out of memory while capturing stays what it is, and the next capture works."""
    value = torch.ones(4, device="cuda")
    with pytest.raises(torch.OutOfMemoryError):
        capture_graph(lambda: torch.empty(2**50, dtype=torch.uint8, device="cuda"), 1, side_stream())
    graph, result = capture_graph(lambda: value + 1, 1, side_stream())
    graph.replay()
    torch.cuda.synchronize()
    assert result.tolist() == [2.0] * 4
