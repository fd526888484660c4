"""Running out of memory as a result of one case, after which the next one runs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, TypeVar

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.timers.capture import first_line

T = TypeVar("T")


def run_guarded(work: Callable[[], T], what: str, release: Callable[[], None]) -> T:
    """What `work` gives. When it runs out of memory, call `release` and raise CaseFailedError(out_of_memory=True).

    The error is raised after the original one is gone: its traceback holds the tensors that must be freed.
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
    """Give the allocator's unused memory back to the GPU; nothing to do where none was used."""
    import torch

    if _is_gpu_used():
        torch.cuda.empty_cache()


def _is_out_of_memory(error: Exception) -> bool:
    """torch has a type for GPUs only; a CPU's allocator raises RuntimeError with a text of its own."""
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
    """Whether this process has used a GPU; asking never initialises one."""
    import torch

    cuda: Any = torch.cuda
    return bool(cuda.is_initialized())
