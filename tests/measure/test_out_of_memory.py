from __future__ import annotations

import weakref

import pytest
import torch

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.out_of_memory import run_guarded


def test_a_cpu_allocation_too_large_says_how_much() -> None:
    """A failed allocation names the case and the bytes asked for, is marked, and the case is released first."""
    released: list[bool] = []
    with pytest.raises(
        CaseFailedError,
        match=rf"out of memory: native\.eager on big: .*tried to allocate {2**50} bytes.*\. Use a smaller workload",
    ) as caught:
        run_guarded(lambda: torch.empty(2**50, dtype=torch.uint8), "native.eager on big", lambda: released.append(True))
    assert caught.value.out_of_memory
    assert released == [True]


def test_tensors_of_the_failed_call_are_freed() -> None:
    """Nothing that the failed call held survives into the error, so that the next case finds the memory."""
    held: list[weakref.ref[torch.Tensor]] = []

    def work() -> None:
        tensor = torch.empty(10)
        held.append(weakref.ref(tensor))
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    with pytest.raises(CaseFailedError, match=r"Tried to allocate 2\.00 GiB") as caught:
        run_guarded(work, "a case", lambda: None)
    assert held[0]() is None
    assert caught.value.__context__ is None


def test_python_running_out_counts() -> None:
    """A MemoryError is out of memory, too, and is named even without a text."""
    with pytest.raises(CaseFailedError, match="a case: MemoryError") as caught:
        run_guarded(lambda: (_ for _ in ()).throw(MemoryError()), "a case", lambda: None)
    assert caught.value.out_of_memory


def test_other_errors_pass_through_unreleased() -> None:
    """Any other error keeps its type and text, and the case is not released."""
    released: list[bool] = []

    def work() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        run_guarded(work, "a case", lambda: released.append(True))
    assert released == []


@pytest.mark.gpu
def test_gpu_memory_is_given_back() -> None:
    """After a GPU ran out of memory its cached blocks are free again and the text shows what is left."""
    with pytest.raises(CaseFailedError, match=r"this process holds \d+ MiB, and \d+ of \d+ MiB are free") as caught:
        run_guarded(lambda: torch.empty(2**50, dtype=torch.uint8, device="cuda"), "a case", lambda: None)
    assert caught.value.out_of_memory
    assert torch.ones(4, device="cuda").sum().item() == 4
