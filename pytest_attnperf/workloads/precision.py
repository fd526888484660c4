"""In which precision a reference is computed, and fp32 that really is fp32."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors


def reference_dtype(tensors: Tensors) -> torch.dtype:
    """fp64 on a CPU, and wherever an input already has 24 bits of mantissa; fp32 on a GPU for f16 and bf16.

    fp32 carries 13 bits more than f16, so its error is far below one rounding step of the output, at a fraction of
    the time fp64 takes on a GPU.
    """
    import torch

    on_cpu = all(tensor.device.type == "cpu" for tensor in tensors)
    wide = any(tensor.dtype in (torch.float32, torch.float64) for tensor in tensors)
    return torch.float64 if on_cpu or wide else torch.float32


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """No autocast but what is entered inside, whatever a fixture or a test has left on: it would round the plain
    computation as it rounds the kernel."""
    import torch

    with contextlib.ExitStack() as stack:
        for device in autocast_devices():
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def autocast_devices() -> list[str]:
    """Device types for which autocast is on here; none where this torch cannot say it (before 2.4)."""
    import torch

    with contextlib.suppress(TypeError):
        return [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    return []


@contextlib.contextmanager
def full_fp32_matmul() -> Iterator[None]:
    """Multiply fp32 matrices in fp32, not TF32, whatever the process has set; its setting is restored.

    torch 2.9 and later name the setting `torch.backends.cuda.matmul.fp32_precision` and refuse to mix it with the
    older one, so each torch is asked in its own words.
    """
    import torch

    matmul = torch.backends.cuda.matmul
    name, value = ("fp32_precision", "ieee") if hasattr(matmul, "fp32_precision") else ("allow_tf32", False)
    before = getattr(matmul, name)
    setattr(matmul, name, value)
    try:
        yield
    finally:
        setattr(matmul, name, before)
