"""Our implementations. Importing this package imports neither torch nor a compiler; `register` lists what exists."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.kernel_builds import KernelRegistry

MODULES = (
    "native.prefill",
    "native.backward",
    "native.varlen",
    "triton.prefill",
    "triton.prefill_builds",
    "triton.varlen",
    "triton.varlen_builds",
    "native.decode",
    "triton.decode_backend",
    "triton.decode_builds",
    "aiter.backends",
    "native.gemm",
    "triton.gemm_backend",
    "triton.gemm_builds",
    "native.rows",
    "native.rope",
    "native.bandwidth",
    "triton.rows_backend",
    "triton.rows_builds",
    "triton.rope_backend",
    "triton.rope_builds",
    "triton.bandwidth_backend",
    "triton.bandwidth_builds",
    "native.mixed",
    "triton.mixed_backend",
    "triton.mixed_builds",
    "native.mla",
    "triton.mla_backend",
    "triton.mla_builds",
    "native.backward_flash",
    "native.varlen_backward",
    "triton.backward_backend",
    "triton.backward_builds",
    "triton.trans_v_backend",
    "triton.trans_v_builds",
    "hip.prefill",
    "hip.prefill_builds",
    "hip.staged",
    "hip.staged_builds",
    "hip.decode",
    "hip.decode_builds",
    "hip.rope",
    "hip.rope_builds",
    "native.staged",
    "triton.staged",
    "triton.staged_builds",
)
"""Every module with BACKENDS or KERNELS, in the order of tables."""


def register(registry: Registry) -> None:
    """Add every backend of this repository, and the layers over those that attend. Raises UsageError."""
    from kernels.layer.layers import layers_over

    registry.add(*_all("BACKENDS"))
    registry.add(*layers_over(registry))


def register_kernels(kernels: KernelRegistry) -> None:
    """Add every kernel of this repository that can be compiled without a GPU. Raises UsageError."""
    kernels.add(*_all("KERNELS"))


def _all(attribute: str) -> Iterator[Any]:
    """What the modules have under this name. Raises UsageError for a line that names none, or one without either."""
    for name in MODULES:
        full = f"{__name__}.{name}"
        try:
            module = import_module(full)
        except ModuleNotFoundError as error:
            if not full.startswith(str(error.name)):
                raise  # something that it imports
            file = f"kernels/{name.replace('.', '/')}.py"
            raise UsageError(f"{_place(name)} names {name!r}, and there is no {file}") from None
        if not (hasattr(module, "BACKENDS") or hasattr(module, "KERNELS")):
            raise UsageError(f"{_place(name)} names {name!r}, and {module.__file__} has neither BACKENDS nor KERNELS")
        yield from getattr(module, attribute, ())


def _place(name: str) -> str:
    """'kernels/__init__.py:20': where a module is listed."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    numbers = (number for number, line in enumerate(lines, 1) if line.strip() == f'"{name}",')
    return f"{__file__}:{next(numbers, 1)}"
