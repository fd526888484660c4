"""The precision of references, and of multiplying matrices with sums in fp32."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors


def reference_dtype(tensors: Tensors) -> torch.dtype:
    """Returns the dtype in which to compute a reference for `tensors`: fp64 on a CPU, and if one is fp32 or fp64; else
    fp32. fp32 has 13 bits more than f16, so its error is far below one rounding step of the output, and it takes a
    fraction of the time of fp64 on a GPU."""
    import torch

    on_cpu = all(tensor.device.type == "cpu" for tensor in tensors)
    wide = any(tensor.dtype in (torch.float32, torch.float64) for tensor in tensors)
    return torch.float64 if on_cpu or wide else torch.float32


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype of sums: fp64 for fp64, fp32 otherwise."""
    import torch

    return torch.float64 if dtype == torch.float64 else torch.float32


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Disables torch's autocast inside the block, which a fixture or a test may have left on: it would round the plain
    computation as it rounds the kernel. Autocast that is entered inside the block works."""
    import torch

    with contextlib.ExitStack() as stack:
        for device in autocast_devices():
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def autocast_devices() -> list[str]:
    """Returns those of 'cpu' and 'cuda' for which autocast is on; [] if this torch cannot report it (before 2.4)."""
    import torch

    with contextlib.suppress(TypeError):
        return [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    return []


TENSOR_CORE_TERMS = 8
"""Products that a tensor core adds to a sum at once: 8 on Ampere, 16 on Hopper."""


def multiply_as_tensor_core(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns a b in fp32, from a (M, K) and b (K, N), with sums as NVIDIA's tensor cores add them: after each
    TENSOR_CORE_TERMS products a sum is cut to fp32 towards zero, not rounded (Fasi, Higham, Mikaitis and Pranesh,
    Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7:e330, 2021)."""
    import torch

    total = torch.zeros((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
    for start in range(0, a.shape[1], TENSOR_CORE_TERMS):
        terms = slice(start, start + TENSOR_CORE_TERMS)
        exact = total.double() + a[:, terms].double() @ b[terms].double()
        rounded = exact.float()
        beyond = rounded.double().abs() > exact.abs()
        total = torch.where(beyond, torch.nextafter(rounded, torch.zeros_like(rounded)), rounded)
    return total


def full_fp32_matmul() -> AbstractContextManager[None]:
    """Multiplies fp32 matrices in fp32, not TF32, inside the block, and then restores the process's setting."""
    return _choose_fp32_matmul(tf32=False)


def tf32_matmul() -> AbstractContextManager[None]:
    """Lets torch multiply fp32 matrices in TF32 (xf32 on AMD) inside the block, then restores the process's setting."""
    return _choose_fp32_matmul(tf32=True)


@contextlib.contextmanager
def _choose_fp32_matmul(*, tf32: bool) -> Iterator[None]:
    """Sets whether fp32 matrices may be multiplied in TF32, inside the block. torch 2.9 and later name the setting
    `torch.backends.cuda.matmul.fp32_precision` and refuse to mix it with the older one, so the name depends on the
    torch version."""
    import torch

    matmul: Any = torch.backends.cuda.matmul
    new_name = hasattr(matmul, "fp32_precision")
    name, value = ("fp32_precision", "tf32" if tf32 else "ieee") if new_name else ("allow_tf32", tf32)
    before = getattr(matmul, name)
    setattr(matmul, name, value)
    try:
        yield
    finally:
        setattr(matmul, name, before)
