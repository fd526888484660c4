"""Turns running out of memory into the result of one case, so that the next case runs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, TypeVar

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.timers.capture import first_line

T = TypeVar("T")


def run_guarded(work: Callable[[], T], what: str, release: Callable[[], None]) -> T:
    """Returns what `work` returns; if memory runs out, calls `release`, then raises CaseFailedError that names `what`.

    The original error is dropped before that, because its traceback holds the tensors that must be freed.
    """
    try:
        return work()
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        reason = first_line(error)
    release()
    gc.collect()
    free_cached_memory()
    raise CaseFailedError(
        f"out of memory: {what}: {reason}{_describe_memory()}. Use a smaller workload, or free the device of "
        f"other processes",
        out_of_memory=True,
    )


def free_cached_memory() -> None:
    """Returns the allocator's unused memory to the GPU; does nothing if no GPU was used."""
    import torch

    if _is_gpu_used():
        torch.cuda.empty_cache()


def _is_out_of_memory(error: Exception) -> bool:
    """Tells whether memory ran out: torch has an error type for GPUs only, a CPU's allocator raises RuntimeError."""
    import torch

    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def _describe_memory() -> str:
    import torch

    if not _is_gpu_used():
        return ""
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    held_mib = torch.cuda.memory_allocated() / 2**20
    return (
        f" (with the case freed, this process holds {held_mib:.0f} MiB, and {free_bytes / 2**20:.0f} of "
        f"{total_bytes / 2**20:.0f} MiB are free)"
    )


def _is_gpu_used() -> bool:
    """Tells whether this process has used a GPU, without initialising one."""
    import torch

    cuda: Any = torch.cuda
    return bool(cuda.is_initialized())
