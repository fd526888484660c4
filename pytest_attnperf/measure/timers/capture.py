"""Records calls into a CUDA or HIP graph, and restores the process's state if that fails.

A failed capture leaves torch (2.6 to 2.13) in a bad state: `torch.cuda.graph.__exit__` does not restore the stream if
`capture_end` raises, the allocator keeps using the capture's pool, and the default random generator stays in capture
mode. `capture_graph` undoes all three, so a case that cannot be captured does not affect the next one.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.measure.timers.timer import WARM_UP_CALLS, Call

if TYPE_CHECKING:
    import torch

_abandoned: list[Any] = []
"""Graphs whose capture failed, kept until the process ends: torch's allocator may still refer to them."""


class CaptureFailedError(AttnperfError):
    """A call cannot be recorded into a graph; the message says why. An event timer can still time it."""


def warm_up_for_capture(call: Call, stream: torch.cuda.Stream) -> None:
    """Makes three calls on the stream that will capture, as torch recommends, and one more that must not synchronise.
    Raises CaptureFailedError if the call synchronises with the host; found here, this needs no failed capture."""
    import torch

    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_CALLS):
                call()
            with _synchronising_raises():
                call()
    finally:
        current.wait_stream(stream)
        torch.cuda.synchronize()


@contextlib.contextmanager
def _synchronising_raises() -> Iterator[None]:
    import torch

    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once that this mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    except RuntimeError as error:
        if "synchronizing CUDA operation" not in str(error):
            raise
        raise CaptureFailedError(
            f"the call synchronises with the host, as .item() and .cpu() do ({first_line(error)})"
        ) from None
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def capture_graph(call: Call, calls: int, stream: torch.cuda.Stream) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Records `calls` calls; returns the graph and the raw result of its last call, which every replay overwrites.

    Each result is dropped before the next call, so that all calls of the graph use the same memory. Raises
    CaptureFailedError for any RuntimeError except out of memory; that and all other errors are passed on.
    """
    import torch

    graph, pool, result = new_graph(), torch.cuda.graph_pool_handle(), None
    failure: Exception | None = None
    try:
        # The outer context restores the stream where the inner one does not.
        with torch.cuda.stream(stream), torch.cuda.graph(graph, pool=pool, stream=stream):
            try:
                for _ in range(calls):
                    result = None
                    result = call()
            except Exception as error:
                failure = error
                raise
    except Exception as error:
        # Ending an invalid capture raises, too, but the call's own error explains the failure.
        failure = failure or error
    if failure is None:
        return graph, result
    _abandon_capture(graph, pool, stream)
    try:
        if isinstance(failure, RuntimeError) and not isinstance(failure, torch.OutOfMemoryError):
            raise CaptureFailedError(first_line(failure))
        raise failure
    finally:
        failure = result = None  # a traceback that refers to this frame is a cycle that holds the call's tensors


def new_graph() -> torch.cuda.CUDAGraph:
    """Makes a graph whose nodes can be read after capture, if torch has that (2.8 and later)."""
    import torch

    try:
        return torch.cuda.CUDAGraph(keep_graph=True)
    except TypeError:
        return torch.cuda.CUDAGraph()


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or its type's name; CUDA errors go on with advice on debugging."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _abandon_capture(graph: torch.cuda.CUDAGraph, pool: Any, stream: torch.cuda.Stream) -> None:
    import torch

    torch.cuda.synchronize()
    device = torch.cuda.current_device()
    # torch < 2.8 has the second name only.
    end = getattr(torch._C, "_cuda_endAllocateToPool", None) or getattr(
        torch._C, "_cuda_endAllocateCurrentStreamToPool", None
    )
    if end is not None:
        try:
            end(device, pool)
        except RuntimeError:
            # The capture had ended properly: the call raised, but did nothing that a capture forbids.
            graph.reset()
            return
        torch._C._cuda_releasePool(device, pool)
    _abandoned.append(graph)
    # Any capture that succeeds takes the default generator out of capture mode.
    one = torch.zeros(1, device="cuda")
    with torch.cuda.stream(stream), torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
        one.add_(1)
    torch.cuda.synchronize()
